"""Pages for people who open the address in a browser."""

from service.operations import Html, Routes

routes = Routes("Pages", prefix="", public=True, extension=True)


@routes.get("/", answers=(200,))
def show_home() -> Html:
    """Say what is running here."""
    return Html("home.html")

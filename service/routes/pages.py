"""Pages for people who open the address in a browser."""

from service.operations import Routes
from service.signature import Html

routes = Routes("Pages", prefix="", public=True, extension=True, produces="text/html")


@routes.get("/", answers=(200,))
def show_home() -> Html:
    """Say what is running here."""
    return Html("home.html")

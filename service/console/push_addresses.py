"""The addresses of a user's push notifications, and their QR code."""

from typing import Annotated

from msgspec import Meta, Struct

from service.settings import Settings
from service.translation import Html


class PushAddress(Struct):
    """Where the push notifications of a user are published. It is secret."""

    server: Annotated[str, Meta(description="The ntfy server of the installation.")]
    topic: str
    app_url: Annotated[str, Meta(description="Subscribes to the topic in the ntfy app on Android.")]
    web_url: Annotated[str, Meta(description="The topic in a browser.")]


def address_of(topic: str, settings: Settings) -> PushAddress:
    """Return the addresses of a topic."""
    scheme, _, host = settings.ntfy.partition("://")
    plain = "?secure=false" if scheme == "http" else ""
    return PushAddress(settings.ntfy, topic, f"ntfy://{host}/{topic}{plain}", f"{settings.ntfy}/{topic}")


def qr_code(text: str) -> Html:
    """Return the QR code of a text as SVG, dark on light in every theme, as cameras need it."""
    import segno  # noqa: PLC0415 (its import takes longer than the code)

    return Html(segno.make_qr(text, error="m").svg_inline(scale=4, dark="#000", light="#fff"))

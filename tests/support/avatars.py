"""Uploads of avatars as forms."""

from tests.support.client import Client, Reply

BOUNDARY = "the-boundary"

FORM = f"multipart/form-data; boundary={BOUNDARY}"


def form(content: bytes, name: str = "me.png", kind: str = "image/png") -> bytes:
    """A form as a browser sends it."""
    head = f'Content-Disposition: form-data; name="avatar"; filename="{name}"\r\nContent-Type: {kind}\r\n\r\n'
    return f"--{BOUNDARY}\r\n{head}".encode() + content + f"\r\n--{BOUNDARY}--\r\n".encode()


def upload(client: Client, content: bytes, **more: str) -> Reply:
    return client.post("/users/me/avatar", raw=form(content, **more), content_type=FORM)

"""Security headers of pages (OWASP Secure Headers Project)."""

from tests.support.client import Reply

PAGE = {
    "Cache-Control": "no-store",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
STRICT = {  # Content-Security-Policy: limits what a page may load
    "default-src": "'none'",
    "style-src": "'self'",
    "img-src": "'self' data:",
    "form-action": "'self'",
    "frame-ancestors": "'none'",
    "base-uri": "'none'",
}
SCRIPTED = STRICT | {"script-src": "'self'", "connect-src": "'self'"}
DOCUMENT = {"default-src": "'none'", "style-src": "'unsafe-inline'", "frame-ancestors": "'none'", "sandbox": ""}


def policy(reply: Reply) -> dict[str, str]:
    """The directives of a Content-Security-Policy."""
    parts = reply.headers["Content-Security-Policy"].split(";")
    return dict(part.strip().partition(" ")[::2] for part in parts)

"""Cookies of the pages (RFC 6265). They last until the browser is closed."""

from service.api.parameter_types import RequestInfo


def read_cookie(request_info: RequestInfo, name: str) -> str:
    """Return the value of a cookie; empty if the request has none."""
    return request_info.cookies.get(_full_name(request_info, name), "")


def set_cookie(request_info: RequestInfo, name: str, value: str) -> str:
    """Return a `Set-Cookie` header value."""
    secure = "; Secure" if request_info.base_url.startswith("https:") else ""
    return f"{_full_name(request_info, name)}={value}; Path=/; HttpOnly; SameSite=Lax{secure}"


def delete_cookie(request_info: RequestInfo, name: str) -> str:
    """Return a `Set-Cookie` header value that deletes a cookie."""
    return f"{set_cookie(request_info, name, '')}; Max-Age=0"


def _full_name(request_info: RequestInfo, name: str) -> str:
    """With HTTPS, the prefix keeps other hosts of the domain from setting the cookie."""
    return f"__Host-{name}" if request_info.base_url.startswith("https:") else name

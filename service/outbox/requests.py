"""POST requests of the transports, with limits that keep one server from delaying others for long."""

from collections.abc import Container

from service.http_client import HttpServer, Limits, RequestError, retry_after
from service.outbox.transport import DeliveryError

CONNECT_TIMEOUT = 5.0  # seconds
TIMEOUT = 10.0  # seconds, for the whole request
MAX_BYTES = 64 * 1024  # of a response, including its header; its body is not read


def post(server: HttpServer, path: str, content: bytes, headers: dict[str, str], final: Container[int]) -> None:
    """Send JSON, unless `headers` have another type.

    Raises DeliveryError unless the status is 2xx; it is final for the statuses in `final` only.
    """
    limits = Limits(connect=CONNECT_TIMEOUT, total=TIMEOUT, max_bytes=MAX_BYTES)
    try:
        with server.post(path, content, {"Content-Type": "application/json"} | headers, limits) as response:
            status, after = response.status, retry_after(response)
    except RequestError as error:
        raise DeliveryError(str(error)) from None
    if not 200 <= status < 300:
        raise DeliveryError(f"status {status}", is_final=status in final, after=after, status=status)

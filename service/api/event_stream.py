"""Server-sent events: a response that does not end, to which the server adds events (HTML Standard, section 9.2)."""

import msgspec

BEGIN = b"retry: 1000\n\n"  # clients wait for so many milliseconds before they connect again
HEARTBEAT = b":\n\n"  # a comment, which clients ignore


def event(name: str, data: object, id: str = "") -> bytes:
    """Return an event with its data as JSON, which has no line breaks.

    Clients send the last `id` when they connect again.
    """
    position = f"id: {id}\n" if id else ""
    return f"event: {name}\n{position}data: {msgspec.json.encode(data).decode()}\n\n".encode()


class EventStream:
    """A stream of a caller: its first events, and those after each change of one of its topics."""

    caller: str
    topics: frozenset[str]
    until: int  # in ms, when the stream ends
    first: bytes
    has_more = False  # `read` has not returned all events

    def read(self) -> bytes:
        """Return the events since the last call. Raises ApiError at the end of the login, which ends the stream."""
        raise NotImplementedError

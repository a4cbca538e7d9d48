"""A client of event streams that parses them as the HTML Standard does (section 9.2.6)."""

import contextlib
import http.client
import json
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

from tests.support.server_process import TIMEOUT, Served

PATH = "/api/v1/updates/stream"


class Event(NamedTuple):
    """An event that was dispatched."""

    name: str
    data: Any  # decoded JSON
    last_id: str


class EventParser:
    """Parses a stream that arrives in pieces."""

    def __init__(self) -> None:
        self.last_id = ""
        self.retry: int | None = None
        self.comments = 0
        self._rest = b""
        self._name, self._id = "", ""
        self._data: list[str] = []

    def feed(self, received: bytes) -> Iterator[Event]:
        """The events that are complete."""
        *lines, self._rest = (self._rest + received).replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        for line in lines:
            yield from self._line(line.decode())

    def _line(self, line: str) -> Iterator[Event]:
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if not line:
            self.last_id = self._id
            if self._data:
                yield Event(self._name or "message", json.loads("\n".join(self._data)), self.last_id)
            self._name, self._data = "", []
        elif not field:
            self.comments += 1
        elif field == "event":
            self._name = value
        elif field == "data":
            self._data.append(value)
        elif field == "id" and "\0" not in value:
            self._id = value
        elif field == "retry" and value.isdigit():
            self.retry = int(value)


class EventClient:
    """One connection to an event stream."""

    def __init__(self, connection: http.client.HTTPConnection, token: str, last_id: str = "", path: str = PATH) -> None:
        self.parser = EventParser()
        self.parser.last_id = self.parser._id = last_id
        self.connection = connection
        headers = {"Authorization": f"Bearer {token}", "Accept": "text/event-stream"}
        with contextlib.ExitStack() as stack:
            stack.callback(connection.close)  # unless there is a response
            connection.request("GET", path, headers=headers | ({"Last-Event-ID": last_id} if last_id else {}))
            self._socket = connection.sock  # which the connection gives to the response
            self.response = connection.getresponse()
            stack.pop_all()
        self._events: list[Event] = []

    def __enter__(self) -> "EventClient":
        return self

    def __exit__(self, *_: object) -> None:
        self.connection.close()
        self.response.close()

    def read(self) -> bool:
        """Wait for a piece of the stream. Returns False at its end; raises IncompleteRead if it was cut."""
        received = self.response.read1(65536)
        self._events += self.parser.feed(received)
        return bool(received)

    def next(self, name: str = "changes") -> Event:
        """The next event of a kind; others are dropped."""
        limit = time.monotonic() + TIMEOUT
        while time.monotonic() < limit:
            while self._events:
                event = self._events.pop(0)
                if event.name == name:
                    return event
            assert self.read(), "the stream has ended"
        raise AssertionError(f"no event {name} arrived")

    def read_to_end(self) -> None:
        """Wait until the server ends the stream."""
        while self.read():
            pass

    def is_silent(self, seconds: float) -> bool:
        """Whether no event arrives for some seconds."""
        self._socket.settimeout(seconds)
        with contextlib.suppress(TimeoutError):
            while self.read():
                pass
        return not self._events


def wait_until_receiving(streams: list[EventClient], server: Served, session: str, customer: str) -> None:
    """Wait until the processes of new event streams receive signals, which they do when they report a change.

    They begin shortly after the first event of a stream.
    """
    for stream in streams:
        stream.next()
    changed = server.call("PUT", f"/api/v1/chats/{session}/status", {"status": "on_hold"}, customer)
    assert changed.status == 200, changed.json
    for stream in streams:
        stream.next()

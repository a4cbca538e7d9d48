"""Nothing but database statements runs while the write lock is held, whatever clients send."""

import dataclasses
import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode

import pytest
from PIL import Image

from service import db
from service.edge import Edge, Response, run
from service.routes import operations
from service.server.reading import SMALL_BODY
from service.web import build_app
from tests.conftest import Client, at
from tests.postgres import on_sqlite_alone
from tests.test_access import as_form
from tests.transactions import Stretch, metered
from tests.valid import UNLIMITED, Household, Place, Request

pytestmark = on_sqlite_alone

LONGEST = 0.005  # seconds of processor time between two statements of a transaction
TRIES = 3  # of a request before its processor time counts: a busy machine takes longer now and then

TEXT = "Größe É word " * 4_000  # some 60 KiB of UTF-8 that has to be folded for searches
MEMBERS = {f"member {number}": "é" * 200 for number in range(35)}

# Members in place of those of the valid request: the largest that the operation takes, or nearly.
LARGEST: dict[str, dict[str, Any]] = {
    "send_message": {"content": {"text": TEXT}},
    "edit_message": {"content": {"text": TEXT + "."}},
    "submit_feedback": {"description": "é" * 10_000, "device_info": MEMBERS},
    "create_event": {"notes": "é" * 10_000},
    "update_event": {"notes": "è" * 10_000},
    "update_profile": {"location": [2**62] * 1_000, "display_name": "é" * 100},
    "update_settings": {"extra": {**MEMBERS, "more": ["é" * 100] * 100}},
    "create_data_share": {"allowed_tools": [f"tool {number}" for number in range(100)], "scope_meta": [2**62] * 1_000},
    "change_chat": {"act": "send", "text": TEXT},
    "change_feedback": {"act": "give", "description": "é" * 10_000},
    "change_events": {"act": "add", "notes": "é" * 10_000},
}


def picture() -> bytes:
    """A small file that takes long to read."""
    stream = io.BytesIO()
    Image.new("1", (3990, 3990)).save(stream, "PNG", optimize=True)
    return stream.getvalue()


def enlarged(request: Request) -> Request:
    """The request with the largest body."""
    if request.operation.accepts == "multipart/form-data":
        form = as_form({"avatar": picture()})
        return request._replace(body=form["raw"], content_type=form["content_type"])
    members = LARGEST[request.operation.name]
    if request.operation.accepts == "application/json":
        return request._replace(body=json.dumps(json.loads(request.body) | members).encode())
    return request._replace(body=urlencode(dict(parse_qsl(request.body.decode())) | members).encode())


class AsServed:
    """The application as the server runs it: what writes, and has a small body, in a group commit."""

    def __init__(self, application: Edge) -> None:
        self.application = application

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> list[bytes]:
        operation = self.application.find(environ["REQUEST_METHOD"], environ["PATH_INFO"]).operation
        steps = self.application.steps(environ)
        is_grouped = operation and operation.runs == "write" and int(environ["CONTENT_LENGTH"]) <= SMALL_BODY
        response: Response = run(self.in_group(steps) if is_grouped else steps)
        start_response(response.status, response.headers)
        return [response.body]

    def in_group(self, steps: Any) -> Any:
        try:
            next(steps)
            with db.group_commit():
                next(steps)
            next(steps)
        except StopIteration as end:
            return end.value
        yield


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    settings = dataclasses.replace(at(tmp_path / "data"), **UNLIMITED)
    household = Household(settings, tmp_path, role="admin")
    yield Place(household, Client(AsServed(build_app(operations(), settings))))
    db.close_database()


def longest_stretch(place: Place, request: Request) -> tuple[Stretch, int]:
    """The longest stretch without a statement in the transactions of a request; the status of the first response.

    Of several tries, the one with the shortest.
    """
    statuses, found = list[int](), list[Stretch]()
    with metered() as meter:
        while len(found) < TRIES and (not found or found[-1].seconds > LONGEST):
            statuses.append(place.ask(request).status)
            found.append(meter.longest())
    return min(found), statuses[0]


REFUSED = {"answer_consent", "exchange_code", "sign_in_browser"}  # a valid request needs a page, or a code, before it

LAST = ("publish_bot", "change_bot", "delete_message", "end_login", "sign_out_browser")  # others need what they end
ALONE = ("change_password", "log_out")  # after their twins in the console, these are refused


@pytest.mark.parametrize("alone", ["", *ALONE])
def test_nothing_takes_the_processor_between_two_statements_of_a_transaction(alone: str, place: Place) -> None:
    writing = [one for one in operations() if one.method != "GET" and (one.name == alone or not alone)]
    writing = [one for one in writing if one.name == alone or one.name not in ALONE]
    requests = [
        place.household.request(operation)
        for operation in sorted(writing, key=lambda one: LAST.index(one.name) if one.name in LAST else -1)
    ]
    requests = [enlarged(one) for one in requests if has_larger(one)] + requests
    offenders, refused = dict[tuple[str, int], Stretch](), set[str]()
    for request in requests:
        stretch, status = longest_stretch(place, request)
        refused |= {request.operation.name} if status >= 400 else set()
        if stretch.seconds > LONGEST:
            offenders[request.operation.name, len(request.body)] = stretch
    assert not offenders
    assert refused <= REFUSED


def has_larger(request: Request) -> bool:
    return request.operation.name in LARGEST or request.operation.accepts == "multipart/form-data"


def test_the_meter_finds_what_takes_the_processor(place: Place) -> None:
    with metered() as meter, db.write("something"):
        db.database.execute_sql("SELECT 1")
        sum(range(1_000_000))
    stretch = meter.longest()
    assert stretch.seconds > LONGEST and stretch.before == "SELECT 1" and stretch.after == "COMMIT"

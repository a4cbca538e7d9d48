"""Nothing but database statements runs while the write lock is held, whatever clients send."""

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from service import db
from service.edge import Edge, Response, run
from service.routes import operations
from service.server.reading import SMALL_BODY
from service.web import build_app
from tests.conftest import Client, at
from tests.postgres import on_sqlite_alone
from tests.transactions import Stretch, metered
from tests.valid import UNLIMITED, Household, Place, Request, enlarged, has_larger, writing_operations

pytestmark = on_sqlite_alone

LONGEST = 0.005  # seconds of processor time between two statements of a transaction
TRIES = 3  # of a request before its processor time counts: a busy machine takes longer now and then


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

ALONE = ("change_password", "log_out")  # after their twins in the console, these are refused


@pytest.mark.parametrize("alone", ["", *ALONE])
def test_nothing_takes_the_processor_between_two_statements_of_a_transaction(alone: str, place: Place) -> None:
    writing = [one for one in writing_operations() if (one.name == alone if alone else one.name not in ALONE)]
    requests = [place.household.request(operation) for operation in writing]
    requests = [enlarged(one) for one in requests if has_larger(one)] + requests
    offenders, refused = dict[tuple[str, int], Stretch](), set[str]()
    for request in requests:
        stretch, status = longest_stretch(place, request)
        refused |= {request.operation.name} if status >= 400 else set()
        if stretch.seconds > LONGEST:
            offenders[request.operation.name, len(request.body)] = stretch
    assert not offenders
    assert refused <= REFUSED


def test_the_meter_finds_what_takes_the_processor(place: Place) -> None:
    with metered() as meter, db.write("something"):
        db.database.execute_sql("SELECT 1")
        sum(range(1_000_000))
    stretch = meter.longest()
    assert stretch.seconds > LONGEST and stretch.before == "SELECT 1" and stretch.after == "COMMIT"

"""Only database statements run while the write lock is held, for all requests."""

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from service import db
from service.http.application import build_app
from service.http.middleware import Middleware, WsgiResponse, run
from service.routes import operations
from service.server.http_parser import SMALL_BODY
from tests.support.client import Client
from tests.support.installation import settings_at
from tests.support.transaction_time import Interval, measured
from tests.support.valid_requests import (
    UNLIMITED,
    Request,
    SampleInstallation,
    SampleService,
    enlarged,
    has_larger,
    writing_operations,
)

pytestmark = pytest.mark.sqlite_only

MAX_SECONDS = 0.005  # seconds of processor time between two statements of a transaction
ATTEMPTS = 3  # the shortest of these counts, since a busy machine is slower at times


class ServedApplication:
    """The application as the server runs it: writes with a small body run in a group commit."""

    def __init__(self, application: Middleware) -> None:
        self.application = application

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> list[bytes]:
        operation = self.application.find(environ["REQUEST_METHOD"], environ["PATH_INFO"]).operation
        steps = self.application.steps(environ)
        is_grouped = operation and operation.runs == "write" and int(environ["CONTENT_LENGTH"]) <= SMALL_BODY
        response: WsgiResponse = run(self.in_group(steps) if is_grouped else steps)
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
def sample_service(tmp_path: Path) -> Iterator[SampleService]:
    settings = dataclasses.replace(settings_at(tmp_path / "data"), **UNLIMITED)
    installation = SampleInstallation(settings, tmp_path, role="admin")
    yield SampleService(installation, Client(ServedApplication(build_app(operations(), settings))))
    db.close_database()


def longest_stretch(sample_service: SampleService, request: Request) -> tuple[Interval, int]:
    """The longest stretch without a statement in the transactions of a request; the status of the first response.

    Of several attempts, the one with the shortest.
    """
    statuses, found = list[int](), list[Interval]()
    with measured() as meter:
        while len(found) < ATTEMPTS and (not found or found[-1].seconds > MAX_SECONDS):
            statuses.append(sample_service.send(request).status)
            found.append(meter.longest())
    return min(found), statuses[0]


REFUSED = {
    "answer_consent",
    "answer_device",
    "create_first_admin",
    "exchange_code",
    "introspect_data_share",
    "sign_in_browser",
    "change_backups",
    "download_backup",
    *("request_email_verification", "request_new_password", "set_new_password", "unsubscribe_user", "verify_email"),
    *("renew_push_topic", "change_push_address", "subscribe_browser", "change_push_browser"),
    *("suggest_reply", "suggest_text", "store_translation", "reveal_message", "show_read_once", "rate_chat_session"),
}  # a valid request needs a page, a code, a backup, e-mail, a push server, an AI, a read-once message or an ended chat

SEPARATE = (
    "change_password",
    "delete_user_account",
    "edit_answer",
    "edit_canned_reply",
    "log_out",
)  # fail after another operation, such as that of the console


@pytest.mark.parametrize("separate", ["", *SEPARATE])
@pytest.mark.slow
def test_transactions_use_little_processor_time_between_statements(
    separate: str, sample_service: SampleService
) -> None:
    writing = [one for one in writing_operations() if (one.name == separate if separate else one.name not in SEPARATE)]
    requests = [sample_service.installation.request(operation) for operation in writing]
    requests = [enlarged(one) for one in requests if has_larger(one)] + requests
    offenders, refused = dict[tuple[str, int], Interval](), set[str]()
    for request in requests:
        stretch, status = longest_stretch(sample_service, request)
        refused |= {request.operation.name} if status >= 400 else set()
        if stretch.seconds > MAX_SECONDS:
            offenders[request.operation.name, len(request.body)] = stretch
    assert not offenders
    assert refused <= REFUSED


def test_meter_measures_processor_time_between_statements(sample_service: SampleService) -> None:
    with measured() as meter, db.write("something"):
        db.database.execute_sql("SELECT 1")
        sum(range(1_000_000))
    stretch = meter.longest()
    assert stretch.seconds > MAX_SECONDS and stretch.before == "SELECT 1" and stretch.after == "COMMIT"

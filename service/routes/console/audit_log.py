"""The page of the audit log, for admins."""

import threading

import msgspec
from msgspec import Struct

from service.api.operations import MAX_FORM, Routes
from service.api.parameter_types import Cursor, HtmlPage
from service.console import layout
from service.console.layout import NO_FAILURE, ConsoleForm, FormFailure
from service.console.people import emails_of, find_person
from service.db import Page
from service.errors import Busy, InvalidBody
from service.models import AuditLog
from service.models.audit_log import KINDS, BrokenChain, VerificationTimeout
from service.models.callers import Caller
from service.translation import gettext
from service.translation.numbers import format_number

routes = Routes("Console", prefix="", scope="console", extension=True, produces="text/html", admin_only=True)

VERIFY_SECONDS = 20.0  # time limit of a verification: it occupies one of the threads of `--threads`

_verifying = threading.Lock()  # one verification at a time in a process


class AuditLogQuery(Struct):
    """Filters of the audit log. `person` is an e-mail address or an identifier; times are local."""

    kind: str = ""
    person: str = ""
    since: str = ""
    until: str = ""
    cursor: Cursor = Cursor()


class VerifyForm(ConsoleForm, kw_only=True):
    """Nothing but the CSRF token: the whole log is verified."""


@routes.get("/console/audit", statuses=(200, 400, 401, 403))
def show_audit_log(caller: Caller, query: AuditLogQuery) -> HtmlPage:
    """Show the page of the audit log (admins only)."""
    return audit_log_page(caller, query)


def audit_log_page(
    caller: Caller, query: AuditLogQuery, failure: FormFailure = NO_FAILURE, verdict: str = ""
) -> HtmlPage:
    """Return the page of the audit log; `verdict` is the result of a verification."""
    page: Page[AuditLog] = Page(b"[]", ())
    try:
        page = _entries(caller, query)
    except InvalidBody as error:
        failure = FormFailure(error)
    entries = msgspec.json.decode(page.rows)
    ids = {entry[name] for entry in entries for name in ("actor_id", "subject_id")}
    return layout.show(
        caller,
        "audit-log",
        gettext("Audit log"),
        page=page,
        query=query,
        failure=failure,
        verdict=verdict,
        kinds=KINDS,
        emails=emails_of(ids),
        encode=lambda details: layout.clip(msgspec.json.encode(details).decode(), 500),
    )


@routes.post("/console/audit", statuses=(200, 400, 401, 403), max_body=MAX_FORM)
@layout.form_handler(audit_log_page, AuditLogQuery)
def verify_audit_log(caller: Caller, body: VerifyForm) -> HtmlPage:
    """Verify the hash of every entry of the audit log (admins only)."""
    return audit_log_page(caller, AuditLogQuery(), verdict=verify())


def verify() -> str:
    """Return the result of a verification as a sentence. Raises Busy while another one runs, and InvalidBody."""
    if not _verifying.acquire(blocking=False):
        raise Busy("Another verification of the audit log is in progress; try again in a moment.")
    try:
        head = AuditLog.verify(time_limit=VERIFY_SECONDS)
        return gettext("{number} entries verified. Head: {head}", number=format_number(head.position), head=head)
    except BrokenChain as broken:
        raise InvalidBody(gettext("The audit log is not valid: {error}.", error=broken)) from None
    except VerificationTimeout:
        raise InvalidBody(
            gettext(
                "The audit log is too long to be verified here within {seconds} seconds. "
                "Run the command `cx-service audit verify`.",
                seconds=f"{VERIFY_SECONDS:.0f}",
            )
        ) from None
    finally:
        _verifying.release()


def _entries(caller: Caller, query: AuditLogQuery) -> Page[AuditLog]:
    """Return the entries that the filters select. Raises InvalidBody."""
    times = layout.times_of(caller)
    bounds = {}
    for name in ("since", "until"):
        try:
            bounds[name] = times.read(getattr(query, name)) if getattr(query, name) else ""
        except ValueError as error:
            raise InvalidBody(f"$.{name}: {error}") from None
    if query.kind and query.kind not in KINDS:
        raise InvalidBody("$.action: no such action")
    person_id = find_person(query.person) if query.person.strip() else ""
    return AuditLog.list_page(query.cursor, layout.PAGE_ROWS, kind=query.kind, person_id=person_id, **bounds)

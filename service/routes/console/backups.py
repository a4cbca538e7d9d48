"""The page of backups, for admins."""

import os
from contextlib import ExitStack
from typing import Literal

from msgspec import Struct

from service.api.operations import MAX_FORM, Routes
from service.api.parameter_types import Download, HtmlPage, Redirect
from service.console import layout
from service.console.layout import NO_FAILURE, ConsoleForm, FormFailure
from service.console.times import age_of
from service.db import write
from service.errors import BackupNotFound, NoSpaceForBackup
from service.models import AuditLog
from service.models.audit_log import Kind
from service.models.callers import Caller
from service.operate import stored_backups
from service.settings import Settings
from service.translation import gettext

routes = Routes("Console", prefix="", scope="console", extension=True, admin_only=True)


class BackupsQuery(Struct):
    """The result of the previous form, see `layout.SUCCESS_MESSAGES`."""

    done: str = ""


class BackupForm(ConsoleForm, kw_only=True):
    """A backup to make or to delete."""

    act: Literal["make", "delete"]
    name: str = ""


class DownloadForm(ConsoleForm, kw_only=True):
    """A backup to download."""

    name: str = ""


@routes.get("/console/backups", statuses=(200, 400, 401, 403), produces="text/html")
def show_backups(caller: Caller, query: BackupsQuery, settings: Settings) -> HtmlPage:
    """Show the page of backups (admins only)."""
    return backups_page(caller, query, settings)


def backups_page(
    caller: Caller, query: BackupsQuery, settings: Settings, failure: FormFailure = NO_FAILURE
) -> HtmlPage:
    """Return the page of backups."""
    state = stored_backups.state(settings)
    return layout.show(
        caller,
        "backups",
        gettext("Backups"),
        query=query,
        done=query.done,
        failure=failure,
        state=state,
        kept=stored_backups.KEPT,
        folder=stored_backups.folder_of(settings),
        age=age_of,
    )


@routes.post(
    "/console/backups",
    statuses=(303, 400, 401, 403, 404),
    max_body=MAX_FORM,
    errors=(BackupNotFound, NoSpaceForBackup),
    produces="text/html",
)
@layout.form_handler(backups_page, BackupsQuery)
def change_backups(caller: Caller, body: BackupForm, settings: Settings) -> Redirect:
    """Make or delete a backup (admins only)."""
    if body.act == "make":
        stored_backups.begin(settings, lambda: record("backup_created", caller, ""))
        return Redirect("/console/backups?done=backup_begun")
    with stored_backups.open_backup(settings, body.name):
        record("backup_deleted", caller, body.name)
        stored_backups.delete(settings, body.name)
    return Redirect("/console/backups?done=deleted")


@routes.post(
    "/console/backups/download",
    statuses=(200, 400, 401, 403, 404),
    max_body=MAX_FORM,
    errors=(BackupNotFound,),
    produces="application/vnd.sqlite3",
)
@layout.form_handler(backups_page, BackupsQuery)
def download_backup(caller: Caller, body: DownloadForm, settings: Settings) -> Download:
    """Download a backup (admins only)."""
    with ExitStack() as stack:
        file = stack.enter_context(stored_backups.open_backup(settings, body.name))
        record("backup_downloaded", caller, body.name)
        stack.pop_all()  # the server closes the file
    return Download(file, os.fstat(file.fileno()).st_size, body.name)


def record(kind: Kind, caller: Caller, name: str) -> None:
    """Record what an admin does with a backup in the audit log."""
    with write():
        AuditLog.record(kind, caller.id, name)

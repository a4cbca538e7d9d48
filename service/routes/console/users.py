"""The pages on which admins list, add, change and delete users, and end their login sessions."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct

from service.api.operations import MAX_FORM, Routes
from service.api.parameter_types import Cursor, HtmlPage, Redirect
from service.api.schemas import BodyColumns
from service.auth import account_mail, credentials, passwords
from service.console import display_names, layout
from service.console.layout import NO_FAILURE, ConsoleForm, FormFailure, OptionalUuid
from service.db import Position
from service.errors import AppNotFound, InvalidBody, LastAdmin, MailNotConfigured, UserExists
from service.fields import SqlValue
from service.models import App, Delivery, LoginSession, User
from service.models.callers import Caller
from service.models.user_deletion import delete_user
from service.models.users import Role
from service.translation import gettext, gettext_noop

routes = Routes("Console", prefix="", scope="console", extension=True, produces="text/html", admin_only=True)

NAMES = BodyColumns(User, "first_name", "last_name", "display_name", partial=True)
MAX_APPS = 100  # to choose from
ROLES = {"user": gettext_noop("Customer"), "agent": gettext_noop("Agent"), "admin": gettext_noop("Admin")}


class UsersPageQuery(Struct):
    """Filters of the list of users."""

    search: Annotated[str, Meta(max_length=200)] = ""
    role: Literal["", "user", "agent", "admin"] = ""
    state: Literal["", "enabled", "disabled"] = ""
    cursor: Cursor = Cursor()
    done: str = ""


class UserPageQuery(Struct):
    """The position in the login sessions of a user."""

    cursor: Cursor = Cursor()
    done: str = ""


class AccountMembers(ConsoleForm, kw_only=True):
    """The members of a user that admins set."""

    role: Role = "user"
    app_id: OptionalUuid = ""
    first_name: str = ""
    last_name: str = ""
    display_name: str = ""


class NewUserForm(AccountMembers, kw_only=True):
    """A user to add, with a password, or to invite."""

    act: Literal["add", "invite"] = "add"
    email: str = ""
    password: str = ""


class UserForm(AccountMembers, kw_only=True):
    """Changes of a user, or a further invitation."""

    act: Literal["save", "disable", "enable", "invite"]


class LoginsForm(ConsoleForm, kw_only=True):
    """A login session to end; without an identifier, all of them."""

    id: OptionalUuid = ""


class DeletionForm(ConsoleForm, kw_only=True):
    """The e-mail address of the user, which confirms the deletion."""

    email: str = ""


@routes.get("/console/users", statuses=(200, 400, 401, 403))
def show_users(caller: Caller, query: UsersPageQuery) -> HtmlPage:
    """Show the page of users (admins only)."""
    return users_page(caller, query)


def users_page(caller: Caller, query: UsersPageQuery, failure: FormFailure = NO_FAILURE) -> HtmlPage:
    """Return the page of users."""
    page = User.list_page(
        query.cursor, layout.PAGE_ROWS, search=query.search, role=query.role or None, state=query.state or None
    )
    rows = msgspec.json.decode(page.rows)
    return layout.show(
        caller,
        "users",
        gettext("Users"),
        page=page,
        query=query,
        done=query.done,
        failure=without_password(failure),
        apps=apps_to_choose(caller),
        app_names={id: profile.name for id, profile in display_names.apps(row["app_id"] for row in rows).items()},
        profiles=display_names.users(row["id"] for row in rows),
        roles={role: gettext(name) for role, name in ROLES.items()},
        sends_mail=Delivery.is_configured("email"),
        min_password_length=passwords.MIN_LENGTH,
    )


@routes.post(
    "/console/users",
    statuses=(303, 400, 401, 403, 404),
    max_body=MAX_FORM,
    errors=(AppNotFound, MailNotConfigured, UserExists),
)
@layout.form_handler(users_page, UsersPageQuery)
def add_user(caller: Caller, body: NewUserForm) -> Redirect:
    """Add a user (admins only)."""
    columns = {"email": credentials.read_email(body.email), **read_members(body)}
    if body.act == "invite":
        add = lambda: account_mail.invite(caller.id, **columns).id  # noqa: E731
    else:
        columns["password_hash"] = credentials.hash_new_password(body.password)
        add = lambda: User.add(caller.id, **columns).id  # noqa: E731
    id, done = layout.run_once(caller, "user", replace_password(body), add), {"invite": "invited"}.get(body.act)
    return Redirect(f"/console/users/{id}?done={done or 'user_added'}")


@routes.get("/console/users/{id}", statuses=(200, 400, 401, 403, 404))
def show_user(caller: Caller, user: User, query: UserPageQuery) -> HtmlPage:
    """Show the page of a user (admins only)."""
    return user_page(caller, user, query)


def user_page(caller: Caller, user: User, query: UserPageQuery, failure: FormFailure = NO_FAILURE) -> HtmlPage:
    """Return the page of a user."""
    account = msgspec.to_builtins(User.get_by_id(user.id).account)
    return layout.show(
        caller,
        "user",
        display_names.user_name(user) or user.email,
        active="users",
        page=LoginSession.list_open_of(user.id, query.cursor, layout.PAGE_ROWS, current_id=caller.session_id),
        query=query,
        done=query.done,
        failure=failure,
        account=account,
        current=account | failure.values,
        apps=apps_to_choose(caller, account["app_id"]),
        client_name=display_names.client_name,
        may_be_invited=Delivery.is_configured("email") and not (user.password_hash or user.is_disabled),
        roles={role: gettext(name) for role, name in ROLES.items()},
    )


@routes.post(
    "/console/users/{id}",
    statuses=(303, 400, 401, 403, 404),
    max_body=MAX_FORM,
    errors=(AppNotFound, LastAdmin, MailNotConfigured),
)
@layout.form_handler(user_page, UserPageQuery)
def edit_user(caller: Caller, user: User, body: UserForm) -> Redirect:
    """Change, disable, enable or invite a user (admins only)."""
    if body.act == "invite":
        account_mail.invite_again(user)
        return Redirect(f"/console/users/{user.id}?done=invited")
    user.change(caller.id, read_members(body) if body.act == "save" else {"is_disabled": body.act == "disable"})
    return Redirect(f"/console/users/{user.id}?done=changed")


@routes.post("/console/users/{id}/logins", statuses=(303, 400, 401, 403, 404), max_body=MAX_FORM)
@layout.form_handler(user_page, UserPageQuery)
def end_user_logins(caller: Caller, user: User, body: LoginsForm) -> Redirect:
    """End one or all of the login sessions of a user (admins only)."""
    LoginSession.end_as_admin(caller.id, user.id, body.id)
    return Redirect(f"/console/users/{user.id}?done=ended")


@routes.post("/console/users/{id}/deletion", statuses=(303, 400, 401, 403, 404), max_body=MAX_FORM, errors=(LastAdmin,))
@layout.form_handler(user_page, UserPageQuery)
def delete_user_account(caller: Caller, user: User, body: DeletionForm) -> Redirect:
    """Delete a user and all of the user's data (admins only)."""
    if body.email.strip().lower() != user.email.lower():
        raise InvalidBody("To delete the user, enter the e-mail address of the user.")
    delete_user(user, caller.id)
    return Redirect("/console/users?done=deleted")


def read_members(body: AccountMembers) -> dict[str, SqlValue]:
    """Return the columns of a user. Raises InvalidBody."""
    names = NAMES.read({name: layout.clean_text(getattr(body, name)) for name in NAMES.columns})
    return {**names, "role": body.role, "app_id": body.app_id if body.role == "agent" and body.app_id else None}


def replace_password(body: NewUserForm) -> NewUserForm:
    """Return a form without its password, of which no fingerprint is stored."""
    return msgspec.structs.replace(body, password="")


def without_password(failure: FormFailure) -> FormFailure:
    """Return a failure without the password: a page never contains one."""
    return FormFailure(failure.error, {name: value for name, value in failure.values.items() if name != "password"})


def apps_to_choose(caller: Caller, current_id: str | None = None) -> dict[str, str]:
    """Return the names of the first apps, and of the current one, by identifier."""
    rows = msgspec.json.decode(App.staffed_by(caller, Position(), MAX_APPS).rows)
    found = {row["id"]: row["name"] or gettext("App") for row in rows}
    current = App.find(current_id) if current_id else None
    return found | ({current.id: current.name or gettext("App")} if current else {})

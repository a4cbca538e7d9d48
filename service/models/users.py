"""Users: their profiles, settings and passwords."""

from collections.abc import Callable, Sequence
from typing import ClassVar, Literal, Self, get_args

import msgspec
import peewee
from msgspec import Struct

from service import clock, preferences, validators
from service.db import Page, Position, Query, Table, compiled, contains, render, search_pattern, write
from service.errors import AppNotFound, Forbidden, InvalidBody, LastAdmin, UserExists, UserNotFound
from service.fields import (
    EXPORT_ONLY,
    INTERNAL,
    OWNER,
    Boolean,
    Choice,
    DateTime,
    Document,
    Identifier,
    Integer,
    Integers,
    SqlValue,
    Text,
    Timestamp,
    Uuid,
    WireType,
    compact_json,
    reference,
)
from service.models.apps import App
from service.models.audit_log import OPERATOR, AuditLog
from service.models.callers import Caller, is_staff
from service.models.change_tracking import ChangeTracked
from service.models.logins import LoginSession
from service.models.webhooks import emit
from service.types import JsonObject

Role = Literal["user", "agent", "admin"]
State = Literal["enabled", "disabled"]
ROLES: tuple[str, ...] = get_args(Role)
USER_TYPES = {"user": "customer", "agent": "staff", "admin": "staff"}  # the user type of new users by role
ADMINS = "admins"  # the name of the lock of writes that may reduce the number of active admins
SEARCH_COLUMNS = ("email", "first_name", "last_name", "display_name")
SEPARATOR = "\nA\n"  # folded texts have no capital letters, so no match extends over two columns


def search_text_of(columns: dict[str, SqlValue]) -> str:
    """Return the search text of the values of SEARCH_COLUMNS."""
    return SEPARATOR.join(validators.fold(columns.get(name) or "") for name in SEARCH_COLUMNS)


class Account(Struct):
    """A user as shown to admins."""

    id: Uuid
    email: str
    first_name: str
    last_name: str
    display_name: str
    role: Role
    app_id: Uuid | None  # of an agent
    is_disabled: bool
    created_at: DateTime
    last_login_at: DateTime | None
    profile_image: str


class User(ChangeTracked, Table):
    """A user: a customer, an agent or an admin."""

    get_for_errors = (UserNotFound, Forbidden)
    id = Identifier(primary_key=True, default=clock.uuid)
    email = Text(
        validators.MAX_EMAIL_LENGTH, min_length=1, validator=validators.email_address, unique=True, default=None
    )
    first_name = Text(100)
    last_name = Text(100)
    auth_provider = Text(64, default="password")
    created_at = Timestamp(default=clock.timestamp)
    last_login_at = Timestamp(null=True)
    is_anonymous = Boolean(default=False)
    is_verified = Boolean(default=False)
    location = Integers()
    onboarding_completed = Boolean(default=False)
    profile_image = Text(2048)
    role = Choice(*ROLES)
    user_type = Text(64, default="customer")
    app_id = reference("app", null=True, visibility=EXPORT_ONLY)
    display_name = Text(100, visibility=OWNER)
    phone = Text(20, validator=validators.phone_number, visibility=OWNER)
    locale = Text(64, validator=validators.language_tag, visibility=OWNER)
    timezone = Text(64, validator=validators.time_zone, visibility=OWNER)
    settings = Document(validator=preferences.check, visibility=EXPORT_ONLY)
    revision = Integer(default=0, visibility=INTERNAL, index=True)  # of the user's notifications
    is_disabled = Boolean(default=False, visibility=EXPORT_ONLY)
    password_hash = Text(visibility=EXPORT_ONLY)
    search_text = Text(visibility=INTERNAL)  # see `search_text_of`

    also_accepts: ClassVar[dict[str, WireType]] = {"password": str}
    # Called with the identifier of a user whose role, app or access has changed, inside the write that changes it.
    after_staff_change: ClassVar[list[Callable[[str], object]]] = []

    @classmethod
    def from_import(cls, given: dict[str, SqlValue]) -> dict[str, SqlValue]:
        """Return the search text, and the password's hash; the import has hashed `password` already."""
        more = {"password_hash": given["password"]} if "password" in given else {}
        return {"search_text": search_text_of(given), **more}

    def save(self, force_insert: bool = False, only: Sequence[peewee.Field] | None = None) -> int:
        self.search_text = search_text_of(self.__data__)
        return super().save(force_insert, only)

    @classmethod
    def get_for(cls, caller: Caller, id: str, *above: Table) -> Self:
        """Return the user, for admins. Raises UserNotFound or Forbidden."""
        user = cls.find(id)
        if user is None:
            raise UserNotFound
        if caller.role != "admin":
            raise Forbidden(not_found=UserNotFound)
        return user

    @classmethod
    def by_email(cls, email: str) -> "User | None":
        """Return the user with an e-mail address, in any case and Unicode form."""
        return cls.get_or_none(cls.email == validators.fold_email(email))

    def is_staff(self, app_id: str) -> bool:
        """Return whether the user is staff of an app."""
        return is_staff(self.role, self.app_id, app_id)

    @classmethod
    def staff_of(cls, app_id: SqlValue) -> peewee.Expression:
        """Return the condition that `is_staff` checks, as SQL."""
        staff: peewee.Expression = (cls.role == "admin") | ((cls.role == "agent") & (cls.app_id == app_id))
        return staff

    @classmethod
    def staff_changed(cls, id: str) -> None:
        """Apply a change of a user's role, app or access to other tables, inside the write that changes it."""
        for apply in cls.after_staff_change:
            apply(id)

    @classmethod
    def open_logins(cls, now: SqlValue = None) -> "peewee.ModelSelect[LoginSession]":
        """Return the query of all open login sessions of enabled users, with role and app of their users."""
        joined = LoginSession.select(LoginSession, cls.role, cls.app_id).join(cls, on=(LoginSession.user_id == cls.id))
        return joined.where(LoginSession.is_open(now), ~cls.is_disabled)

    @classmethod
    def end_logins_if_password_differs(cls, id: str, password_hash: str) -> None:
        """End a user's login sessions if `password_hash` is about to replace a different one."""
        if cls.select().where(cls.id == id, cls.password_hash != password_hash).exists():
            LoginSession.end_all(id)

    @classmethod
    def list_page(
        cls,
        after: Position,
        limit: int,
        *,
        search: str = "",
        role: str | None = None,
        app_id: str = "",
        state: State | None = None,
    ) -> Page[Account]:
        """Return a page of the users by e-mail address. `search` finds text in address and names."""
        found = cls.select(*(getattr(cls, name) for name in Account.__struct_fields__)).order_by(cls.email)
        if role:
            found = found.where(cls.role == role)
        if app_id:
            found = found.where(cls.app_id == app_id)
        if state:
            found = found.where(cls.is_disabled == (state == "disabled"))
        if search.strip():
            found = found.where(contains(cls.search_text, search_pattern(validators.fold(search.strip()))))
        if after.key:
            found = found.where(cls.email > after.key[0])
        rows = list(found.limit(limit + 1))
        accounts = [user.account for user in rows[:limit]]
        return Page(msgspec.json.encode(accounts), (accounts[-1].email,) if len(rows) > limit else ())

    @property
    def account(self) -> Account:
        """The user as shown to admins."""
        return Account(**{name: getattr(self, name) for name in Account.__struct_fields__})

    @classmethod
    def add(cls, actor_id: str, *, email: str, password_hash: str, role: str = ROLES[0], **columns: SqlValue) -> "User":
        """Create a user. Raises UserExists, AppNotFound or InvalidBody."""
        user = cls(email=email, password_hash=password_hash, role=role, user_type=USER_TYPES[role], **columns)
        with write(email):
            _require_valid_app(role, user.app_id)
            if cls.by_email(email):
                raise UserExists(f"The user {email} already exists.")
            user.save(force_insert=True)
            emit("user.created", user.id, user_id=user.id, role=role, app_id=user.app_id)
            AuditLog.record("user_added", actor_id, user.id, role=role, app=user.app_id)
        return user

    def change(self, actor_id: str, columns: dict[str, SqlValue]) -> Account:
        """Set role, app, names or `is_disabled`, and return the user. A user who is disabled is signed out.

        Raises InvalidBody, AppNotFound, LastAdmin, or UserNotFound if the user was deleted in the meantime.
        """
        with write(self.id, ADMINS):
            user = User.get_or_none(User.id == self.id)
            if user is None:
                raise UserNotFound
            columns = _with_columns_of_role(user, columns)
            changed = {name: value for name, value in columns.items() if getattr(user, name) != value}
            if {"role", "is_disabled"} & changed.keys():
                user.require_other_admin(changed)
            if changed:
                after = search_text_of({**user.__data__, **changed})
                User.update(**changed, search_text=after).where(User.id == user.id).execute()
                _record_changes(actor_id, user, changed)
            return User.get_by_id(user.id).account

    def require_other_admin(self, changed: dict[str, SqlValue] | None = None) -> None:
        """Raise LastAdmin if the user is the only active admin and would not be one after a change, or a deletion.

        Call it inside a write that locks ADMINS.
        """
        remains = {"role": self.role, "is_disabled": self.is_disabled, **changed} if changed else {}
        is_admin = self.role == "admin" and not self.is_disabled
        if not is_admin or (remains.get("role") == "admin" and not remains["is_disabled"]):
            return
        if not User.select().where(User.role == "admin", ~User.is_disabled, User.id != self.id).exists():
            raise LastAdmin

    def change_password(self, password_hash: str) -> None:
        """Change the password as an operator, and end every login session."""
        with write(self.id):
            User.update(password_hash=password_hash).where(User.id == self.id).execute()
            LoginSession.end_all(self.id)
            AuditLog.record("password_changed", OPERATOR, self.id)

    def disable(self) -> None:
        """Disable the user as an operator, and end every login session."""
        with write(self.id):
            disabled = User.update(is_disabled=True).where(User.id == self.id, ~User.is_disabled).execute()
            LoginSession.end_all(self.id)
            User.staff_changed(self.id)
            if disabled:
                AuditLog.record("user_disabled", OPERATOR, self.id)

    def enable(self) -> None:
        """Enable a disabled user as an operator."""
        with write(self.id):
            if User.update(is_disabled=False).where(User.id == self.id, User.is_disabled).execute():
                AuditLog.record("user_enabled", OPERATOR, self.id)

    @classmethod
    def update_profile(cls, id: str, columns: dict[str, SqlValue]) -> msgspec.Raw:
        """Set columns of a user. Return the user, rendered."""
        with write(id):
            if columns:
                cls.update(columns).where(cls.id == id).execute()
            if columns.keys() & set(SEARCH_COLUMNS):
                cls.update(search_text=search_text_of(cls.get_by_id(id).__data__)).where(cls.id == id).execute()
            return render(cls, id)

    @classmethod
    def preferences_of(cls, id: str) -> JsonObject:
        """Return a user's settings with all defaults filled in. The document is shared: do not modify it."""
        return preferences.read(cls._stored_preferences(id))

    @classmethod
    def chosen_language(cls, id: str) -> str:
        """Return the language that a user has chosen for the pages; empty if there is none."""
        return preferences.chosen_language(cls._stored_preferences(id))

    @classmethod
    def patch_preferences(cls, id: str, patch: JsonObject) -> JsonObject:
        """Merge a patch into a user's settings, and return them. Raises InvalidBody; then nothing changes."""
        patch = {name: value for name, value in patch.items() if name != "updated_at"}
        with write(id):
            before = cls._stored_preferences(id)
            after = preferences.check(preferences.merge(msgspec.json.decode(before), patch))
            if compact_json(after) != before:  # compared as texts, because 1 == True in Python
                after["updated_at"] = clock.timestamp()
                cls.update(settings=compact_json(after)).where(cls.id == id).execute()
            return preferences.complete(after)

    @classmethod
    def _stored_preferences(cls, id: str) -> str:
        return str(_settings(id).value())

    class Meta:
        indexes = ((("role", "email"), False), (("app_id", "email"), False))


def _require_valid_app(role: str, app_id: str | None) -> None:
    """Raise InvalidBody for an agent without an app or another user with one, and AppNotFound."""
    if role == "agent" and not app_id:
        raise InvalidBody("$.app_id: an agent needs an app")
    if role != "agent" and app_id:
        raise InvalidBody("$.app_id: only agents have an app")
    if app_id and App.find(app_id) is None:
        raise AppNotFound


def _with_columns_of_role(user: User, columns: dict[str, SqlValue]) -> dict[str, SqlValue]:
    """Return changed columns with those that depend on the role: only agents have an app, and staff has a user type."""
    role = columns.get("role", user.role)
    if role != user.role:
        keeps_app = {} if role == "agent" else {"app_id": None}
        user_type = USER_TYPES[role] if user.user_type in USER_TYPES.values() else user.user_type
        columns = {"user_type": user_type, **keeps_app, **columns}
    if {"role", "app_id"} & columns.keys():
        _require_valid_app(role, columns.get("app_id", user.app_id))
    return columns


def _record_changes(actor_id: str, user: User, changed: dict[str, SqlValue]) -> None:
    """End the login sessions of a user who was disabled, and record the changes in the audit log."""
    if changed.get("is_disabled"):
        LoginSession.end_all(user.id)
    if {"role", "app_id", "is_disabled"} & changed.keys():
        User.staff_changed(user.id)
    if "is_disabled" in changed:
        AuditLog.record("user_disabled" if changed["is_disabled"] else "user_enabled", actor_id, user.id)
    columns = sorted(changed.keys() - {"is_disabled", "user_type"})
    if columns:
        AuditLog.record(
            "user_changed", actor_id, user.id, columns=columns, role=changed.get("role"), app=changed.get("app_id")
        )


@compiled
def _settings(id: str) -> Query:
    return User.select(User.settings).where(User.id == id)

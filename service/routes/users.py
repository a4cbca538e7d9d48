"""Profile, settings and avatar of a user; management of users by admins."""

from typing import Annotated

from msgspec import UNSET, Meta, Raw, Struct, UnsetType, structs

from service import pictures, preferences, validators
from service.api.operations import KIB, Routes
from service.api.parameter_types import Cursor, Media, PictureFile, Upload
from service.api.schemas import BodyColumns, row_schema, with_members
from service.auth import passwords
from service.auth.consent import ACCOUNT
from service.db import Page, render
from service.errors import (
    AppNotFound,
    Busy,
    ImageTooLarge,
    ImageUnreadable,
    LastAdmin,
    UnsupportedMediaType,
    UserExists,
)
from service.fields import AnyUuid, SqlValue
from service.models import Avatar, User
from service.models.callers import Caller
from service.models.user_deletion import delete_user
from service.models.users import Account, Role, State
from service.settings import Settings
from service.types import JsonObject

routes = Routes("Profile and settings", scope="profile")
admin = Routes("Users", scope=ACCOUNT, extension=True, admin_only=True)
images = Routes("Avatars", prefix="", public=True, extension=True, always_served=True)

ProfileChanges = Annotated[
    JsonObject,
    BodyColumns(
        User, "display_name", "first_name", "last_name", "locale", "location", "phone", "timezone", partial=True
    ),
]
SettingsPatch = Annotated[JsonObject, with_members(preferences.Settings, required=False)]
CurrentSettings = Annotated[JsonObject, with_members(preferences.Settings, required=True)]


class AvatarForm(Upload):
    """The image file of a new avatar."""

    avatar: PictureFile


class ProfileImage(Struct):
    """The address of the avatar; empty without one."""

    profile_image: str


Name = Annotated[str, Meta(max_length=100)]


class UsersQuery(Struct):
    """Filters and page size for the list of users."""

    search: Annotated[str, Meta(description="Text to find in the e-mail address or the names; case-insensitive.")] = ""
    role: Role | None = None
    app_id: Annotated[str, Meta(description="Return only the agents of this app."), *AnyUuid.__metadata__] = ""
    state: State | None = None
    cursor: Cursor = Cursor()
    limit: Annotated[int, Meta(ge=1, le=100, description="Maximum number of users to return.")] = 25


class NewUser(Struct):
    """A user to create; an agent needs an app."""

    email: Annotated[str, Meta(min_length=1, max_length=validators.MAX_EMAIL_LENGTH), validators.email_address]
    password: Annotated[str, Meta(min_length=passwords.MIN_LENGTH, max_length=passwords.MAX_LENGTH)]
    role: Role = "user"
    app_id: AnyUuid | None = None
    first_name: Name = ""
    last_name: Name = ""
    display_name: Name = ""


class AccountChanges(Struct):
    """The members of a user to change; an agent needs an app."""

    role: Role | UnsetType = UNSET
    app_id: AnyUuid | None | UnsetType = UNSET
    is_disabled: bool | UnsetType = UNSET
    first_name: Name | UnsetType = UNSET
    last_name: Name | UnsetType = UNSET
    display_name: Name | UnsetType = UNSET


class UserDeleted(Struct):
    """The user is deleted."""

    deleted: bool


def columns_of(body: NewUser | AccountChanges) -> dict[str, SqlValue]:
    """Return the members that were sent, without the password; an empty `app_id` is null."""
    sent = {name: value for name, value in structs.asdict(body).items() if value is not UNSET and name != "password"}
    return sent | {"app_id": sent["app_id"] or None} if "app_id" in sent else sent


def hash_new_password(body: NewUser) -> str:
    return passwords.hash_password(body.password)


@admin.get("/users", statuses=(200, 400, 401, 403), meta=("next_cursor", "per_page"), runs="slow")
def list_users(query: UsersQuery) -> Page[Account]:
    """List the users by e-mail address (admins only)."""
    return User.list_page(
        query.cursor,
        query.limit,
        search=query.search,
        role=query.role,
        app_id=query.app_id,
        state=query.state,
    )


@admin.post(
    "/users",
    statuses=(201, 400, 401, 403, 404),
    errors=(AppNotFound, UserExists),
    prepare=hash_new_password,
    runs="slow",
    example={"email": "grace@demo.example", "password": "demo-password", "role": "admin", "first_name": "Grace"},
)
def create_user(caller: Caller, body: NewUser, prepared: str) -> Account:
    """Create a user (admins only)."""
    return User.add(caller.id, password_hash=prepared, **columns_of(body)).account


@admin.get("/users/{id}", statuses=(200, 400, 401, 403, 404))
def get_user(user: User) -> Account:
    """Get a user (admins only)."""
    return user.account


@admin.patch(
    "/users/{id}",
    statuses=(200, 400, 401, 403, 404),
    errors=(AppNotFound, LastAdmin),
    example={"first_name": "Alice", "is_disabled": False},
)
def change_user(caller: Caller, user: User, body: AccountChanges) -> Account:
    """Set the role, app, names or state of a user (admins only). A user who is disabled is signed out."""
    return user.change(caller.id, columns_of(body))


@admin.delete("/users/{id}", statuses=(200, 400, 401, 403, 404), errors=(LastAdmin,), runs="slow")
def delete_user_data(caller: Caller, user: User) -> UserDeleted:
    """Delete a user and the user's chats, events, notifications, grants, feedback and avatar (admins only)."""
    delete_user(user, caller.id)
    return UserDeleted(True)


@routes.get("/users/me", statuses=(200, 401), extension=True)
def get_profile(caller: Caller) -> Annotated[Raw, row_schema(User, own=True)]:
    """Get your profile, including the members that only you can see."""
    return render(User, caller.id, own=True)


@routes.patch(
    "/users/me",
    statuses=(200, 400, 401),
    example={"display_name": "Alice", "locale": "en-GB", "timezone": "Europe/London", "phone": "+442079460123"},
)
def update_profile(caller: Caller, body: ProfileChanges) -> Annotated[Raw, User]:
    """Update your profile; `null` clears a member."""
    return User.update_profile(caller.id, body)


@routes.get("/users/me/settings", statuses=(200, 401))
def get_settings(caller: Caller) -> CurrentSettings:
    """Get your settings; unset members have their defaults."""
    return User.preferences_of(caller.id)


@routes.patch(
    "/users/me/settings",
    statuses=(200, 400, 401),
    example={"appearance": {"theme": "dark"}, "chat_language": "de"},
)
def update_settings(caller: Caller, body: SettingsPatch) -> CurrentSettings:
    """Update your settings with a JSON Merge Patch (RFC 7396); `null` resets a member to its default."""
    return User.patch_preferences(caller.id, body)


@routes.post(
    "/users/me/avatar",
    statuses=(200, 400, 401, 413, 415, 503),
    max_body=6 * 1024 * KIB,
    errors=(Busy, ImageTooLarge, ImageUnreadable, UnsupportedMediaType),
    runs="slow",
)
def upload_avatar(caller: Caller, body: AvatarForm, settings: Settings) -> ProfileImage:
    """Upload an avatar."""
    return ProfileImage(Avatar.set_for(caller.id, pictures.make_avatar(body.avatar), settings.public_url))


@routes.delete("/users/me/avatar", statuses=(200, 401), extension=True)
def remove_avatar(caller: Caller) -> ProfileImage:
    """Remove your avatar."""
    Avatar.remove_for(caller.id)
    return ProfileImage("")


@images.get("/avatars/{name}", statuses=(200, 304, 404), produces=pictures.CONTENT_TYPE)
def get_avatar(avatar: Avatar) -> Media:
    """Get an avatar; needs no token."""
    return Media(avatar.content, avatar.name, lasting=True)

"""Profile, settings and avatars (section 4.4 of the document; contract, section 7)."""

from typing import Annotated, Any

from msgspec import Meta, Raw, Struct

from service import pictures
from service.db import render
from service.errors import Busy, ImageTooLarge, ImageUnreadable, UnsupportedMediaType
from service.models import Avatar, User
from service.models.people import Caller
from service.operations import KIB, Routes
from service.preferences import Settings
from service.settings import Settings as Installation
from service.shapes import Writes, shape, variant
from service.signature import BINARY, File, Media, Upload

routes = Routes("Profile and settings", scope="profile")
images = Routes("Avatars", prefix="", public=True, extension=True, vital=True)

ProfileChanges = Annotated[
    dict[str, Any],
    Writes(User, "display_name", "first_name", "last_name", "locale", "location", "phone", "timezone", partial=True),
]
SettingsPatch = Annotated[dict[str, Any], variant(Settings, required=False)]
SettingsNow = Annotated[dict[str, Any], variant(Settings, required=True)]


class AvatarForm(Upload):
    """A new picture."""

    avatar: Annotated[
        Any, File(5 * 1024 * KIB), Meta(description="JPEG, PNG or WebP; at most 5 MiB.", extra_json_schema=BINARY)
    ]


class ProfileImage(Struct):
    """Where the picture is."""

    profile_image: str


@routes.get("/users/me", answers=(200, 401), extension=True)
def get_profile(caller: Caller) -> Annotated[Raw, shape(User, own=True)]:
    """Your profile, with the members that others do not see."""
    return render(User, caller.id, own=True)


@routes.patch(
    "/users/me",
    answers=(200, 400, 401),
    example={"display_name": "Alice", "locale": "en-GB", "timezone": "Europe/London", "phone": "+442079460123"},
)
def update_profile(caller: Caller, body: ProfileChanges) -> Annotated[Raw, User]:
    """Change some of your profile; `null` clears a member."""
    return User.update_profile(caller.id, body)


@routes.get("/users/me/settings", answers=(200, 401))
def get_settings(caller: Caller) -> SettingsNow:
    """Your settings, with the defaults of what you never set."""
    return User.preferences_of(caller.id)


@routes.patch(
    "/users/me/settings",
    answers=(200, 400, 401),
    example={"appearance": {"theme": "dark"}, "chat_language": "de"},
)
def update_settings(caller: Caller, body: SettingsPatch) -> SettingsNow:
    """Merge a patch into your settings (RFC 7396); `null` puts a member back to its default."""
    return User.patch_preferences(caller.id, body)


@routes.post(
    "/users/me/avatar",
    answers=(200, 400, 401, 413, 415, 503),
    most=6 * 1024 * KIB,
    raises=(Busy, ImageTooLarge, ImageUnreadable, UnsupportedMediaType),
    runs="slow",
)
def upload_avatar(caller: Caller, body: AvatarForm, settings: Installation) -> ProfileImage:
    """Show another picture of yourself."""
    return ProfileImage(Avatar.replace_by(caller.id, pictures.make_avatar(body.avatar), settings.public_url))


@routes.delete("/users/me/avatar", answers=(200, 401), extension=True)
def remove_avatar(caller: Caller) -> ProfileImage:
    """Show no picture of yourself."""
    Avatar.remove_of(caller.id)
    return ProfileImage("")


@images.get("/avatars/{name}", answers=(200, 304, 404), produces=pictures.CONTENT_TYPE)
def get_avatar(avatar: Avatar) -> Media:
    """A picture, for everybody who knows its name."""
    return Media(avatar.content, avatar.name, lasting=True)

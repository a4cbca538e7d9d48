"""The measured operations on Django Ninja and gunicorn, following their documentation.

Choices in its favour:

- No middleware, the renderer with orjson, persistent database connections, threads with keep-alive connections, and no
  access log.
- Texts, times and identifiers are stored in the format of the responses, so that rows need no conversion.
- One kind of user, no notifications and no replies of bots.

The same requirements as for the service: look up the token at every request, check the owner of the chat session,
return totals, unread counts and the cursor of the next page, validate bodies, and commit with synchronous=FULL.
"""

import hashlib
import json
import os
import secrets
import time
import uuid
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

import django
import orjson
from django.conf import settings as configuration

configuration.configure(
    ALLOWED_HOSTS=["127.0.0.1"],
    DATABASES={
        "default": {
            "ENGINE": "django.db.backends.sqlite3",
            "NAME": os.environ["BENCH_DATABASE"],
            "CONN_MAX_AGE": None,
            "OPTIONS": {
                "timeout": 5,
                "transaction_mode": "IMMEDIATE",
                "init_command": "PRAGMA journal_mode = wal; PRAGMA synchronous = full",
            },
        }
    },
    LOGGING={
        "version": 1,
        "handlers": {"console": {"class": "logging.StreamHandler"}},
        "root": {"handlers": ["console"], "level": "ERROR"},
    },
    MIDDLEWARE=[],
    ROOT_URLCONF=__name__,
    SECRET_KEY=secrets.token_hex(),
    USE_I18N=False,
)
django.setup()

from django.core.handlers.wsgi import WSGIHandler  # noqa: E402
from django.db import connection, models, transaction  # noqa: E402
from django.http import Http404  # noqa: E402
from django.urls import path  # noqa: E402
from ninja import ModelSchema, NinjaAPI, Schema  # noqa: E402
from ninja.renderers import BaseRenderer  # noqa: E402
from ninja.security import HttpBearer  # noqa: E402
from pydantic import Field  # noqa: E402


def text(most: int = 255, **options: Any) -> models.CharField:
    return models.CharField(max_length=most, **options)


def nullable() -> models.CharField:
    return models.CharField(max_length=255, null=True)


def reference(model: type[models.Model]) -> models.ForeignKey:
    return models.ForeignKey(model, models.CASCADE, db_index=False)


class User(models.Model):
    id = text(36, primary_key=True)
    email = text(254, unique=True)
    is_disabled = models.BooleanField()
    settings = models.JSONField()

    class Meta:
        app_label, db_table = "bench", "user"


class Token(models.Model):
    digest = text(64, primary_key=True)
    user = reference(User)
    expires_at = models.BigIntegerField()

    class Meta:
        app_label, db_table = "bench", "token"


class ChatSession(models.Model):
    id = text(36, primary_key=True)
    user = reference(User)
    conversation_id = text(36)
    active_at = text()

    class Meta:
        app_label, db_table = "bench", "chat_session"


class Message(models.Model):
    id = text(26, primary_key=True)
    chat_session = reference(ChatSession)
    conversation_id = nullable()
    identity_id = nullable()
    sender_id = nullable()
    sender_type = text(default="user")
    channel = text(default="web")
    status = text(default="sent")
    content_type = text(default="text")
    content = models.JSONField()
    original_content = models.JSONField(default=list)
    translations = models.JSONField(default=list)
    reply_to_message_id = nullable()
    reply_snapshot = models.JSONField(default=list)
    action_id = nullable()
    action_source_id = nullable()
    action_payload = models.JSONField(default=list)
    is_edited = models.BooleanField(default=False)
    edited_at = nullable()
    is_pinned = models.BooleanField(default=False)
    is_private = models.BooleanField(default=False)
    is_read_once = models.BooleanField(default=False)
    deleted_at = nullable()
    gdpr_purged = models.BooleanField(default=False)
    gdpr_purged_at = nullable()
    gdpr_original_content_type = nullable()
    created_at = text()
    updated_at = text()
    pinned_at = nullable()

    class Meta:
        app_label, db_table = "bench", "message"
        indexes = (
            models.Index(
                fields=["chat_session", "id"],
                name="message_public",
                condition=models.Q(deleted_at__isnull=True, is_private=False),
            ),
            models.Index(
                fields=["chat_session", "pinned_at"],
                name="message_pinned",
                condition=models.Q(pinned_at__isnull=False),
            ),
        )


class Bot(models.Model):
    id = text(36, primary_key=True)
    app_id = text(36)
    name = text()
    slug = text()
    tagline = text(1000)
    description = models.TextField()
    category = text()
    kind = text()
    status = text()
    presence = text()
    is_active = models.BooleanField()
    is_featured = models.BooleanField()
    rating = models.FloatField()
    country = text()
    region = text()
    city = text()
    accent_color = text()
    brand_color = text()
    cover_url = text(2048)
    icon_url = text(2048)
    contact_email = text()
    contact_phone = text()
    contact_website = text(2048)
    social_links = models.JSONField()
    created_at = text()
    updated_at = text()
    search_text = models.TextField()

    class Meta:
        app_label, db_table = "bench", "bot"
        indexes = (
            models.Index(
                fields=["app_id", "status", "-is_featured", "-rating", "name", "id", "search_text"],
                name="bot_feed",
                condition=models.Q(is_active=True),
            ),
        )


class Notification(models.Model):
    id = text(36, primary_key=True)
    type = text()
    title = text()
    body = models.TextField()
    conversation_id = nullable()
    session_id = nullable()
    payload = models.JSONField()
    is_read = models.BooleanField()
    read_at = nullable()
    created_at = text()
    user = reference(User)

    class Meta:
        app_label, db_table = "bench", "notification"
        indexes = (
            models.Index(fields=["user", "created_at", "id"], name="notification_listed"),
            models.Index(
                fields=["user", "created_at", "id"],
                name="notification_unread",
                condition=models.Q(read_at__isnull=True),
            ),
        )


class Event(models.Model):
    id = text(36, primary_key=True)
    user = reference(User)
    app_id = nullable()
    title = text()
    notes = models.TextField()
    starts_at = text()
    ends_at = nullable()
    reminder_at = nullable()
    is_time_sensitive = models.BooleanField()
    source = text()
    source_event_id = nullable()
    created_at = text()
    updated_at = text()

    class Meta:
        app_label, db_table = "bench", "event"
        indexes = (models.Index(fields=["user", "starts_at", "id"], name="event_listed"),)


class Feedback(models.Model):
    id = text(36, primary_key=True)
    user = reference(User)
    feedback_type = text(64)
    description = models.TextField()
    app_version = text(64)
    device_info = models.JSONField()
    screenshot_url = text(2048)
    status = text(default="new")
    created_at = text()
    updated_at = text()

    class Meta:
        app_label, db_table = "bench", "feedback"
        indexes = (models.Index(fields=["user", "created_at", "id"], name="feedback_own"),)


TABLES = (User, Token, ChatSession, Message, Bot, Notification, Event, Feedback)

Bytes = list[int]


class MessageOut(ModelSchema):
    chat_session_id: str
    content: Bytes
    original_content: Bytes
    translations: Bytes
    reply_snapshot: Bytes
    action_payload: Bytes

    class Meta:
        model = Message
        exclude = ("chat_session", "pinned_at")


class BotOut(ModelSchema):
    social_links: Bytes

    class Meta:
        model = Bot
        exclude = ("search_text",)


class NotificationOut(ModelSchema):
    payload: Bytes

    class Meta:
        model = Notification
        exclude = ("user",)


class EventOut(ModelSchema):
    user_id: str

    class Meta:
        model = Event
        exclude = ("user",)


class FeedbackOut(ModelSchema):
    user_id: str
    device_info: Bytes

    class Meta:
        model = Feedback
        exclude = ("user",)


class Appearance(Schema):
    language: str = "en"
    theme: Literal["system", "light", "dark"] = "system"


class Deliveries(Schema):
    email_enabled: bool = True
    marketing_enabled: bool = False
    muted_until: str | None = None
    push_enabled: bool = True


class Privacy(Schema):
    share_analytics: bool = False
    share_crash_reports: bool = False
    show_read_receipts: bool = True
    show_typing_indicator: bool = True


class Settings(Schema):
    appearance: Appearance = Appearance()
    chat_language: str = ""
    notifications: Deliveries = Deliveries()
    privacy: Privacy = Privacy()
    updated_at: str | None = None


class Counts(Schema):
    next_cursor: str | None
    per_page: int


class Total(Counts):
    total: int


class Unread(Counts):
    unread_count: int


def one(shape: Any) -> Any:
    return type("One", (Schema,), {"__annotations__": {"success": bool, "data": shape}, "success": True})


def many(shape: Any, counts: type[Counts]) -> Any:
    members = {"success": bool, "data": list[shape], "meta": counts}
    return type("Page", (Schema,), {"__annotations__": members, "success": True})


class Pin(Schema):
    pinned: bool


class NewMessage(Schema):
    content: dict[str, Any]
    is_private: bool = False
    reply_to_message_id: str | None = None


class NewFeedback(Schema):
    description: Annotated[str, Field(min_length=1, max_length=10_000)]
    feedback_type: Annotated[str, Field(max_length=64)] = "general"
    app_version: Annotated[str, Field(max_length=64)] = ""
    device_info: dict[str, Any] = {}
    screenshot_url: Annotated[str, Field(max_length=2048)] = ""


class Orjson(BaseRenderer):
    media_type = "application/json"

    def render(self, request: Any, data: Any, *, response_status: int) -> bytes:
        return orjson.dumps(data)


class Bearer(HttpBearer):
    def authenticate(self, request: Any, token: str) -> User | None:
        digest = hashlib.sha256(token.encode()).hexdigest()
        live = {"digest": digest, "expires_at__gt": int(time.time()), "user__is_disabled": False}
        found = Token.objects.select_related("user").filter(**live).first()
        return found and found.user


api = NinjaAPI(renderer=Orjson(), auth=Bearer(), docs_url=None)
Limit = Annotated[int, Field(ge=1, le=200)]


def reach(request: Any, id: str) -> ChatSession:
    chat = ChatSession.objects.filter(id=id).first()
    if chat is None or chat.user_id != request.auth.id:
        raise Http404
    return chat


def page(found: Any, limit: int, **meta: int) -> dict[str, Any]:
    """Return the requested number of rows, of which one more was fetched."""
    rows = list(found[: limit + 1])
    cursor = rows[limit - 1].pk if len(rows) > limit else None
    return {"data": rows[:limit], "meta": {"next_cursor": cursor, "per_page": limit, **meta}}


def now() -> str:
    return f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%S.%f}"[:-3] + "Z"


def as_bytes(value: Any) -> list[int]:
    return list(json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode())


@api.get("/chats/{id}/messages", response=many(MessageOut, Total))
def messages(request: Any, id: str, limit: Limit = 50, cursor: str = "") -> Any:
    public = Message.objects.filter(chat_session_id=reach(request, id).id, deleted_at=None, is_private=False)
    return page(public.filter(id__gt=cursor).order_by("id"), limit, total=public.count())


@api.get("/bots", response=many(BotOut, Counts))
def bots(request: Any, app_id: str, search: str = "", per_page: Limit = 25) -> Any:
    found = Bot.objects.filter(app_id=app_id, is_active=True, status="published").defer("search_text")
    if search:
        found = found.filter(search_text__contains=search.casefold())
    return page(found.order_by("-is_featured", "-rating", "name", "id"), per_page)


@api.get("/notifications", response=many(NotificationOut, Unread))
def notifications(request: Any, limit: Limit = 25) -> Any:
    own = Notification.objects.filter(user_id=request.auth.id)
    return page(own.order_by("-created_at", "-id"), limit, unread_count=own.filter(read_at=None).count())


@api.get("/events", response=many(EventOut, Total))
def events(request: Any, limit: Limit = 25) -> Any:
    own = Event.objects.filter(user_id=request.auth.id)
    return page(own.order_by("starts_at", "id"), limit, total=own.count())


@api.get("/users/me/settings", response=one(Settings))
def settings(request: Any) -> Any:
    return {"data": request.auth.settings}


def set_pin(request: Any, id: str, message_id: str, moment: str | None) -> dict[str, Any]:
    own = Message.objects.filter(id=message_id, chat_session_id=reach(request, id).id, deleted_at=None)
    if not own.update(is_pinned=bool(moment), pinned_at=moment):
        raise Http404
    return {"data": {"pinned": bool(moment)}}


@api.post("/chats/{id}/messages/{message_id}/pin", response=one(Pin))
def pin(request: Any, id: str, message_id: str) -> Any:
    return set_pin(request, id, message_id, now())


@api.delete("/chats/{id}/messages/{message_id}/pin", response=one(Pin))
def unpin(request: Any, id: str, message_id: str) -> Any:
    return set_pin(request, id, message_id, None)


@api.post("/chats/{id}/messages", response={201: one(MessageOut)})
def send(request: Any, id: str, body: NewMessage) -> Any:
    chat, moment = reach(request, id), now()
    with transaction.atomic():
        message = Message.objects.create(
            id=f"01K{time.time_ns():020}{secrets.randbelow(1000):03}",
            chat_session_id=chat.id,
            conversation_id=chat.conversation_id,
            sender_id=request.auth.id,
            content=as_bytes(body.content),
            is_private=body.is_private,
            reply_to_message_id=body.reply_to_message_id,
            created_at=moment,
            updated_at=moment,
        )
        ChatSession.objects.filter(id=chat.id).update(active_at=moment)
    return 201, {"data": message}


@api.post("/feedback", response={201: one(FeedbackOut)})
def feedback(request: Any, body: NewFeedback) -> Any:
    moment, given = now(), body.dict()
    given["device_info"] = as_bytes(given["device_info"])
    made = Feedback(id=str(uuid.uuid4()), user_id=request.auth.id, created_at=moment, updated_at=moment, **given)
    made.save(force_insert=True)
    return 201, {"data": made}


urlpatterns = [path("api/v1/", api.urls)]
application = WSGIHandler()

if __name__ == "__main__":
    with connection.schema_editor() as editor:
        for table in TABLES:
            editor.create_model(table)

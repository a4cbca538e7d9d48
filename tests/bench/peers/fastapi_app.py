"""The measured operations on FastAPI, SQLAlchemy 2 and uvicorn, following their documentation.

Choices in its favour:

- Endpoints are coroutines that call SQLite directly: a query takes less time than the hand-over to a thread, which a
  `def` endpoint needs four times per request.
- Lists select columns instead of instances. Pydantic reads the rows and writes the JSON by the return types.
- Texts, times and identifiers are stored in the format of the responses, so that rows need no conversion.
- No logging, one kind of user, no notifications and no replies of bots.

The same requirements as for the service: look up the token at every request, check the owner of the chat session,
return totals, unread counts and the cursor of the next page, validate bodies, and commit with synchronous=FULL.
"""

import hashlib
import json
import os
import secrets
import time
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Annotated, Any, Generic, Literal, TypeVar

from fastapi import Depends, FastAPI, HTTPException, Query
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy import JSON, ForeignKey, Index, create_engine, event, func, select, text, update
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, sessionmaker

engine = create_engine(f"sqlite:///{os.environ['BENCH_DATABASE']}", connect_args={"timeout": 5})
make_session = sessionmaker(engine, autoflush=False, expire_on_commit=False)


@event.listens_for(engine, "connect")
def prepare(connection: Any, _: Any) -> None:
    for pragma in ("journal_mode = wal", "synchronous = full", "foreign_keys = 1"):
        connection.execute(f"PRAGMA {pragma}")


class Base(DeclarativeBase):
    type_annotation_map = {list[int]: JSON, dict[str, Any]: JSON}


class User(Base):
    __tablename__ = "user"
    id: Mapped[str] = mapped_column(primary_key=True)
    email: Mapped[str] = mapped_column(unique=True)
    is_disabled: Mapped[bool]
    settings: Mapped[dict[str, Any]]


class Token(Base):
    __tablename__ = "token"
    digest: Mapped[str] = mapped_column(primary_key=True)
    user_id: Mapped[str] = mapped_column(ForeignKey("user.id"))
    expires_at: Mapped[int]


class ChatSession(Base):
    __tablename__ = "chat_session"
    id: Mapped[str] = mapped_column(primary_key=True)
    user_id: Mapped[str] = mapped_column(ForeignKey("user.id"))
    conversation_id: Mapped[str]
    active_at: Mapped[str]


class Message(Base):
    __tablename__ = "message"
    id: Mapped[str] = mapped_column(primary_key=True)
    chat_session_id: Mapped[str] = mapped_column(ForeignKey("chat_session.id"))
    conversation_id: Mapped[str | None]
    identity_id: Mapped[str | None]
    sender_id: Mapped[str | None]
    sender_type: Mapped[str] = mapped_column(default="user")
    channel: Mapped[str] = mapped_column(default="web")
    status: Mapped[str] = mapped_column(default="sent")
    content_type: Mapped[str] = mapped_column(default="text")
    content: Mapped[list[int]]
    original_content: Mapped[list[int]] = mapped_column(default=list)
    translations: Mapped[list[int]] = mapped_column(default=list)
    reply_to_message_id: Mapped[str | None]
    reply_snapshot: Mapped[list[int]] = mapped_column(default=list)
    action_id: Mapped[str | None]
    action_source_id: Mapped[str | None]
    action_payload: Mapped[list[int]] = mapped_column(default=list)
    is_edited: Mapped[bool] = mapped_column(default=False)
    edited_at: Mapped[str | None]
    is_pinned: Mapped[bool] = mapped_column(default=False)
    is_private: Mapped[bool] = mapped_column(default=False)
    is_read_once: Mapped[bool] = mapped_column(default=False)
    deleted_at: Mapped[str | None]
    gdpr_purged: Mapped[bool] = mapped_column(default=False)
    gdpr_purged_at: Mapped[str | None]
    gdpr_original_content_type: Mapped[str | None]
    created_at: Mapped[str]
    updated_at: Mapped[str]
    pinned_at: Mapped[str | None]

    __table_args__ = (
        Index("message_public", "chat_session_id", "id", sqlite_where=text("deleted_at IS NULL AND is_private = 0")),
        Index("message_pinned", "chat_session_id", "pinned_at", sqlite_where=text("pinned_at IS NOT NULL")),
    )


class Bot(Base):
    __tablename__ = "bot"
    id: Mapped[str] = mapped_column(primary_key=True)
    app_id: Mapped[str]
    name: Mapped[str]
    slug: Mapped[str]
    tagline: Mapped[str]
    description: Mapped[str]
    category: Mapped[str]
    kind: Mapped[str]
    status: Mapped[str]
    presence: Mapped[str]
    is_active: Mapped[bool]
    is_featured: Mapped[bool]
    rating: Mapped[float]
    country: Mapped[str]
    region: Mapped[str]
    city: Mapped[str]
    accent_color: Mapped[str]
    brand_color: Mapped[str]
    cover_url: Mapped[str]
    icon_url: Mapped[str]
    contact_email: Mapped[str]
    contact_phone: Mapped[str]
    contact_website: Mapped[str]
    social_links: Mapped[list[int]]
    created_at: Mapped[str]
    updated_at: Mapped[str]
    search_text: Mapped[str]

    feed = ("app_id", "is_active", "status", text("is_featured DESC"), text("rating DESC"), "name", "id", "search_text")
    __table_args__ = (Index("bot_feed", *feed),)


class Notification(Base):
    __tablename__ = "notification"
    id: Mapped[str] = mapped_column(primary_key=True)
    type: Mapped[str]
    title: Mapped[str]
    body: Mapped[str]
    conversation_id: Mapped[str | None]
    session_id: Mapped[str | None]
    payload: Mapped[list[int]]
    is_read: Mapped[bool]
    read_at: Mapped[str | None]
    created_at: Mapped[str]
    user_id: Mapped[str] = mapped_column(ForeignKey("user.id"))

    __table_args__ = (
        Index("notification_listed", "user_id", "created_at", "id"),
        Index("notification_unread", "user_id", "created_at", "id", sqlite_where=text("read_at IS NULL")),
    )


class Event(Base):
    __tablename__ = "event"
    id: Mapped[str] = mapped_column(primary_key=True)
    user_id: Mapped[str] = mapped_column(ForeignKey("user.id"))
    app_id: Mapped[str | None]
    title: Mapped[str]
    notes: Mapped[str]
    starts_at: Mapped[str]
    ends_at: Mapped[str | None]
    reminder_at: Mapped[str | None]
    is_time_sensitive: Mapped[bool]
    source: Mapped[str]
    source_event_id: Mapped[str | None]
    created_at: Mapped[str]
    updated_at: Mapped[str]

    __table_args__ = (Index("event_listed", "user_id", "starts_at", "id"),)


class Feedback(Base):
    __tablename__ = "feedback"
    id: Mapped[str] = mapped_column(primary_key=True)
    user_id: Mapped[str] = mapped_column(ForeignKey("user.id"))
    feedback_type: Mapped[str]
    description: Mapped[str]
    app_version: Mapped[str]
    device_info: Mapped[list[int]]
    screenshot_url: Mapped[str]
    status: Mapped[str] = mapped_column(default="new")
    created_at: Mapped[str]
    updated_at: Mapped[str]

    __table_args__ = (Index("feedback_own", "user_id", "created_at", "id"),)


class Out(BaseModel):
    model_config = ConfigDict(from_attributes=True)


class MessageOut(Out):
    id: str
    chat_session_id: str
    conversation_id: str | None
    identity_id: str | None
    sender_id: str | None
    sender_type: str
    channel: str
    status: str
    content_type: str
    content: list[int]
    original_content: list[int]
    translations: list[int]
    reply_to_message_id: str | None
    reply_snapshot: list[int]
    action_id: str | None
    action_source_id: str | None
    action_payload: list[int]
    is_edited: bool
    edited_at: str | None
    is_pinned: bool
    is_private: bool
    is_read_once: bool
    deleted_at: str | None
    gdpr_purged: bool
    gdpr_purged_at: str | None
    gdpr_original_content_type: str | None
    created_at: str
    updated_at: str


class BotOut(Out):
    id: str
    app_id: str
    name: str
    slug: str
    tagline: str
    description: str
    category: str
    kind: str
    status: str
    presence: str
    is_active: bool
    is_featured: bool
    rating: float
    country: str
    region: str
    city: str
    accent_color: str
    brand_color: str
    cover_url: str
    icon_url: str
    contact_email: str
    contact_phone: str
    contact_website: str
    social_links: list[int]
    created_at: str
    updated_at: str


class NotificationOut(Out):
    id: str
    type: str
    title: str
    body: str
    conversation_id: str | None
    session_id: str | None
    payload: list[int]
    is_read: bool
    read_at: str | None
    created_at: str


class EventOut(Out):
    id: str
    user_id: str
    app_id: str | None
    title: str
    notes: str
    starts_at: str
    ends_at: str | None
    reminder_at: str | None
    is_time_sensitive: bool
    source: str
    source_event_id: str | None
    created_at: str
    updated_at: str


class FeedbackOut(Out):
    id: str
    user_id: str
    feedback_type: str
    description: str
    app_version: str
    device_info: list[int]
    screenshot_url: str
    status: str
    created_at: str
    updated_at: str


class Appearance(BaseModel):
    language: str = "en"
    theme: Literal["system", "light", "dark"] = "system"


class Deliveries(BaseModel):
    email_enabled: bool = True
    marketing_enabled: bool = False
    muted_until: str | None = None
    push_enabled: bool = True


class Privacy(BaseModel):
    share_analytics: bool = False
    share_crash_reports: bool = False
    show_read_receipts: bool = True
    show_typing_indicator: bool = True


class Settings(BaseModel):
    appearance: Appearance = Appearance()
    chat_language: str = ""
    notifications: Deliveries = Deliveries()
    privacy: Privacy = Privacy()
    updated_at: str | None = None


T = TypeVar("T")


class One(BaseModel, Generic[T]):
    success: bool = True
    data: T


class Meta(BaseModel):
    next_cursor: str | None
    per_page: int


class Total(Meta):
    total: int


class Unread(Meta):
    unread_count: int


M = TypeVar("M", bound=Meta)


class Page(One[list[T]], Generic[T, M]):
    meta: M


class Pin(BaseModel):
    pinned: bool


class NewMessage(BaseModel):
    content: dict[str, Any]
    is_private: bool = False
    reply_to_message_id: str | None = None


class NewFeedback(BaseModel):
    description: Annotated[str, Field(min_length=1, max_length=10_000)]
    feedback_type: Annotated[str, Field(max_length=64)] = "general"
    app_version: Annotated[str, Field(max_length=64)] = ""
    device_info: dict[str, Any] = {}
    screenshot_url: Annotated[str, Field(max_length=2048)] = ""


app = FastAPI()


async def open_session() -> Iterator[Session]:
    with make_session() as session:
        yield session


Db = Annotated[Session, Depends(open_session)]


async def authenticate(session: Db, given: Annotated[HTTPAuthorizationCredentials, Depends(HTTPBearer())]) -> Any:
    digest = hashlib.sha256(given.credentials.encode()).hexdigest()
    known = select(User.id, User.settings).join(Token, Token.user_id == User.id)
    live = known.where(Token.digest == digest, Token.expires_at > int(time.time()), ~User.is_disabled)
    user = session.execute(live).first()
    if user is None:
        raise HTTPException(401)
    return user


Caller = Annotated[Any, Depends(authenticate)]
Limit = Annotated[int, Query(ge=1, le=200)]


async def reach(session: Db, caller: Caller, id: str) -> Any:
    found = session.execute(
        select(ChatSession.id, ChatSession.user_id, ChatSession.conversation_id).where(ChatSession.id == id)
    ).first()
    if found is None or found.user_id != caller.id:
        raise HTTPException(404)
    return found


Chat = Annotated[Any, Depends(reach)]


def columns(model: type[Base], shape: type[Out]) -> list[Any]:
    return [getattr(model, name) for name in shape.model_fields]


def page(found: Any, limit: int, **meta: int) -> dict[str, Any]:
    """Return the requested number of rows, of which one more was fetched."""
    cursor = found[limit - 1].id if len(found) > limit else None
    return {"data": found[:limit], "meta": {"next_cursor": cursor, "per_page": limit, **meta}}


def now() -> str:
    return f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%S.%f}"[:-3] + "Z"


@app.get("/api/v1/chats/{id}/messages")
async def messages(session: Db, chat: Chat, limit: Limit = 50, cursor: str = "") -> Page[MessageOut, Total]:
    public = (Message.chat_session_id == chat.id) & Message.deleted_at.is_(None) & ~Message.is_private
    total = session.scalar(select(func.count()).select_from(Message).where(public))
    rows = select(*columns(Message, MessageOut)).where(public, Message.id > cursor).order_by(Message.id)
    return page(session.execute(rows.limit(limit + 1)).all(), limit, total=total)


@app.get("/api/v1/bots")
async def bots(session: Db, caller: Caller, app_id: str, search: str = "", per_page: Limit = 25) -> Page[BotOut, Meta]:
    rows = select(*columns(Bot, BotOut)).where(Bot.app_id == app_id, Bot.is_active, Bot.status == "published")
    if search:
        rows = rows.where(Bot.search_text.contains(search.casefold(), autoescape=True))
    rows = rows.order_by(Bot.is_featured.desc(), Bot.rating.desc(), Bot.name, Bot.id)
    return page(session.execute(rows.limit(per_page + 1)).all(), per_page)


@app.get("/api/v1/notifications")
async def notifications(session: Db, caller: Caller, limit: Limit = 25) -> Page[NotificationOut, Unread]:
    own = Notification.user_id == caller.id
    unread = select(func.count()).select_from(Notification).where(own, Notification.read_at.is_(None))
    rows = select(*columns(Notification, NotificationOut)).where(own)
    rows = rows.order_by(Notification.created_at.desc(), Notification.id.desc())
    return page(session.execute(rows.limit(limit + 1)).all(), limit, unread_count=session.scalar(unread))


@app.get("/api/v1/events")
async def events(session: Db, caller: Caller, limit: Limit = 25) -> Page[EventOut, Total]:
    own = Event.user_id == caller.id
    total = session.scalar(select(func.count()).select_from(Event).where(own))
    rows = select(*columns(Event, EventOut)).where(own).order_by(Event.starts_at, Event.id)
    return page(session.execute(rows.limit(limit + 1)).all(), limit, total=total)


@app.get("/api/v1/users/me/settings")
async def settings(caller: Caller) -> One[Settings]:
    return {"data": caller.settings}


def set_pin(session: Session, session_id: str, message_id: str, moment: str | None) -> None:
    own = (Message.id == message_id) & (Message.chat_session_id == session_id) & Message.deleted_at.is_(None)
    if not session.execute(update(Message).where(own).values(is_pinned=bool(moment), pinned_at=moment)).rowcount:
        raise HTTPException(404)
    session.commit()


@app.post("/api/v1/chats/{id}/messages/{message_id}/pin")
async def pin(session: Db, chat: Chat, message_id: str) -> One[Pin]:
    set_pin(session, chat.id, message_id, now())
    return {"data": {"pinned": True}}


@app.delete("/api/v1/chats/{id}/messages/{message_id}/pin")
async def unpin(session: Db, chat: Chat, message_id: str) -> One[Pin]:
    set_pin(session, chat.id, message_id, None)
    return {"data": {"pinned": False}}


@app.post("/api/v1/chats/{id}/messages", status_code=201)
async def send(session: Db, caller: Caller, chat: Chat, body: NewMessage) -> One[MessageOut]:
    moment = now()
    message = Message(
        id=f"01K{time.time_ns():020}{secrets.randbelow(1000):03}",
        chat_session_id=chat.id,
        conversation_id=chat.conversation_id,
        sender_id=caller.id,
        content=as_bytes(body.content),
        is_private=body.is_private,
        reply_to_message_id=body.reply_to_message_id,
        created_at=moment,
        updated_at=moment,
    )
    session.add(message)
    session.flush()
    session.execute(update(ChatSession).where(ChatSession.id == chat.id).values(active_at=moment))
    session.commit()
    return {"data": message}


@app.post("/api/v1/feedback", status_code=201)
async def feedback(session: Db, caller: Caller, body: NewFeedback) -> One[FeedbackOut]:
    moment, device = now(), as_bytes(body.device_info)
    given = body.model_dump(exclude={"device_info"})
    made = Feedback(
        id=str(uuid.uuid4()), user_id=caller.id, device_info=device, created_at=moment, updated_at=moment, **given
    )
    session.add(made)
    session.commit()
    return {"data": made}


def as_bytes(value: Any) -> list[int]:
    return list(json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode())


if __name__ == "__main__":
    Base.metadata.create_all(engine)

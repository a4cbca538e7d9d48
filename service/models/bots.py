"""Bots: the feed for customers, the catalogue for staff, and search in both."""

from collections.abc import Iterable, Sequence
from typing import Annotated, Literal, Self, get_args

import msgspec
import peewee
from msgspec import Meta

from service import clock, db, validators
from service.db import (
    Order,
    Page,
    Position,
    Query,
    Table,
    compiled,
    contains,
    page,
    render,
    search_pattern,
    write,
)
from service.errors import BotNotFound
from service.fields import (
    INTERNAL,
    Boolean,
    Choice,
    Identifier,
    JsonAsBytes,
    Number,
    SqlValue,
    Text,
    Timestamp,
    WireType,
    reference,
)
from service.models import bot_pictures
from service.models.apps import App
from service.models.audit_log import AuditLog
from service.models.bot_pictures import COLUMNS, BotPicture
from service.models.callers import Caller

Kind = Literal["nobot", "bot"]  # replies of staff only, or of the bot
Status = Literal["draft", "published"]
Presence = Literal["offline", "online", "away", "rsvp"]

WRITABLE = (  # the columns that staff may set
    *("name", "slug", "tagline", "description", "category", "kind", "status", "presence", "is_active", "is_featured"),
    *("rating", "country", "region", "city", "accent_color", "brand_color", "cover_url", "icon_url"),
    *("contact_email", "contact_phone", "contact_website", "social_links"),
)
Country = Annotated[
    str,
    Meta(description="ISO 3166-1 alpha-2 code, case-insensitive.", extra_json_schema={"pattern": "^([A-Za-z]{2})?$"}),
    validators.country,
]

VALIDATED: dict[str, WireType] = {  # what staff may set, where it is less than the column accepts
    "country": Country,
    "contact_email": Annotated[str, validators.email_address],
    "contact_website": Annotated[str, Meta(max_length=2048), validators.web_address],
    "cover_url": Annotated[str, Meta(max_length=2048), validators.web_address],
    "icon_url": Annotated[str, Meta(max_length=2048), validators.web_address],
}

SEARCH_COLUMNS = ("name", "tagline", "description")
SEPARATOR = "\nA\n"  # folded texts have no capital letters, so no match extends over two columns


def search_text_of(texts: Iterable[str]) -> str:
    """Return the search text of the values of SEARCH_COLUMNS."""
    return SEPARATOR.join(map(validators.fold, texts))


class Bot(Table):
    """A bot of an app."""

    get_for_errors = (BotNotFound,)
    id = Identifier(primary_key=True, default=clock.uuid)
    app_id = reference("app")
    name = Text(200)
    slug = Text(200)
    tagline = Text(1000)
    description = Text(10_000)
    category = Text(200)
    kind = Choice(*get_args(Kind))
    status = Choice(*get_args(Status))
    presence = Choice(*get_args(Presence))
    is_active = Boolean(default=True)
    is_featured = Boolean(default=False)
    rating = Number(default=0.0)
    country = Text(200)
    region = Text(200)
    city = Text(200)
    accent_color = Text(64)
    brand_color = Text(64)
    cover_url = Text(2048)
    icon_url = Text(2048)
    contact_email = Text(254)
    contact_phone = Text(64)
    contact_website = Text(2048)
    social_links = JsonAsBytes()
    created_at = Timestamp(default=clock.timestamp)
    updated_at = Timestamp(default=clock.timestamp)
    search_text = Text(visibility=INTERNAL)  # see `search_text_of`

    @classmethod
    def from_import(cls, given: dict[str, SqlValue]) -> dict[str, SqlValue]:
        """Return the search text of the imported texts."""
        return {"search_text": search_text_of(given.get(name, "") for name in SEARCH_COLUMNS)}

    def save(self, force_insert: bool = False, only: Sequence[peewee.Field] | None = None) -> int:
        self.search_text = search_text_of(getattr(self, name) for name in SEARCH_COLUMNS)
        return super().save(force_insert, only)

    @classmethod
    def is_visible(cls) -> peewee.Expression:
        """Return the condition of the bots visible to customers, without parameters, as in the index `bot_feed`."""
        return cls.is_active & (cls.status == peewee.SQL("'published'"))

    @classmethod
    def get_for(cls, caller: Caller, id: str, *above: App) -> Self:
        """Return a visible bot of any app, or below an app, for its staff, any bot of it. Raises BotNotFound."""
        bot = cls.find(id)
        if bot is None or not (bot.app_id == above[0].id if above else bot.is_active and bot.status == "published"):
            raise BotNotFound
        return bot

    def rendered_in(self, app_id: str) -> msgspec.Raw:
        """Return the bot, rendered. Raises BotNotFound for a bot of another app."""
        if self.app_id != app_id:
            raise BotNotFound
        return render(Bot, self.id)

    @classmethod
    def add(cls, app_id: str, columns: dict[str, SqlValue], actor_id: str) -> msgspec.Raw:
        """Create a bot of an app. Return it, rendered. `actor_id` is the author of the entry in the audit log."""
        bot = cls(app_id=app_id, **columns)
        with write(bot.id):
            bot.save(force_insert=True)
            AuditLog.record("bot_added", actor_id, bot.id, app=app_id)
        return render(Bot, bot.id)

    def edit(self, columns: dict[str, SqlValue], actor_id: str) -> msgspec.Raw:
        """Set columns. Return the bot, rendered. No effect if all values are the same."""
        with write(self.id):
            bot = Bot.get_by_id(self.id)  # read again inside the write
            changed = sorted(name for name, value in columns.items() if value != getattr(bot, name))
            for name in changed:
                setattr(bot, name, columns[name])
            for kind, column in COLUMNS.items():
                if column in changed:
                    BotPicture.keep_only(bot.id, kind, columns[column])
            if changed:
                bot.updated_at = clock.timestamp()
                bot.save()
                AuditLog.record("bot_changed", actor_id, bot.id, app=bot.app_id, columns=changed)
        return render(Bot, self.id)

    def set_picture(self, kind: bot_pictures.Kind, picture: bytes, public_url: str, actor_id: str) -> msgspec.Raw:
        """Set the cover or icon, in place of the previous one. Return the bot, rendered."""
        with write(self.id):
            return self.edit({COLUMNS[kind]: BotPicture.store(self.id, kind, picture, public_url)}, actor_id)

    @classmethod
    def recompute_pictures(cls) -> None:
        """Set the covers and icons of bots to their imported pictures."""
        for kind, name in COLUMNS.items():
            column = getattr(cls, name)
            url = BotPicture.select(peewee.Value(bot_pictures.FOLDER).concat(BotPicture.name))
            url = url.where(BotPicture.id == cls.id.concat(bot_pictures.key_of("", kind)))
            outdated = url.where(~column.endswith(BotPicture.name))
            cls.update({column: url}).where(peewee.fn.EXISTS(outdated)).execute()

    def set_choice(self, column: Choice, word: str, caller: Caller) -> msgspec.Raw:
        """Set the status or presence. Return the bot, rendered. No effect if the value is the same."""
        changed = (Bot.id == self.id) & (column != word)
        with write(self.id):
            if Bot.update({column: word, Bot.updated_at: clock.timestamp()}).where(changed).execute():
                AuditLog.record("bot_changed", caller.id, self.id, app=self.app_id, **{column.name: word})
        return render(Bot, self.id)

    @classmethod
    def feed(cls, app_id: str, after: Position, limit: int, **filters: SqlValue) -> "Page[Bot]":
        """Return a page of an app's visible bots: featured ones first, then by rating, name and identifier."""
        order = [Order(cls.is_featured, True), Order(cls.rating, True), Order(cls.name), Order(cls.id)]
        return cls._page(order, after, limit, app_id, visible_only=True, **filters)

    @classmethod
    def catalogue(cls, app_id: str, after: Position, limit: int, **filters: SqlValue) -> "Page[Bot]":
        """Return a page of all bots of an app by name and identifier, including drafts and inactive bots."""
        return cls._page([Order(cls.name), Order(cls.id)], after, limit, app_id, visible_only=False, **filters)

    @classmethod
    def _page(
        cls,
        order: Sequence[Order],
        after: Position,
        limit: int,
        app_id: str,
        *,
        visible_only: bool,
        search: str,
        **exact: SqlValue,
    ) -> "Page[Bot]":
        """Return a page of an app's bots by search text and `exact` values of columns. Empty filters are ignored."""
        filters = {name: value for name, value in exact.items() if value}
        text = validators.fold(search.strip())
        if text:
            filters["search"] = search_pattern(text)

        def read(match: str) -> Page[Bot]:
            given = filters | ({"match": match} if match else {})
            found = _bots(app_id, *given.values(), visible_only=visible_only, filters=tuple(given))
            return page(found, order, after, limit)

        return db.read_matches(read, cls.search_text, text, covered=visible_only)  # by the index `bot_feed`

    class Meta:
        indexes = ((("app_id", "name", "id"), False),)


@compiled
def _bots(app_id: str, *values: SqlValue, visible_only: bool, filters: tuple[str, ...]) -> Query:
    # With a match, the trigram index finds few bots; coalesce keeps SQLite from reading all bots of the app instead.
    app = peewee.fn.coalesce(Bot.app_id, "") if "match" in filters else Bot.app_id
    found = Bot.select().where(app == app_id)
    if visible_only:
        found = found.where(Bot.is_visible())
    for name, value in zip(filters, values, strict=True):
        if name == "search":
            found = found.where(contains(Bot.search_text, value))
        elif name == "match":
            found = found.where(db.is_match(Bot, value))
        elif name == "country":
            found = found.where(peewee.fn.upper(Bot.country) == value)
        else:
            found = found.where(getattr(Bot, name) == value)
    return found


Bot.add_index(
    Bot.app_id,
    Bot.is_featured.desc(),
    Bot.rating.desc(),
    Bot.name,
    Bot.id,
    # The filtered columns: rows that do not match are not read, which makes a search six times as fast.
    Bot.kind,
    Bot.presence,
    Bot.category,
    Bot.city,
    Bot.country,
    Bot.search_text,
    name="bot_feed",
    where=Bot.is_visible(),
)

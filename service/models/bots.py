"""Bots, as the discovery feed shows them."""

from collections.abc import Iterable
from typing import Any

import msgspec
import peewee

from service import clock, db, formats
from service.db import Order, Page, Position, Prepared, Table, contains, page, prepared, render, sought, write
from service.errors import BotNotFound
from service.fields import NEVER, Boolean, Identifier, JsonAsBytes, Number, Text, Timestamp, Word, reference
from service.models.ledger import Ledger
from service.models.people import Caller

SEARCHED = ("name", "tagline", "description")
BETWEEN = "\nA\n"  # a folded text has no capital letters, so no search reaches from one member into the next


def searchable(texts: Iterable[str]) -> str:
    """What a search looks through."""
    return BETWEEN.join(map(formats.fold, texts))


class Bot(Table):
    """A bot of an app (section 2.7 of the document)."""

    reach_raises = (BotNotFound,)
    id = Identifier(primary_key=True, default=clock.uuid)
    app_id = reference("app")
    name = Text(200)
    slug = Text(200)
    tagline = Text(1000)
    description = Text(10_000)
    category = Text(200)
    kind = Word("nobot", "bot")
    status = Word("draft", "published")
    presence = Word("offline", "online", "away", "rsvp")
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
    search_text = Text(leaves=NEVER)  # what a search looks through, folded

    @classmethod
    def adopt(cls, given: dict[str, Any]) -> dict[str, Any]:
        """What is searched follows from what is shown."""
        return {"search_text": searchable(given.get(name, "") for name in SEARCHED)}

    def save(self, *arguments: Any, **options: Any) -> Any:
        self.search_text = searchable(getattr(self, name) for name in SEARCHED)
        return super().save(*arguments, **options)

    @classmethod
    def shown(cls) -> Any:
        """The condition of the bots that clients meet, without a parameter: it is what `bot_feed` holds."""
        return cls.is_active & (cls.status == peewee.SQL("'published'"))

    @classmethod
    def reach(cls, caller: Caller, id: str, *above: Any) -> "Bot":
        """An active bot of any app; below an app, which only its staff reaches, any bot of it. Raises BotNotFound."""
        bot = cls.known(id)
        if bot is None or not (bot.app_id == above[0].id if above else bot.is_active and bot.status == "published"):
            raise BotNotFound
        return bot

    def within(self, app_id: str) -> msgspec.Raw:
        """The bot, rendered, as an app sees it. Raises BotNotFound for a bot of another app."""
        if self.app_id != app_id:
            raise BotNotFound
        return render(Bot, self.id)

    def become(self, column: Word, word: str, caller: Caller) -> msgspec.Raw:
        """Set a column to a word; the bot, rendered. The same word again changes nothing."""
        other = (Bot.id == self.id) & (column != word)
        with write(self.id):
            if Bot.update({column: word, Bot.updated_at: clock.timestamp()}).where(other).execute():
                Ledger.record("bot_changed", caller.id, self.id, app=self.app_id, **{column.name: word})
        return render(Bot, self.id)

    @classmethod
    def feed(cls, app_id: str, after: Position, limit: int, **filters: Any) -> "Page[Bot]":
        """A page of an app's active bots: featured ones first, then by rating, name and identifier."""
        found = cls._filtered(app_id, shown=True, **filters)
        order = [Order(cls.is_featured, True), Order(cls.rating, True), Order(cls.name), Order(cls.id)]
        return page(found, order, after, limit)

    @classmethod
    def kept_by(cls, app_id: str, after: Position, limit: int, **filters: Any) -> "Page[Bot]":
        """A page of all bots of an app, drafts and inactive ones too, by name and identifier."""
        found = cls._filtered(app_id, shown=False, **filters)
        return page(found, [Order(cls.name), Order(cls.id)], after, limit)

    @classmethod
    def _filtered(cls, app_id: str, *, shown: bool, search: str, **exact: Any) -> Prepared:
        """Bots of an app that filters leave; `exact` ones ask for a column of their name to be equal.

        What is empty is no filter.
        """
        filters = {name: value for name, value in exact.items() if value}
        if search.strip():
            text = formats.fold(search.strip())
            filters["search"] = sought(text)
            clue = db.clue(cls.search_text, text)
            if clue:
                filters["clue"] = clue
        return _bots(app_id, *filters.values(), shown=shown, filters=tuple(filters))

    class Meta:
        indexes = ((("app_id", "name", "id"), False),)


@prepared
def _bots(app_id: str, *values: Any, shown: bool, filters: tuple[str, ...]) -> Any:
    # Where few are asked about, no index of an app's bots is to lead through all of them.
    app = peewee.fn.coalesce(Bot.app_id, "") if "clue" in filters else Bot.app_id
    found = Bot.select().where(app == app_id)
    if shown:
        found = found.where(Bot.shown())
    for name, value in zip(filters, values, strict=True):
        if name == "search":
            found = found.where(contains(Bot.search_text, value))
        elif name == "clue":
            found = found.where(db.among(Bot, value))
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
    # What filters ask for: a row that they leave out is not read, which makes a search six times as fast.
    Bot.kind,
    Bot.presence,
    Bot.category,
    Bot.city,
    Bot.country,
    Bot.search_text,
    name="bot_feed",
    where=Bot.shown(),
)

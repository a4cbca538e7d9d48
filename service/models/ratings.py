"""Ratings of chat sessions that are over, by their customers, and the ratings of bots that follow from them."""

from typing import Annotated

import peewee
from msgspec import Meta, Raw, Struct

from service import clock
from service.db import Query, Table, compiled, database, literal, render, write
from service.errors import Forbidden, RatingNotFound, SessionNotFound, SessionNotOver
from service.fields import INTERNAL, Identifier, Integer, SqlValue, Text, Timestamp, reference
from service.models.bots import Bot
from service.models.callers import Caller
from service.models.chats import LIVE_STATUSES, ChatSession

MAX_SCORE = 5
SATISFIED = 4  # the lowest score of a satisfied customer
PRIOR = 5  # ratings with the mean of the app that are added to those of a bot
WINDOW = 1_000  # newest ratings of an app or a bot that count

Score = Annotated[int, Meta(ge=1, le=MAX_SCORE, description="From 1 (very bad) to 5 (very good).")]


class _ScoreColumn(Integer):
    wire = accepts = Score


class ChatRating(Table):
    """The rating of a chat session by its customer."""

    chat_session_id = reference("chat_session", primary_key=True)
    score = _ScoreColumn(default=None)
    comment = Text(2_000)
    created_at = Timestamp(default=clock.timestamp)
    updated_at = Timestamp(default=clock.timestamp)
    app_id = Identifier(null=True, visibility=INTERNAL)  # of the session; with `bot_id`, for means
    bot_id = Identifier(null=True, visibility=INTERNAL)

    class Meta:
        indexes = ((("app_id", "updated_at", "score"), False), (("bot_id", "updated_at", "score"), False))


class Satisfaction(Struct):
    """The newest ratings of an app, at most 1,000: their number, mean, and the share of 4 and 5."""

    ratings: int
    mean: float | None
    satisfied: float | None


def rating_of(session: ChatSession) -> ChatRating | None:
    """Return the rating of a session, if there is one."""
    return ChatRating.find(session.id)


def read_rating(session: ChatSession) -> Raw:
    """Return the rating of a session, rendered. Raises RatingNotFound."""
    if not rating_of(session):
        raise RatingNotFound
    return render(ChatRating, session.id)


def may_rate(caller: Caller, session: ChatSession) -> bool:
    """Return whether a caller may rate a session: the customer, while it is over or archived."""
    return caller.id == session.user_id and session.status not in LIVE_STATUSES


def rate(caller: Caller, session: ChatSession, score: int, comment: str) -> Raw:
    """Rate a session, or change its rating, as its customer. Return the rating, rendered.

    Raises Forbidden for others, and SessionNotOver.
    """
    if caller.id != session.user_id:
        raise Forbidden(not_found=SessionNotFound)
    with write(*sorted({session.id, session.bot_id or session.id})):
        if not may_rate(caller, ChatSession.get_by_id(session.id)):
            raise SessionNotOver
        now, found = clock.timestamp(), rating_of(session)
        if found is None:
            about = {"app_id": session.app_id, "bot_id": session.bot_id, "created_at": now, "updated_at": now}
            ChatRating.create(chat_session_id=session.id, score=score, comment=comment, **about)
        elif (found.score, found.comment) != (score, comment):
            own = ChatRating.chat_session_id == session.id
            ChatRating.update(score=score, comment=comment, updated_at=now).where(own).execute()
        if session.bot_id:
            _rate_bot(session.bot_id, session.app_id)
        ChatSession.mark_changed(session.id)
        return render(ChatRating, session.id)


def satisfaction(app_id: str) -> Satisfaction:
    """Return the satisfaction of the customers of an app."""
    count, total, satisfied = map(int, _newest(app_id, column=ChatRating.app_id).row())
    return (
        Satisfaction(count, round(total / count, 2), round(satisfied / count, 4))
        if count
        else Satisfaction(0, None, None)
    )


def count_comments(sessions: peewee.Expression) -> int:
    """Return the number of ratings of some sessions that have a comment."""
    return int(ChatRating.select().where(_commented(sessions)).count())


def erase_comments(sessions: peewee.Expression) -> int:
    """Erase the comments of the ratings of some sessions. Return their number."""
    return int(ChatRating.update(comment="").where(_commented(sessions)).execute())


def _commented(sessions: peewee.Expression) -> peewee.Expression:
    inside = ChatRating.chat_session_id.in_(ChatSession.select(ChatSession.id).where(sessions))
    return inside & (ChatRating.comment != "")


def recompute_ratings() -> None:
    """Set the apps and bots of ratings, and the ratings of their bots, after an import."""

    def of_session(column: SqlValue) -> Query:
        return ChatSession.select(column).where(ChatSession.id == ChatRating.chat_session_id)

    ChatRating.update(app_id=of_session(ChatSession.app_id), bot_id=of_session(ChatSession.bot_id)).execute()
    rated = ChatRating.select(ChatRating.bot_id, ChatRating.app_id).where(ChatRating.bot_id.is_null(False))
    rows: Query = rated.distinct().tuples()
    for bot_id, app_id in list(rows):
        _rate_bot(bot_id, app_id)


def _rate_bot(bot_id: str, app_id: str) -> None:
    """Set the rating of a bot: the mean of its newest ratings and of PRIOR ratings with the mean of its app."""
    app_count, app_total, _ = map(int, _newest(app_id, column=ChatRating.app_id).row())
    count, total, _ = map(int, _newest(bot_id, column=ChatRating.bot_id).row())
    mean = round((total + PRIOR * app_total / app_count) / (count + PRIOR), 2)
    Bot.update(rating=mean).where(Bot.id == bot_id, Bot.rating != mean).execute()


@compiled
def _newest(id: str, *, column: Identifier) -> Query:
    """Select the number of the newest ratings of an app or a bot, the sum of their scores, and how many are 4 or 5."""
    newest = ChatRating.select(ChatRating.score).where(column == id)
    newest = newest.order_by(ChatRating.updated_at.desc()).limit(literal(WINDOW)).alias("newest")
    score = newest.c.score
    satisfied = peewee.fn.coalesce(peewee.fn.sum(peewee.Case(None, [(score >= SATISFIED, 1)], 0)), 0)
    total = peewee.fn.coalesce(peewee.fn.sum(score), 0)
    return peewee.Select((newest,), (peewee.fn.count(score), total, satisfied)).bind(database)

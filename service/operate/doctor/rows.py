"""Checks of rows: signing keys, pictures, times, the audit log, derived values."""

import base64
import itertools
import operator
from collections.abc import Iterator

from service import clock, db, pictures
from service.errors import ApiError
from service.models import (
    AuditLog,
    Avatar,
    BotPicture,
    ChatSession,
    FeedbackScreenshot,
    Message,
    MessageImage,
    bot_pictures,
    canned_answer_index,
)
from service.models.audit_log import BrokenChain
from service.models.avatars import FOLDER
from service.models.bots import SEARCH_COLUMNS, search_text_of
from service.models.canned_answers import words_in
from service.models.contents import searched_text, text_in
from service.models.stored_pictures import NAME
from service.operate.doctor.findings import Finding, error, errors_or_ok, ok, warning
from service.settings import Settings
from service.validators import fold

# Each canned answer, followed by its rows in the index.
INDEXED_ANSWERS = """SELECT id, 0 AS part, bot_id, words, 0 AS weight, question FROM bot_answer
    UNION ALL SELECT answer_id, 1, bot_id, word, weight, '' FROM bot_answer_word ORDER BY 1, 2"""

CLOCK_TOLERANCE = clock.MINUTE
ADVICE = "`export` to a file and `import` it again to recompute it"
UNINDEXED = """SELECT id FROM bot WHERE id NOT IN
    (SELECT bot_id FROM bot_number WHERE number IN (SELECT rowid FROM bot_trigrams)) ORDER BY id"""


def check_keys(_: Settings) -> Iterator[Finding]:
    """Check that there is a signing key, and that all keys are valid."""
    keys = db.database.execute_sql("SELECT id, secret FROM signing_key").fetchall()
    invalid = [id for id, secret in keys if not _is_secret(secret)]
    if not keys:
        has_logins = db.database.execute_sql("SELECT 1 FROM login_session LIMIT 1").fetchone()
        text = "there is no signing key: the next start creates one"
        yield error("keys", f"{text}, and all users have to log in again") if has_logins else warning("keys", text)
    else:
        text = "is damaged: restore a backup, or delete it, which invalidates the tokens that it signed"
        yield from errors_or_ok("keys", (f"signing_key {id} {text}" for id in invalid), f"signing keys: {len(keys)}")


def _is_secret(text: object) -> bool:
    return isinstance(text, str) and len(text) == 64 and not text.strip("0123456789abcdef")


def check_avatars(settings: Settings) -> Iterator[Finding]:
    """Check that every picture can be decoded, and that every user with a picture address has that picture."""
    names = dict(db.database.execute_sql("SELECT user_id, name FROM avatar ORDER BY user_id").fetchall())

    def errors() -> Iterator[str]:
        for user, name in names.items():
            if not NAME.fullmatch(name):
                yield f"the picture of user {user} has an invalid name: {name!r}; upload another"
            elif not _is_picture(Avatar.select(Avatar.image).where(Avatar.user_id == user).scalar(), pictures.SQUARE):
                yield f"the picture of user {user} is damaged: upload another"
        for user, url in db.database.stream("""SELECT id, profile_image FROM "user" WHERE profile_image <> ''"""):
            if _is_missing(url, FOLDER, names.get(user), settings):
                yield f"user {user} has a missing picture: {url}; upload another"

    with db.snapshot():
        yield from errors_or_ok("avatars", errors(), f"{len(names):,} pictures")


def check_images(_: Settings) -> Iterator[Finding]:
    """Check that every picture of a message, every screenshot of feedback, and every thumbnail is a complete file."""
    remedy = "it is damaged: restore a backup, or"

    def errors() -> Iterator[str]:
        for id, *files in db.database.stream("SELECT id, image, thumbnail FROM message_image ORDER BY id"):
            if not all(map(_is_complete, files)):
                yield f"message_image {id}: {remedy} delete its message"
        screenshots = "SELECT feedback_id, image, thumbnail FROM feedback_screenshot ORDER BY feedback_id"
        for id, *files in db.database.stream(screenshots):
            if not all(map(_is_complete, files)):
                yield f"feedback_screenshot {id}: {remedy} upload another"

    with db.snapshot():
        summary = f"{MessageImage.select().count():,} pictures of messages"
        screenshots = f"{FeedbackScreenshot.select().count():,} screenshots of feedback"
        yield from errors_or_ok("images", errors(), f"{summary}, {screenshots}")


def _is_complete(image: str) -> bool:
    try:
        return pictures.is_plain_webp(base64.b64decode(image or "", validate=True))
    except (ApiError, ValueError, TypeError):
        return False


def check_bot_pictures(settings: Settings) -> Iterator[Finding]:
    """Check that every cover and icon can be decoded, and that every bot with such an address has that picture."""
    rows = db.database.execute_sql("SELECT bot_id, kind, name FROM bot_picture ORDER BY id").fetchall()
    names = {(bot, kind): name for bot, kind, name in rows}

    def errors() -> Iterator[str]:
        for (bot, kind), name in names.items():
            image = BotPicture.select(BotPicture.image).where(BotPicture.id == bot_pictures.key_of(bot, kind))
            if not NAME.fullmatch(name):
                yield f"the {kind} of bot {bot} has an invalid name: {name!r}; upload another"
            elif not _is_picture(image.scalar(), bot_pictures.SHAPES.get(kind, pictures.SQUARE)):
                yield f"the {kind} of bot {bot} is damaged: upload another"
        for kind, column in bot_pictures.COLUMNS.items():
            for bot, url in db.database.stream(f"SELECT id, {column} FROM bot WHERE {column} <> ''"):
                if _is_missing(url, bot_pictures.FOLDER, names.get((bot, kind)), settings):
                    yield f"bot {bot} has a missing {kind}: {url}; upload another"

    with db.snapshot():
        yield from errors_or_ok("bot pictures", errors(), f"{len(names):,} covers and icons of bots")


def _is_missing(url: str, folder: str, name: str | None, settings: Settings) -> bool:
    """Return whether an address is one of this service and the stored picture has another name."""
    before, found, wanted = url.rpartition(folder)
    return bool(found) and before in ("", settings.public_url.rstrip("/")) and name != wanted


def _is_picture(image: str | None, shape: pictures.Shape) -> bool:
    try:
        return pictures.is_cropped(base64.b64decode(image or "", validate=True), shape)
    except (ValueError, TypeError):
        return False


def check_clock(_: Settings) -> Iterator[Finding]:
    """Check that the clock is not behind stored times; the service would continue from those until it catches up."""
    now = clock.host_time()
    if db.database.kind == "postgresql":  # then the clock of the server is used
        (now,) = db.database.execute_sql("SELECT (extract(epoch FROM now()) * 1000)::bigint").fetchone()
    login = int(db.database.execute_sql("SELECT max(rotated_at) FROM login_session").fetchone()[0] or 0)
    newest = db.database.execute_sql("SELECT max(id) FROM message").fetchone()[0]
    sent = clock.ulid_time(clock.read_ulid(newest)) if newest else 0
    text = f"the clock is at {clock.timestamp(now)}"
    if login > now + CLOCK_TOLERANCE:
        yield error("clock", f"{text}, but the last login was at {clock.timestamp(login)}: set the clock")
    elif sent > now + CLOCK_TOLERANCE:
        yield warning("clock", f"{text}, but message {newest} was sent at {clock.timestamp(sent)}: check the clock")
    else:
        yield ok("clock", text)


def check_audit(_: Settings) -> Iterator[Finding]:
    """Check that no entry of the audit log was altered."""
    try:
        head = AuditLog.verify()
    except BrokenChain as problem:
        yield error("audit", str(problem))
    else:
        yield ok("audit", f"entries of the audit log: {head.position:,}")


def check_derived(_: Settings) -> Iterator[Finding]:
    """Check derived values: totals of chat sessions, owners of messages, search texts and search indexes."""

    def errors() -> Iterator[str]:
        shown = "SELECT count(*) FROM message WHERE chat_session_id = chat_session.id AND deleted_at IS NULL"
        totals = f"""SELECT id FROM chat_session WHERE active_at IS NULL OR shown_total <> ({shown})
            OR public_total <> ({shown} AND NOT is_private) ORDER BY id"""
        for (id,) in db.database.stream(totals):
            yield f"chat_session {id}: its totals differ from its messages: {ADVICE}"
        owner = Message.owner_id.of_identifier(ChatSession.user_id)
        app = Message.app_id.of_identifier(ChatSession.app_id)
        differs = Message.owner_id.is_null() | (Message.owner_id != owner) | Message.app_id.is_null()
        joined = Message.select(Message.id).join(ChatSession, on=(ChatSession.id == Message.chat_session_id))
        owners, _ = joined.where(differs | (Message.app_id != app)).order_by(Message.id).sql()
        for (id,) in db.database.stream(owners):
            yield f"message {id}: its owner or app differs from its chat session: {ADVICE}"
        texts = "SELECT id, content, gdpr_purged_at, plain_text, search_text FROM message ORDER BY id"
        for id, content, purged, plain_text, search_text in db.database.stream(texts):
            text = "" if purged else text_in(content)
            if plain_text != text or searched_text(text, search_text) != fold(text):
                yield f"message {id}: its search text differs from its content: {ADVICE}"
        for id, search_text, *texts in db.database.stream(
            f"SELECT id, search_text, {', '.join(SEARCH_COLUMNS)} FROM bot"
        ):
            if search_text != search_text_of(texts):
                yield f"bot {id}: its search text differs from its profile: {ADVICE}"
        yield from _answer_errors()
        for (id,) in db.database.stream(UNINDEXED) if db.database.kind == "sqlite" else ():
            yield f"bot {id}: it is missing from the search index: `copy` to a new database"

    with db.snapshot():
        yield from errors_or_ok("derived", errors(), "totals, owners, search texts and indexes are consistent")


def _answer_errors() -> Iterator[str]:
    """Yield an error for each canned answer whose words or index rows differ from its question."""
    for id, rows in itertools.groupby(db.database.stream(INDEXED_ANSWERS), operator.itemgetter(0)):
        (_, is_indexed, bot_id, words, _, question), *indexed = rows
        if is_indexed:
            yield f"bot_answer {id}: it is indexed but missing: `export` to a file and `import` it into a new database"
            continue
        found = {(bot, word, weight, id) for _, _, bot, word, weight, _ in indexed}
        if words != words_in(question) or found != set(canned_answer_index.rows_of(id, bot_id, words)):
            yield f"bot_answer {id}: its search index differs from its question: {ADVICE}"

"""Checks of what is in the tables: keys, pictures, times, and what is kept twice."""

import base64
import itertools
import operator
from collections.abc import Iterator

from service import clock, db, pictures
from service.doctor.findings import Finding, each, fault, ok, warning
from service.formats import fold
from service.models import Avatar, Ledger, answer_index
from service.models.answering import words_in
from service.models.bots import SEARCHED, searchable
from service.models.contents import text_in
from service.models.ledger import Broken
from service.models.pictures import FOLDER, NAME
from service.settings import Settings

# Each prepared answer, and then its rows in the index.
INDEXED_ANSWERS = """SELECT id, 0 AS part, bot_id, words, 0 AS weight, question FROM bot_answer
    UNION ALL SELECT answer_id, 1, bot_id, word, weight, '' FROM bot_answer_word ORDER BY 1, 2"""

LEEWAY = clock.MINUTE  # by which clocks may differ
MEND = "`export` to a file and `import` it again to settle it"
UNINDEXED = """SELECT id FROM bot WHERE id NOT IN
    (SELECT bot_id FROM bot_number WHERE number IN (SELECT rowid FROM bot_trigrams)) ORDER BY id"""


def check_keys(_: Settings) -> Iterator[Finding]:
    """There is a signing key, and all of them can be read."""
    keys = db.database.execute_sql("SELECT id, secret FROM signing_key").fetchall()
    bad = [id for id, secret in keys if not _is_secret(secret)]
    if not keys:
        was_used = db.database.execute_sql("SELECT 1 FROM login_session LIMIT 1").fetchone()
        text = "there is no signing key: the next start makes one"
        yield fault("keys", f"{text}, and everybody has to log in again") if was_used else warning("keys", text)
    else:
        text = "is damaged: restore a backup, or delete it, which ends what it signed"
        yield from each("keys", (f"signing_key {id} {text}" for id in bad), f"signing keys: {len(keys)}")


def _is_secret(text: object) -> bool:
    return isinstance(text, str) and len(text) == 64 and not text.strip("0123456789abcdef")


def check_avatars(settings: Settings) -> Iterator[Finding]:
    """Every picture can be shown, and whoever is said to show one has it."""
    held = dict(db.database.execute_sql("SELECT user_id, name FROM avatar ORDER BY user_id").fetchall())

    def wrong() -> Iterator[str]:
        for user, name in held.items():
            if not NAME.fullmatch(name):
                yield f"the picture of user {user} has an impossible name: {name!r}; upload another"
            elif not _is_picture(user):
                yield f"the picture of user {user} cannot be shown: upload another"
        for user, url in db.database.stream("""SELECT id, profile_image FROM "user" WHERE profile_image <> ''"""):
            before, folder, name = url.rpartition(FOLDER)
            if folder and before in ("", settings.public_url.rstrip("/")) and held.get(user) != name:
                yield f"user {user} shows a picture that is not there: {url}; upload another"

    with db.snapshot():
        yield from each("avatars", wrong(), f"{len(held):,} pictures")


def _is_picture(user: str) -> bool:
    image = Avatar.select(Avatar.image).where(Avatar.user_id == user).scalar()
    try:
        return pictures.is_avatar(base64.b64decode(image or "", validate=True))
    except (ValueError, TypeError):
        return False


def check_clock(_: Settings) -> Iterator[Finding]:
    """The clock is not behind what was written, to which the service would hold until it has caught up."""
    now = clock.host_time()
    if db.database.kind == "postgresql":  # whose clock is the one that counts
        (now,) = db.database.execute_sql("SELECT (extract(epoch FROM now()) * 1000)::bigint").fetchone()
    login = int(db.database.execute_sql("SELECT max(rotated_at) FROM login_session").fetchone()[0] or 0)
    newest = db.database.execute_sql("SELECT max(id) FROM message").fetchone()[0]
    said = clock.ulid_time(clock.read_ulid(newest)) if newest else 0
    text = f"the clock says {clock.timestamp(now)}"
    if login > now + LEEWAY:
        yield fault("clock", f"{text}, and somebody logged in at {clock.timestamp(login)}: set the clock")
    elif said > now + LEEWAY:
        yield warning("clock", f"{text}, and message {newest} is of {clock.timestamp(said)}: is it behind?")
    else:
        yield ok("clock", text)


def check_ledger(_: Settings) -> Iterator[Finding]:
    """Nothing of the ledger was altered."""
    try:
        head = Ledger.verify()
    except Broken as error:
        yield fault("ledger", str(error))
    else:
        yield ok("ledger", f"entries of the ledger: {head.position:,}")


def check_derived(_: Settings) -> Iterator[Finding]:
    """What is kept twice agrees: totals of chat sessions, owners of messages, what searches go through."""

    def wrong() -> Iterator[str]:
        shown = "SELECT count(*) FROM message WHERE chat_session_id = chat_session.id AND deleted_at IS NULL"
        totals = f"""SELECT id FROM chat_session WHERE active_at IS NULL OR shown_total <> ({shown})
            OR public_total <> ({shown} AND NOT is_private) ORDER BY id"""
        for (id,) in db.database.stream(totals):
            yield f"chat_session {id}: its totals are not those of its messages: {MEND}"
        owners = """SELECT message.id FROM message JOIN chat_session ON chat_session.id = chat_session_id
            WHERE owner_id IS NULL OR owner_id <> user_id OR message.app_id IS NULL
            OR message.app_id <> chat_session.app_id ORDER BY message.id"""
        for (id,) in db.database.stream(owners):
            yield f"message {id}: its owner or app is not that of its chat session: {MEND}"
        texts = "SELECT id, content, gdpr_purged_at, plain_text, search_text FROM message ORDER BY id"
        for id, content, purged, *kept in db.database.stream(texts):
            text = "" if purged else text_in(content)
            if kept != [text, fold(text)]:
                yield f"message {id}: searches go through another text than it has: {MEND}"
        for id, kept, *texts in db.database.stream(f"SELECT id, search_text, {', '.join(SEARCHED)} FROM bot"):
            if kept != searchable(texts):
                yield f"bot {id}: searches go through another text than it has: {MEND}"
        yield from _wrong_answers()
        for (id,) in db.database.stream(UNINDEXED) if db.database.kind == "sqlite" else ():
            yield f"bot {id}: searches do not find it: `copy` to a new database"

    with db.snapshot():
        yield from each("derived", wrong(), "totals, owners, searched texts and words agree with what they come from")


def _wrong_answers() -> Iterator[str]:
    """Prepared answers whose words or whose index are not those of their questions."""
    for id, rows in itertools.groupby(db.database.stream(INDEXED_ANSWERS), operator.itemgetter(0)):
        (_, is_indexed, bot_id, words, _, question), *indexed = rows
        if is_indexed:
            yield f"bot_answer {id}: it is indexed but not there: `export` to a file and `import` it elsewhere"
            continue
        found = {(bot, word, weight, id) for _, _, bot, word, weight, _ in indexed}
        if words != words_in(question) or found != set(answer_index.rows_of(id, bot_id, words)):
            yield f"bot_answer {id}: messages are compared with other words than its question has: {MEND}"

"""Step 7: the languages of the customer's browser in chat sessions; an index of ended login sessions; messages that are
deleted for the customer only; an index of the words of canned questions.
"""

from collections.abc import Callable

from service import db, responder

BATCH = 500  # canned answers
COLUMNS = ("bot_id", "word", "weight", "answer_id")
BOT_ANSWER_WORD = f"""CREATE TABLE bot_answer_word (
    bot_id TEXT NOT NULL,
    word TEXT NOT NULL,
    weight BIGINT NOT NULL,
    answer_id TEXT NOT NULL,
    PRIMARY KEY ({", ".join(COLUMNS)})
)"""


def index_answers() -> None:
    """Fill the word index with the existing canned answers."""
    param = db.database.param
    select = f"SELECT id, bot_id, words FROM bot_answer WHERE id > {param} ORDER BY id LIMIT {BATCH}"
    last = ""
    while found := db.database.execute_sql(select, (last,)).fetchall():
        rows = []
        for last, bot_id, words in found:
            own = frozenset(words.split())
            rows += [(bot_id, key, responder.weight(own), last) for key in responder.keys(own)]
        db.database.bulk_insert("bot_answer_word", COLUMNS, sorted(rows))


STATEMENTS: tuple[str | dict[str, str] | Callable[[], None], ...] = (
    "ALTER TABLE chat_session ADD COLUMN accept_language TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE message ADD COLUMN hidden_at TEXT",
    "CREATE INDEX login_session_ended ON login_session (ended_at) WHERE (ended_at IS NOT NULL)",
    {"sqlite": f"{BOT_ANSWER_WORD} WITHOUT ROWID", "postgresql": BOT_ANSWER_WORD},
    index_answers,
)

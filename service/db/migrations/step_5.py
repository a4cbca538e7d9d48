"""Step 5: a trigram index for searches of bots on SQLite; PostgreSQL has one since step 2.

The table `bot_number` numbers the rows: without an integer key, rowids may change when the file is rewritten.
"""

ADD_ENTRY = """INSERT INTO bot_trigrams (rowid, search_text)
    SELECT number, new.search_text FROM bot_number WHERE bot_id = new.id;"""
REMOVE_ENTRY = """INSERT INTO bot_trigrams (bot_trigrams, rowid, search_text)
    SELECT 'delete', number, old.search_text FROM bot_number WHERE bot_id = old.id;"""

TRIGGERS = (
    f"""CREATE TRIGGER bot_inserted AFTER INSERT ON bot BEGIN
        INSERT INTO bot_number (bot_id) VALUES (new.id);
        {ADD_ENTRY}
    END""",
    f"""CREATE TRIGGER bot_changed AFTER UPDATE OF id, search_text ON bot
        WHEN old.id <> new.id OR old.search_text <> new.search_text BEGIN
        {REMOVE_ENTRY}
        UPDATE bot_number SET bot_id = new.id WHERE bot_id = old.id;
        {ADD_ENTRY}
    END""",
    f"""CREATE TRIGGER bot_deleted AFTER DELETE ON bot BEGIN
        {REMOVE_ENTRY}
        DELETE FROM bot_number WHERE bot_id = old.id;
    END""",
)

STATEMENTS: tuple[dict[str, str], ...] = tuple(
    {"sqlite": statement}
    for statement in (
        "CREATE TABLE bot_number (number INTEGER NOT NULL PRIMARY KEY, bot_id TEXT NOT NULL UNIQUE)",
        """CREATE VIRTUAL TABLE bot_trigrams USING fts5 (
            search_text, content='', detail=none, tokenize='trigram case_sensitive 1'
        )""",
        "INSERT INTO bot_number (bot_id) SELECT id FROM bot ORDER BY id",
        """INSERT INTO bot_trigrams (rowid, search_text)
            SELECT number, search_text FROM bot_number JOIN bot ON bot.id = bot_id ORDER BY number""",
        *TRIGGERS,
    )
)

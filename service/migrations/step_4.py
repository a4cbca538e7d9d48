"""Step 4: the ledger."""

# Where SQLite keeps each entry once, in their order, and no index beside them could differ.
POSITION = {"sqlite": "INTEGER", "postgresql": "BIGINT"}

STATEMENTS: tuple[dict[str, str], ...] = (
    {
        kind: f"""CREATE TABLE ledger (
            position {number} NOT NULL PRIMARY KEY,
            created_at TEXT NOT NULL,
            kind TEXT NOT NULL,
            actor_id TEXT NOT NULL,
            subject_id TEXT NOT NULL,
            details TEXT NOT NULL,
            hash TEXT NOT NULL
        )"""
        for kind, number in POSITION.items()
    },
)

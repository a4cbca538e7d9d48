"""The records that `serve --demo` imports. `make` generates them, from a package and `story.toml`."""

from pathlib import Path

RECORDS = Path(__file__).with_name("records.jsonl")

"""The demo's records, as `serve --demo` imports them; `make` and `story.toml` are what they were made of."""

from pathlib import Path

RECORDS = Path(__file__).with_name("records.jsonl")

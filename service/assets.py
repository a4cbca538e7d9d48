"""Where the pages' parts are: beside the package in a checkout, inside it once installed."""

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent


DEMO = _PACKAGE / "demo.jsonl"
"""The demo's records, which the build puts into the executable."""


def folder(kind: str) -> Path:
    """The folder `static` or `templates`."""
    inside = _PACKAGE / kind
    return inside if inside.is_dir() else _PACKAGE.parent / kind

"""Where the pages' parts are: beside the package in a checkout, inside it once installed."""

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent


def folder(kind: str) -> Path:
    """The folder `static` or `templates`."""
    inside = _PACKAGE / kind
    return inside if inside.is_dir() else _PACKAGE.parent / kind


def parts() -> dict[str, Path]:
    """The files that pages load, by their names below `/static/`; nothing else can be asked for."""
    root = folder("static")
    return {file.relative_to(root).as_posix(): file for file in root.rglob("*") if file.is_file()}


def type_of(file: Path) -> str:
    """The media type of a part of the pages, whatever the host believes; a licence, say, is plain text."""
    kinds = {".css": "text/css", ".js": "text/javascript", ".json": "application/json", ".svg": "image/svg+xml"}
    return f"{kinds.get(file.suffix, 'text/plain')}; charset=utf-8"

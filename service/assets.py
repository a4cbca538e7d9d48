"""The folders static/ and templates/: beside the package in a checkout, inside the package once installed."""

import functools
import gzip
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent


def folder(kind: str) -> Path:
    """Return the folder `static` or `templates`."""
    inside = _PACKAGE / kind
    return inside if inside.is_dir() else _PACKAGE.parent / kind


def static_files() -> dict[str, Path]:
    """Return the files that pages load, by their path below `/static/`. No other files are served."""
    root = folder("static")
    files = (file.with_suffix("") if file.suffix == ".gz" else file for file in root.rglob("*") if file.is_file())
    return {file.relative_to(root).as_posix(): file for file in files}


def content(file: Path) -> bytes:
    """Return a static file."""
    return file.read_bytes() if file.exists() else gzip.decompress(compressed(file))


@functools.cache
def compressed(file: Path) -> bytes:
    """Return a static file, compressed with gzip: as it is in the executable, or in a checkout at its first request."""
    beside = file.with_name(f"{file.name}.gz")
    return beside.read_bytes() if beside.exists() else gzip.compress(file.read_bytes(), mtime=0)


def media_type(file: Path) -> str:
    """Return the media type of a static file, whatever the host's configuration; `text/plain` for unknown suffixes."""
    kinds = {".css": "text/css", ".js": "text/javascript", ".json": "application/json", ".svg": "image/svg+xml"}
    return f"{kinds.get(file.suffix, 'text/plain')}; charset=utf-8"

"""The undocumented parts of libraries that the service uses, and the versions in which they have been checked.

When an upgrade fails here: compare the parts below in the new version, run the tests of the named modules, then change
the version here and in setup.cfg, and run `make relock`.
"""

import ast
import configparser
import importlib
import importlib.metadata
import inspect
import logging
import re
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from tests.support.paths import ROOT


class Library(NamedTuple):
    """A library whose undocumented parts are used."""

    version: str
    check: str  # what to check in another version
    parts: dict[str, str]  # object, or class and attribute of its instances: the module that uses it


LIBRARIES = {
    "peewee": Library(
        "4.5.3",
        "that these parts exist and mean the same, in its source, by the tests in tests/db",
        {
            "peewee.__exception_wrapper__": "service/db/engine.py",
            "peewee._savepoint.rollback": "service/db/engine.py",
            "peewee._savepoint.commit": "service/db/engine.py",
            "peewee.psycopg": "service/db/postgresql.py",
            "peewee.Database:_lock": "service/db/postgresql.py",
            "peewee.Database:_state": "service/db/sqlite.py",
            "peewee._ConnectionState:closed": "service/db/sqlite.py",
            "peewee._ConnectionState:conn": "service/db/sqlite.py",
            "peewee._ConnectionState:transactions": "service/db/sqlite.py",
            "peewee.SqliteDatabase._connect": "service/db/sqlite.py",
            "peewee.PostgresqlDatabase._connect": "service/db/postgresql.py",
            "peewee.Context:_values": "service/db/compiled_queries.py",
            "peewee.Field:_order": "service/fields.py",
            "peewee.Model:__data__": "service/db/__init__.py",
            "peewee.Model:__no_default__": "service/db/__init__.py",
            "peewee.Model:_dirty": "service/db/__init__.py",
            "peewee.ModelBase:_meta": "service/db/__init__.py",
            "peewee.Metadata:sorted_fields": "service/db/__init__.py",
            "peewee.Metadata:table_name": "service/db/trigrams.py",
            "peewee.Metadata:primary_key": "service/fields.py",
            "peewee.Metadata:indexes": "service/db/__init__.py",
            "peewee.Metadata.get_default_dict": "service/db/__init__.py",
            "peewee.Metadata.get_primary_keys": "service/operate/database_copy.py",
            "peewee.Index:_expressions": "service/db/__init__.py",
            "peewee.Index:_unique": "service/db/__init__.py",
        },
    ),
    "waitress": Library(
        "3.0.2",
        "the subclasses in service/server against the source of the base classes, by the tests in tests/server",
        {
            "waitress.server.TcpWSGIServer.accept": "service/server/__init__.py",
            "waitress.server.TcpWSGIServer.add_task": "service/server/connection.py",
            "waitress.server.TcpWSGIServer.del_channel": "service/server/__init__.py",
            "waitress.server.TcpWSGIServer.handle_accept": "service/server/__init__.py",
            "waitress.server.TcpWSGIServer.pull_trigger": "service/server/__init__.py",
            "waitress.server.TcpWSGIServer.readable": "service/server/__init__.py",
            "waitress.server.TcpWSGIServer.set_socket_options": "service/server/__init__.py",
            "waitress.server.TcpWSGIServer:active_channels": "service/server/__init__.py",
            "waitress.server.TcpWSGIServer:asyncore": "service/server/__init__.py",
            "waitress.server.TcpWSGIServer:task_dispatcher": "service/server/__init__.py",
            "waitress.task.ThreadedTaskDispatcher.set_thread_count": "service/server/__init__.py",
            "waitress.task.ThreadedTaskDispatcher:active_count": "service/server/__init__.py",
            "waitress.task.ThreadedTaskDispatcher:lock": "service/server/__init__.py",
            "waitress.task.ThreadedTaskDispatcher.shutdown": "service/server/__init__.py",
            "waitress.channel.HTTPChannel._flush_some": "service/server/connection.py",
            "waitress.channel.HTTPChannel.handle_close": "service/server/connection.py",
            "waitress.channel.HTTPChannel.received": "service/server/connection.py",
            "waitress.channel.HTTPChannel.send_continue": "service/server/connection.py",
            "waitress.channel.HTTPChannel:close_when_flushed": "service/server/connection.py",
            "waitress.channel.HTTPChannel:current_outbuf_count": "service/server/connection.py",
            "waitress.channel.HTTPChannel:outbuf_lock": "service/server/connection.py",
            "waitress.channel.HTTPChannel:outbufs": "service/server/connection.py",
            "waitress.channel.HTTPChannel:total_outbufs_len": "service/server/connection.py",
            "waitress.channel.HTTPChannel:will_close": "service/server/connection.py",
            "waitress.buffers.OverflowableBuffer": "service/server/connection.py",
            "waitress.buffers.TempfileBasedBuffer": "service/server/connection.py",
            "waitress.parser.HTTPRequestParser.parse_header": "service/server/http_parser.py",
            "waitress.parser.HTTPRequestParser.received": "service/server/http_parser.py",
            "waitress.parser.HTTPRequestParser:body_rcv": "service/server/http_parser.py",
            "waitress.parser.HTTPRequestParser:header_plus": "service/server/http_parser.py",
            "waitress.parser.HTTPRequestParser:headers_finished": "service/server/connection.py",
            "waitress.parser.unquote_bytes_to_wsgi": "service/server/http_parser.py",
            "waitress.receiver.ChunkedReceiver:chunk_remainder": "service/server/http_parser.py",
            "waitress.receiver.ChunkedReceiver:completed": "service/server/http_parser.py",
            "waitress.receiver.FixedStreamReceiver": "service/server/http_parser.py",
            "waitress.wasyncore.close_all": "service/server/__init__.py",
            "waitress.wasyncore.read": "service/server/event_loop.py",
            "waitress.wasyncore.write": "service/server/event_loop.py",
            "waitress.wasyncore.dispatcher:_fileno": "service/server/event_loop.py",
            "waitress.wasyncore.file_dispatcher": "service/server/workers.py",
        },
    ),
    "bottle": Library(
        "0.13.4",
        "that `Router.add` calls `_compile` only to make `dyna_regexes`, by the tests in tests/http",
        {
            "bottle.Router._compile": "service/http/application.py",
            "bottle.Router:dyna_routes": "service/http/application.py",
        },
    ),
    "pillow": Library(
        "13.0.0",
        "that the first frame of a WebP still comes from its decoder without a copy, by tests/routes/test_avatars.py",
        {"PIL.WebPImagePlugin.WebPImageFile:_decoder": "service/pictures/__init__.py"},
    ),
}
PYTHONS = {(3, 11), (3, 12), (3, 13)}  # as in setup.cfg, python_requires
STANDARD_LIBRARY = {
    "_srcfile": "service/logs.py",  # logging
    "_signal": "service/interrupts.py",
    **dict.fromkeys(  # argparse
        ("_actions", "_choices_actions", "_format_args", "_get_formatter"), "service/commands/manual.py"
    ),
    "CDLL": "service/server/__init__.py",  # ctypes: `mallopt` of the C library
}
PUBLIC = {
    "_asdict",
    "_fields",
    "_replace",
    "_bucket",
    "_sum",
    "_id",
}  # of named tuples; texts of metrics and of the demo


def has(part: str) -> bool:
    """Whether a part exists: an object, or `class:attribute` of its instances, by the source of the class."""
    path, _, attribute = part.partition(":")
    names = path.split(".")
    found: Any = None
    for count in range(len(names), 0, -1):
        try:
            found = importlib.import_module(".".join(names[:count]))
        except ImportError:
            continue
        for name in names[count:]:
            found = getattr(found, name, None)
        break
    if found is None or not attribute:
        return found is not None
    return any(re.search(rf"\b{attribute}\b", inspect.getsource(base)) for base in found.__mro__ if base is not object)


@pytest.mark.slow
@pytest.mark.parametrize("name", LIBRARIES)
def test_private_parts_of_a_library_are_those_of_the_checked_version(name: str) -> None:
    library = LIBRARIES[name]
    installed = importlib.metadata.version(name)
    missing = [part for part in library.parts if not has(part)]
    assert installed == library.version and not missing, (
        f"{name} {installed} is installed, but private parts were checked with {library.version}. "
        f"Check {library.check}. "
        f"Used are {', '.join(library.parts)}; missing are {missing or 'none'}. "
        f"Then change the version in {__file__} and setup.cfg, and run `make relock`."
    )


def test_private_parts_of_python_are_those_of_the_checked_versions() -> None:
    assert sys.version_info[:2] in PYTHONS and hasattr(logging, "_srcfile"), (
        "check that `logging._srcfile = None` still turns off the search for the caller (Logging HOWTO, Optimization), "
        "that the module `_signal` has `signal` and `getsignal`, that ctypes calls `mallopt`, "
        "and that the parser of argparse has the parts used in service/commands/manual.py; then add this "
        "version of Python"
    )


def test_libraries_with_private_parts_are_pinned_exactly() -> None:
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    pins = {line.partition(";")[0].strip() for line in config["options"]["install_requires"].splitlines()}
    for name, library in LIBRARIES.items():
        assert f"{name}=={library.version}" in pins, f"setup.cfg must pin {name}=={library.version}"


def private_names(tree: ast.AST) -> Iterator[str]:
    """The names with an underscore that a module reads from other objects, also by `vars` and `getattr`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.isidentifier():
            yield node.value
        elif isinstance(node, ast.Import | ast.ImportFrom):
            yield from (alias.name for alias in node.names)


@pytest.mark.slow
def test_all_private_parts_are_listed() -> None:
    """A name counts as private if it begins with one underscore and `service` does not define it."""
    trees = {
        path.relative_to(ROOT).as_posix(): ast.parse(path.read_text()) for path in (ROOT / "service").rglob("*.py")
    }
    own = {
        getattr(node, "name", None) or getattr(node, "id", None) or getattr(node, "attr", "")
        for tree in trees.values()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.ClassDef)
        or (isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store))
    }
    listed = {re.split(r"[.:]", part)[-1] for library in LIBRARIES.values() for part in library.parts}
    listed |= PUBLIC | STANDARD_LIBRARY.keys() | {"_savepoint"}
    unlisted = {
        f"{path}: {name}"
        for path, tree in trees.items()
        for name in private_names(tree)
        if re.match(r"_[a-z]", name) and name not in own | listed
    }
    assert not unlisted, f"list these private parts in {__file__}, with the library's version: {sorted(unlisted)}"


def test_listed_private_parts_are_used() -> None:
    users = [(part, path) for library in LIBRARIES.values() for part, path in library.parts.items()]
    unused = [
        f"{path}: {part}"
        for part, path in [*users, *STANDARD_LIBRARY.items()]
        if re.split(r"[.:]", part)[-1] not in (ROOT / path).read_text()
    ]
    assert not unused, f"these private parts are no longer used there: {unused}"

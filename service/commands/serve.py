"""`serve`: the service itself."""

import argparse
import logging
import os
import socket
from typing import Any

import service.routes  # noqa: F401 (loaded before workers are forked, as is the next one)
import service.web  # noqa: F401
from service import db, logs, origins, server, updates
from service.asking import assistant_of
from service.commands import Stop, demo
from service.settings import Settings

log = logging.getLogger("cx.server")


def add_arguments(_: str, parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--demo", action="store_true", help="fill an empty database with the demo, say how to try it")
    parser.set_defaults(run=run)


def run(flags: argparse.Namespace, settings: Settings) -> int:
    """Prepare the database, listen, and serve until told to stop."""
    import app

    if settings.workers < 1 or settings.threads < 1:
        raise Stop("--workers and --threads must be at least 1")
    assistant_of(settings)  # before anything is opened
    origins.proxy_network(settings.trusted_proxy)
    origins.metrics_networks(settings.metrics_network)
    app.prepare(settings, create=True)
    try:
        sock = server.listen(settings.host, settings.port)
    except (OSError, OverflowError) as error:
        raise Stop(f"cannot listen on {settings.host}:{settings.port}: {getattr(error, 'strerror', error)}") from None
    host, port = sock.getsockname()[:2]
    bound = f"http://{f'[{host}]' if ':' in host else host}:{port}"
    if flags.demo:
        print(demo.present(settings.public_url or bound, settings.documented_only), flush=True)
    if db.has_wal_reset_bug(db.sqlite3.sqlite_version_info):
        version = db.sqlite3.sqlite_version
        log.warning("SQLite %s can damage a database that several connections write to; use 3.51.3 or newer", version)
    db.close_database()  # each worker opens its own
    public = f" (public URL {settings.public_url})" if settings.public_url else ""
    logs.announce(f"cx-service listens on {bound}{public}")
    tell_manager("READY=1")

    def make_application() -> Any:
        return app.build(settings)

    inline_read = db.inline_read if db.database.reads_inline else None
    transaction = db.group_commit if db.database.groups_writes else None
    return server.serve(make_application, sock, settings, updates.news, inline_read, transaction)


def tell_manager(state: str) -> None:
    """Tell systemd how we are, if it has started us and wants to know (sd_notify(3))."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
            channel.connect(address.replace("@", "\0", 1) if address[0] == "@" else address)
            channel.sendall(state.encode())
    except OSError as error:
        log.warning("systemd cannot be told %s: %s", state, error)

"""`serve`: runs the service."""

import argparse
import contextlib
import functools
import logging
import os
import socket
from collections.abc import Callable
from pathlib import Path

import service.http.application  # noqa: F401
import service.routes  # noqa: F401 (this and the next are imported before workers fork)
from service import db, logs, server, updates
from service.assistant.metering import metered_assistant
from service.assistant.reply_worker import Worker
from service.auth import first_admin
from service.branding import branding_of
from service.commands import Stop, demo
from service.http import client_address
from service.outbox.transports import transports_of
from service.settings import Settings

log = logging.getLogger("cx.server")


def add_arguments(_: str, parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--demo", action="store_true", help="import the demo into an empty database, and print a tour")
    parser.set_defaults(run=run)


def run(flags: argparse.Namespace, settings: Settings) -> int:
    """Prepare the database, listen, and serve until a signal ends the process."""
    import app

    if settings.workers < 1 or settings.threads < 1:
        raise Stop("--workers and --threads must be at least 1")
    if flags.demo and settings.address.path and not settings.public_url:
        raise Stop("--demo on a Unix socket needs --public-url")
    metered_assistant(settings)  # this and the next calls validate the settings before anything is opened
    worker_of(settings)
    transports_of(settings)
    branding_of(settings)
    client_address.proxy_network(settings.trusted_proxy)
    client_address.metrics_networks(settings.metrics_network)
    # Before the migration, which must not run under a service of an earlier version.
    lock = None if settings.database else db.lock_for_serving(settings.data, is_shared=settings.share_folder)
    app.prepare(settings, create=True)
    try:
        sock = listen(settings)
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise Stop(f"cannot listen on {settings.address}: {reason}") from None
    bound = bound_url(sock)
    if flags.demo:
        print(demo.present(settings.public_url or bound, settings.documented_only), flush=True)
        settings = demo.storing_mails(settings, settings.public_url or bound)
    with demo.serving_tools(settings) if flags.demo else contextlib.nullcontext(settings) as settings:
        first_step = describe_first_step(settings, bound) if first_admin.is_missing() else ""
        db.close_database()  # each worker opens its own
        public = f" (public URL {settings.public_url})" if settings.public_url else ""
        logs.announce(f"cx-service listens on {bound}{public}")
        if first_step:
            logs.announce(first_step)
        notify_systemd("READY=1")
        inline_read = db.inline_read if db.database.reads_inline else None
        transaction = db.group_commit if db.database.groups_writes else None
        release = lock.release if lock else None
        build = functools.partial(app.build, settings)
        return server.serve(
            build, sock, settings, updates.watch, inline_read, transaction, release, worker_of(settings)
        )


def worker_of(settings: Settings) -> Callable[..., Worker]:
    """Return what makes the worker of the assistant's replies; that with tools is imported only if there are tools.

    Raises ValueError with a sentence for the operator.
    """
    if not settings.mcp:
        return Worker
    from service.assistant.tool_worker import ToolWorker
    from service.assistant.toolbox import Toolbox
    from service.mcp_client.servers import servers_of

    if not settings.assistant_url:
        raise ValueError("--mcp needs --assistant-url")
    return functools.partial(ToolWorker, Toolbox(servers_of(settings)))


def describe_first_step(settings: Settings, bound: str) -> str:
    """Return how to create the first admin."""
    base_url = settings.public_url or bound
    if settings.documented_only or base_url.startswith("unix:"):
        return "There is no admin yet. Create one with: cx-service user add EMAIL --role admin"
    return f"There is no admin yet. Create one in a browser: {first_admin.make_link(base_url)}"


def listen(settings: Settings) -> socket.socket:
    """Return the listening socket. Raises OSError or OverflowError."""
    address = settings.address
    if address.path:
        return server.listen_unix(Path(address.path), int(settings.socket_mode, 8))
    return server.listen(address.host, address.port)


def bound_url(sock: socket.socket) -> str:
    """Return the URL of the address that a socket is bound to; for a Unix socket `unix:` and its path."""
    if sock.family == socket.AF_UNIX:
        return f"unix:{sock.getsockname()}"
    host, port = sock.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def notify_systemd(state: str) -> None:
    """Send a state to systemd, if NOTIFY_SOCKET is set (sd_notify(3))."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
            channel.connect(address.replace("@", "\0", 1) if address[0] == "@" else address)
            channel.sendall(state.encode())
    except OSError as error:
        log.warning("cannot notify systemd of %s: %s", state, error)

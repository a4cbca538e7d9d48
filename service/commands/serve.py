"""`serve`: the service itself."""

import argparse
import logging
import sys
from pathlib import Path
from typing import Any

from service import assets, db, origins, server, transfer
from service.commands import Stop
from service.settings import Settings

log = logging.getLogger("cx.server")

DEMO_EMAIL = "alice@demo.example"
DEMO_PASSWORD = "demo-password"


def add_arguments(_: str, parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--demo", action="store_true", help="fill an empty database with the demo, say how to try it")
    parser.set_defaults(run=run)


def run(flags: argparse.Namespace, settings: Settings) -> int:
    """Prepare the database, listen, and serve until told to stop."""
    import app

    if settings.workers < 1 or settings.threads < 1:
        raise Stop("--workers and --threads must be at least 1")
    origins.proxy_network(settings.trusted_proxy)
    app.prepare(settings)
    try:
        sock = server.listen(settings.host, settings.port)
    except (OSError, OverflowError) as error:
        raise Stop(f"cannot listen on {settings.host}:{settings.port}: {getattr(error, 'strerror', error)}") from None
    host, port = sock.getsockname()[:2]
    url = settings.public_url or f"http://{f'[{host}]' if ':' in host else host}:{port}"
    if flags.demo:
        print(fill_with_demo(url), flush=True)
    if db.has_wal_reset_bug(db.sqlite3.sqlite_version_info):
        version = db.sqlite3.sqlite_version
        log.warning("SQLite %s can damage a database that several connections write to; use 3.51.3 or newer", version)
    db.close_database()  # each worker opens its own
    print(f"cx-service listens on {url}", file=sys.stderr, flush=True)

    def make_application() -> Any:
        return app.build(settings)

    return server.serve(make_application, sock, settings)


def fill_with_demo(url: str) -> str:
    """Import the demo into a database that is still empty; what to try, for people to read."""
    from service.models import ChatSession, User

    if not transfer.count_rows():
        path = demo_file()
        faults = transfer.take_in([path])
        if faults:
            raise Stop(f"the demo cannot be imported: {faults[0]}")
    invented = User.select().where(User.email.endswith("@demo.example")).order_by(User.created_at, User.id)
    people = "\n".join(f"  {user.email:<24} {user.role}" for user in invented)
    alices = ChatSession.select().join(User, on=(ChatSession.user_id == User.id)).where(User.email == DEMO_EMAIL)
    longest = alices.order_by(ChatSession.public_total.desc()).first()
    if longest is None or not people:
        return "The database holds data of its own; the demo was not added."
    credentials = f'{{"email": "{DEMO_EMAIL}", "password": "{DEMO_PASSWORD}"}}'
    login = f"{url}/api/v1/auth/login -H 'Content-Type: application/json' -d '{credentials}'"  # older curls lack --json
    messages = f"{url}/api/v1/chats/{longest.id}/messages"
    return f"""\
Sign in with the password {DEMO_PASSWORD} as
{people}

Try:
  TOKEN=$(curl -s {login} | sed 's/.*"access_token":"\\([^"]*\\)".*/\\1/')
  curl -s -H "Authorization: Bearer $TOKEN" "{messages}?limit=5"
  curl -s -H "Authorization: Bearer $TOKEN" "{messages}?limit=5&direction=backward"
  curl -s -H "Authorization: Bearer $TOKEN" "{url}/api/v1/chats/{longest.id}/pinned-messages"
"""


def demo_file() -> Path:
    """The demo's JSON Lines: in the executable, or made beforehand in a checkout."""
    beside = Path("build") / assets.DEMO.name  # python tests/corpus.py --demo build/demo.jsonl
    for path in (assets.DEMO, beside):
        if path.exists():
            return path
    raise Stop("there is no demo data here: use the executable that `make build` makes")

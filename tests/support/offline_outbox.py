"""Serves with e-mail, push and a webhook, none of which can be reached, and prints responses and the outbox as JSON.

python -m tests.support.offline_outbox FOLDER    for a network namespace with only loopback
"""

import base64
import contextlib
import json
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from service import db
from service.models import Delivery
from tests.support import demo_tour
from tests.support.server_process import SESSION, TIMEOUT, Served, chat, command, fill, log_in_staff, serving

VARIABLES: dict[str, Any] = {
    "CX_SMTP": "smtps://mail.example",
    "CX_MAIL_FROM": "shop@chat.example",
    "CX_PUBLIC_URL": "https://chat.example",
    "CX_NTFY": "https://push.example",
    "CX_WEBHOOK": "https://hooks.example/chat",
    "CX_WEBHOOK_SECRET": "whsec_" + base64.b64encode(bytes(32)).decode(),
}


@contextlib.contextmanager
def opened(data: Path) -> Iterator[None]:
    db.open_database(data)
    try:
        yield
    finally:
        db.release_database()


def requests(served: Served, staff: str) -> Iterator[int]:
    """Send requests of a customer and of staff. Yield the statuses."""
    token = served.log_in()
    path = f"/api/v1/chats/{SESSION}"
    for method, target, body, caller in (
        ("POST", "/api/v1/users/me/push-topic", None, token),
        ("POST", "/api/v1/users/me/email-verification", None, token),
        ("POST", f"{path}/messages", {"content": {"text": "Hello"}}, token),
        ("POST", f"{path}/messages", {"content": {"text": "Good morning"}}, staff),
        ("GET", f"{path}/messages", None, token),
        ("GET", "/api/v1/notifications", None, token),
        ("POST", f"{path}/end", None, token),
        ("GET", "/readyz", None, ""),
    ):
        yield served.call(method, target, body, caller).status


def wait_for_attempts(data: Path) -> None:
    """Make everything due that has not been tried, until a delivery through each channel has failed once."""
    begun = time.monotonic()
    with opened(data):
        while {row.channel for row in Delivery.select().where(Delivery.error != "")} != {"email", "push", "webhook"}:
            assert time.monotonic() - begun < TIMEOUT, [row.info for row in Delivery.select()]
            Delivery.update(due_at=0).where(Delivery.attempts == 0).execute()
            time.sleep(0.1)


def main(folder: str) -> None:
    demo_tour.raise_loopback()
    data = Path(folder, "data")
    fill(data, chat(0))
    with serving(data, **VARIABLES) as served:
        statuses = [*requests(served, log_in_staff(served, data))]
        wait_for_attempts(data)
        statuses += [*requests(served, served.log_in("agent@example.com"))]
        status = served.stop()
    lines = command("delivery", "list", "--json", "--data", data).stdout.splitlines()
    interfaces = [name for _, name in socket.if_nameindex()]
    found = {"statuses": statuses, "exit": status, "deliveries": [json.loads(line) for line in lines]}
    print(json.dumps({"interfaces": interfaces, **found}))


if __name__ == "__main__":
    main(*sys.argv[1:])

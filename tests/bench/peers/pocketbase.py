"""The measured operations on PocketBase, with the built-in API of its collections.

Choices in its favour:

- The request log is off. Totals are not counted where the service returns none. The page of notifications lacks the
  unread count, and the settings lack their defaults: either would need another request or a hook.
- A message has the owner of its chat session, so that its rule needs no join; the service stores the same.
- No notifications, no replies of bots, and no update of the last activity of a chat session.
- Texts and times are stored in the format of the responses, except for the times that PocketBase sets itself.

The same requirements as for the service: read the user of the token at every request, which is how tokens are revoked;
check the owner of the chat session by rules; commit with synchronous=FULL, which a hook sets for the only connection
that writes (the default is NORMAL). It is one process that uses all processors.
"""

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.bench.dataset import ALICE, BOB, EMAIL, NOTES, PASSWORD, RARE, SHOP, TALK, pinnable
from tests.bench.processes import Server, running

ADMIN = {"identity": "admin@example.com", "password": PASSWORD}
DURABLE = 'onBootstrap((e) => { e.next(); e.app.nonconcurrentDB().newQuery("PRAGMA synchronous = FULL").execute() })'
JSON = {"Content-Type": "application/json"}

OWN = "user_id = @request.auth.id"
SHOWN = f"{OWN} && deleted_at = '' && is_private = false"
WRITTEN = f"{OWN} && chat_session_id.user_id = @request.auth.id"

TEXTS, BOOLS, DOCUMENTS = "text", "bool", "json"

# By collection: fields by kind, rule for reading and for writing, indexes.
COLLECTIONS: dict[str, tuple[dict[str, str], str, str | None, tuple[str, ...]]] = {
    "chat_session": ({TEXTS: "app_id conversation_id status created_at"}, OWN, None, ()),
    "message": (
        {
            TEXTS: "conversation_id identity_id sender_id sender_type channel status content_type reply_to_message_id "
            "action_id action_source_id edited_at deleted_at gdpr_purged_at gdpr_original_content_type pinned_at",
            BOOLS: "is_edited is_pinned is_private is_read_once gdpr_purged",
            DOCUMENTS: "content original_content translations reply_snapshot action_payload",
            "autodate": "created_at updated_at",
        },
        SHOWN,
        WRITTEN,
        ("(chat_session_id, id, deleted_at, is_private, user_id)", "(chat_session_id, pinned_at)"),
    ),
    "bot": (
        {
            TEXTS: "app_id name slug tagline description category kind status presence country region city "
            "accent_color brand_color cover_url icon_url contact_email contact_phone contact_website created_at "
            "updated_at",
            BOOLS: "is_active is_featured",
            DOCUMENTS: "social_links",
            "number": "rating",
        },
        "@request.auth.id != '' && is_active = true && status = 'published'",
        None,
        ("(app_id, is_active, status, is_featured DESC, rating DESC, name, id, tagline, description)",),
    ),
    "notification": (
        {
            TEXTS: "type title body conversation_id session_id read_at created_at",
            BOOLS: "is_read",
            DOCUMENTS: "payload",
        },
        OWN,
        None,
        ("(user_id, created_at, id)",),
    ),
    "event": (
        {
            TEXTS: "app_id title notes starts_at ends_at reminder_at source source_event_id created_at updated_at",
            BOOLS: "is_time_sensitive",
        },
        OWN,
        None,
        ("(user_id, starts_at, id)",),
    ),
    "feedback": (
        {
            TEXTS: "feedback_type description app_version screenshot_url status",
            DOCUMENTS: "device_info",
            "autodate": "created_at updated_at",
        },
        OWN,
        OWN,
        ("(user_id, created_at, id)",),
    ),
}


@contextmanager
def serving(program: Path, folder: Path) -> Iterator[Server]:
    """Run PocketBase on a data folder."""
    hooks = folder / "hooks"
    hooks.mkdir(parents=True, exist_ok=True)
    (hooks / "durable.pb.js").write_text(DURABLE)
    line = [program, "serve", "--http", "127.0.0.1:{port}", "--dir", folder, "--hooksDir", hooks]
    with running([*line, "--hooksWatch=false", "--automigrate=false", "--publicDir", hooks], folder) as server:
        yield server


def create(program: Path, folder: Path) -> None:
    """Create the collections and the two users, through its commands and API."""
    folder.mkdir(parents=True)
    line = [program, "superuser", "upsert", *ADMIN.values(), "--dir", folder]
    subprocess.run(line, check=True, stdout=subprocess.DEVNULL)
    with serving(program, folder) as server:
        admin = log_in(server, "_superusers", ADMIN)
        call(server, "PATCH", "/api/settings", admin, {"logs": {"maxDays": 0}, "batch": {"enabled": False}})
        users = call(server, "GET", "/api/collections/users", admin)
        fields = [identifier(), *(field for field in users["fields"] if field["name"] != "id")]
        call(
            server,
            "PATCH",
            "/api/collections/users",
            admin,
            {"fields": [*fields, {"name": "settings", "type": DOCUMENTS}]},
        )
        made = {"users": users["id"]}
        for name in COLLECTIONS:
            made[name] = call(server, "POST", "/api/collections", admin, collection(name, made))["id"]
        for id, email in ((ALICE, EMAIL), (BOB, "bob@example.com")):
            user = {"id": id, "email": email, "password": PASSWORD, "passwordConfirm": PASSWORD}
            call(server, "POST", "/api/collections/users/records", admin, user)


def identifier() -> dict[str, Any]:
    """Return the definition of an identifier that accepts those of the service."""
    form = {"min": 15, "max": 36, "pattern": "^[0-9A-Za-z-]+$", "autogeneratePattern": "[0-9A-Z]{26}"}
    return {"name": "id", "type": "text", "system": True, "primaryKey": True, "required": True, **form}


def collection(name: str, made: dict[str, str]) -> dict[str, Any]:
    """Return the definition of a collection for its API."""
    kinds, reading, writing, indexes = COLLECTIONS[name]
    fields = [identifier()]
    for kind, names in kinds.items():
        options: dict[str, Any] = {"max": 20_000} if kind == TEXTS else {}
        for field in names.split():
            if kind == "autodate":
                options = {"onCreate": True, "onUpdate": field == "updated_at"}
            fields.append({"name": field, "type": kind, "hidden": field == "pinned_at", **options})
    links = {"user_id": "users"} if OWN in reading else {}
    for field, table in (links | ({"chat_session_id": "chat_session"} if name == "message" else {})).items():
        link = {"name": field, "type": "relation", "collectionId": made[table], "required": True}
        fields.append({**link, "hidden": name == "notification"})
    return {
        "name": name,
        "type": "base",
        "fields": fields,
        "listRule": reading,
        "viewRule": reading,
        "createRule": writing,
        "updateRule": writing,
        "indexes": [f"CREATE INDEX {name}_{number} ON {name} {on}" for number, on in enumerate(indexes)],
    }


def log_in(server: Server, collection: str, credentials: dict[str, str]) -> str:
    """Return a token."""
    return str(call(server, "POST", f"/api/collections/{collection}/auth-with-password", "", credentials)["token"])


def call(server: Server, method: str, path: str, token: str, body: Any = None) -> Any:
    headers = JSON | ({"Authorization": token} if token else {})
    response = server.send(method, path, json.dumps(body).encode() if body is not None else b"", headers)
    assert response.status < 300, f"{method} {path}: {response.status} {response.body.decode()}"
    return json.loads(response.body)


def records(collection: str, query: str) -> list[tuple[str, str, Any]]:
    return [("GET", f"/api/collections/{collection}/records?{query}", None)]


def requests(work: str) -> list[tuple[str, str, Any]]:
    """Return method, path and body of each request of an operation."""
    feed = f"filter=(app_id='{SHOP}')&sort=-is_featured,-rating,name,id&perPage=25&skipTotal=1"
    found_in = "||".join(f"{member}~'{RARE}'" for member in ("name", "tagline", "description"))
    talk = f"filter=(chat_session_id='{TALK}')&sort=id"
    notes = {
        "chat_session_id": NOTES,
        "user_id": ALICE,
        "sender_id": ALICE,
        "sender_type": "user",
        "content": list(b'{"text":"Hello"}'),
    }
    notes |= {"channel": "web", "status": "sent", "content_type": "text"}
    notes |= dict.fromkeys(("original_content", "translations", "reply_snapshot", "action_payload"), [])
    feedback = {"user_id": ALICE, "description": "Fine", "feedback_type": "praise"}
    feedback |= {"app_version": "1.0", "status": "new", "device_info": list(b'{"os":"Plan 9"}')}
    pinning = [
        ("PATCH", f"/api/collections/message/records/{message}?fields=is_pinned", {"is_pinned": on, "pinned_at": at})
        for on, at in ((True, "2026-11-20T10:00:00.000Z"), (False, ""))
        for _, message in pinnable()
    ]
    found: list[tuple[str, str, Any]] = {
        "page": records("message", f"{talk}&perPage=25"),
        "page100": records("message", f"{talk}&perPage=100"),
        "bots": records("bot", feed),
        "search": records("bot", feed.replace("')", f"'%26%26({found_in}))")),
        "notifications": records("notification", "sort=-created_at,-id&perPage=25&skipTotal=1"),
        "events": records("event", "sort=starts_at,id&perPage=25"),
        "settings": [("GET", f"/api/collections/users/records/{ALICE}?fields=settings", None)],
        "pin": pinning,
        "feedback": [("POST", "/api/collections/feedback/records", feedback)],
        "send": [("POST", "/api/collections/message/records", notes)],
    }[work]
    return found

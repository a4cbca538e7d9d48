"""The demo of `serve --demo`: imports its records into an empty database, and prints a tour."""

import contextlib
import dataclasses
import re
import tempfile
import textwrap
from collections.abc import Iterable, Iterator
from pathlib import Path

from service import clock, demo
from service.commands import Stop
from service.models import ChatSession
from service.operate import import_export
from service.settings import Settings

QUARTER = 15 * clock.MINUTE

TIMESTAMP = re.compile(r'"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z)"', re.ASCII)
ULIDS = re.compile(r'"([0-7][0-9A-HJKMNP-TV-Z]{25})"', re.ASCII)

PEOPLE = """
alice@demo.example  user   a quiz host: chats in 14 languages, pins, a calendar, data shares, a late parcel
bob@demo.example    user   another customer, with separate chats
yuki@demo.example   user   a third customer, with Japanese chats and settings
agent@demo.example  agent  answers the chats of the app Lingua Lounge, and writes private notes
tomas@demo.example  agent  answers the chats of the app Kettle & Leaf
admin@demo.example  admin  sees the chats of both apps, and the feedback of all users
"""
PASSWORD = "demo-password"

QUIZ = "b1695ed2-7632-51a7-afd1-b4ce71621874"  # the main chat session of the tour
MCP_SERVER = "weather-and-parcels.demo.example"

PAGES = """
@URL@/      the console
@URL@/docs  the API reference

As Alice, open @URL@/console/chats/@QUIZ@
and ask the bot "What is the weather in Lisbon?" or "Where is parcel KL-4711-BATH?".
It asks for permission to use a tool, which you can revoke under Data shares.
"""

# Paragraphs; those that begin with #+ use extensions, and are omitted with --documented-only. A line that ends with a
# backslash is printed joined with the next one, so that every printed line can be pasted separately. The text is ASCII
# for all terminals. It does not use the option --json of curl, which older versions lack.
TOUR = r"""
# `content` is an array of UTF-8 bytes; `texts` decodes it.
API=@URL@/api/v1 JSON='Content-Type: application/json'
texts() { python3 -c 'import json, sys; [print(one["sender_type"] + ":", \
    json.loads(bytes(one["content"]))["text"]) for one in json.load(sys.stdin)["data"]]'; }
log_in() { curl -fsS "$API/auth/login" -H "$JSON" -d "{\"email\": \"$1\", \"password\": \"@PASSWORD@\"}" | \
    sed 's/.*"access_token":"\([^"]*\)".*/Authorization: Bearer \1/'; }

# Log in as Alice.
ALICE=$(log_in alice@demo.example)

#+ Her profile, and her chats by latest activity.
curl -fsSw '\n' -H "$ALICE" "$API/users/me"
curl -fsSw '\n' -H "$ALICE" "$API/chats?limit=3"

# The first and the last messages of a long chat; meta.next_cursor in a response leads to the next page.
CHAT=@QUIZ@
curl -fsS -H "$ALICE" "$API/chats/$CHAT/messages?limit=4" | texts
curl -fsS -H "$ALICE" "$API/chats/$CHAT/messages?limit=4&direction=backward" | texts

#+ Send a message to the bot, and read its reply.
curl -fsSw '\n' -H "$ALICE" -H "$JSON" "$API/chats/$CHAT/messages" \
    -d '{"content": {"text": "What is the loudest animal on Earth?"}}'
curl -fsS -H "$ALICE" "$API/chats/$CHAT/messages?limit=2&direction=backward" | texts

#+ Search all her chats.
curl -fsS -H "$ALICE" "$API/chats/search?q=whale" | texts

# Pin the newest message; pins are listed newest first.
LAST=$(curl -fsS -H "$ALICE" "$API/chats/$CHAT/messages?limit=1&direction=backward" | \
    sed 's/.*"data":\[{"id":"\([^"]*\)".*/\1/')
curl -fsSw '\n' -H "$ALICE" -X POST "$API/chats/$CHAT/messages/$LAST/pin"
curl -fsS -H "$ALICE" "$API/chats/$CHAT/pinned-messages" | texts

#+ Tomas is an agent of Kettle & Leaf: he sees only the chats of this app, and writes to Alice about her parcel.
TOMAS=$(log_in tomas@demo.example)
curl -fsSw '\n' -H "$TOMAS" "$API/chats"
curl -fsSw '\n' -H "$TOMAS" -H "$JSON" "$API/chats/0ff86875-0b20-5942-a72f-f6c7ca2ce427/messages" \
    -d '{"content": {"text": "The driver will ring twice."}}'

# The notifications of Alice; then mark all of them as read.
curl -fsSw '\n' -H "$ALICE" "$API/notifications?limit=2"
curl -fsSw '\n' -H "$ALICE" -X PATCH "$API/notifications/read-all"

# Her events from today on.
curl -fsSw '\n' -H "$ALICE" "$API/events?from=$(date -u +%Y-%m-%d)&limit=3"

#+ The secret URL of her calendar feed, and the feed.
FEED=$(curl -fsS -H "$ALICE" -X POST "$API/events/feed" | sed 's/.*"url":"\([^"]*\)".*/\1/')
curl -fsS "$FEED"

# Allow an MCP server to use one tool on her behalf.
curl -fsSw '\n' -H "$ALICE" -H "$JSON" "$API/data-shares" \
    -d '{"mcp_server_id": "weather.demo.example", "allowed_tools": ["forecast"]}'

#+ The check that an MCP gateway makes before each call.
curl -fsSw '\n' -H "$ALICE" -H "$JSON" "$API/data-shares/check" \
    -d '{"mcp_server_id": "weather.demo.example", "tool": "forecast"}'
curl -fsSw '\n' -H "$ALICE" -H "$JSON" "$API/data-shares/check" \
    -d '{"mcp_server_id": "weather.demo.example", "tool": "make_rain"}'

# Search the bots of Lingua Lounge.
curl -fsSw '\n' -H "$ALICE" "$API/bots?app_id=28cb2155-1c83-5d6c-ad2c-ca61622ab497&search=food&per_page=2"

# Her settings, and a change to them.
curl -fsSw '\n' -H "$ALICE" "$API/users/me/settings"
curl -fsSw '\n' -H "$ALICE" -H "$JSON" -X PATCH "$API/users/me/settings" -d '{"appearance": {"theme": "dark"}}'

#+ Mika is an admin: list the feedback of all users, and change the status of one.
MIKA=$(log_in admin@demo.example)
curl -fsSw '\n' -H "$MIKA" "$API/feedback?everybody=true&limit=2"
curl -fsSw '\n' -H "$MIKA" -H "$JSON" -X PATCH "$API/feedback/0ce85a09-1c52-5cc8-b6bc-cc1821e4826d" \
    -d '{"status": "in_progress"}'
"""


def present(url: str, documented_only: bool) -> str:
    """Import the demo into an empty database. Returns the text to print. Raises Stop."""
    if not import_export.count_rows():
        fill()
    return invitation(url, documented_only) if is_present() else "The database is not empty; the demo was not imported."


def is_present() -> bool:
    """Return whether the database has the demo."""
    return bool(ChatSession.select().where(ChatSession.id == QUIZ).exists())


def storing_mails(settings: Settings, url: str) -> Settings:
    """Return settings with which a demo without SMTP server stores its e-mails for the console; `url` is its own."""
    if settings.smtp or settings.documented_only or not is_present():
        return settings
    return dataclasses.replace(settings, store_mails=url)


@contextlib.contextmanager
def serving_tools(settings: Settings) -> Iterator[Settings]:
    """Run the MCP server of the demo during the block. Yields settings with which the assistant uses its tools.

    Without an assistant in the settings, that is the canned assistant of the demo. Raises Stop.
    """
    is_named = any(entry.startswith(f"{MCP_SERVER}=") for entry in settings.mcp)
    if settings.documented_only or is_named or not is_present():
        yield settings
        return
    from service.demo.assistant import QUESTIONS
    from service.demo.server_process import serving

    with contextlib.ExitStack() as stack:
        try:
            url = stack.enter_context(serving())
        except OSError as error:
            raise Stop(f"cannot start the MCP server of the demo: {error.strerror}") from None
        if not settings.assistant_url:
            canned = f"{url}{demo.ASSISTANT_PATH}"
            settings = dataclasses.replace(settings, assistant_url=canned, demo_questions=QUESTIONS)
        yield dataclasses.replace(settings, mcp=(*settings.mcp, f"{MCP_SERVER}={url}{demo.MCP_PATH}"))


def invitation(url: str, documented_only: bool) -> str:
    """Return the accounts, the addresses of the pages, and the tour."""
    pages = PAGES.strip().replace("@URL@", url).replace("@QUIZ@", QUIZ)
    parts = [
        f"Accounts, all with the password {PASSWORD}:\n" + textwrap.indent(PEOPLE.strip(), "  "),
        *([] if documented_only else ["In a browser:\n" + textwrap.indent(pages, "  ")]),
        "In a shell, line by line:",
        *(textwrap.indent(step, "  ") for step in tour(url, documented_only)),
    ]
    return "\n\n".join(parts) + "\n"


def tour(url: str, documented_only: bool) -> list[str]:
    """Return the paragraphs of the tour."""
    whole = TOUR.replace(" \\\n    ", " ").replace("@URL@", url).replace("@QUIZ@", QUIZ).replace("@PASSWORD@", PASSWORD)
    steps = whole.strip().split("\n\n")
    return [step.replace("#+", "#", 1) for step in steps if not (documented_only and step.startswith("#+"))]


def fill() -> None:
    """Import the demo, with its times moved to the present. Raises Stop."""
    with demo.RECORDS.open(encoding="utf-8") as records, tempfile.NamedTemporaryFile("w", encoding="utf-8") as moved:
        moved.writelines(move(records.readlines(), clock.now()))
        moved.flush()
        errors = import_export.import_files([Path(moved.name)])
    if errors:
        raise Stop(f"the demo cannot be imported: {errors[0]}")


def move(lines: Iterable[str], now: int) -> Iterator[str]:
    """Return JSON Lines with all timestamps and ULIDs moved, so that the newest message is at most 15 minutes old.

    Times up to one hour after the newest message move by whole quarters of an hour. Records of later events move by
    whole days, so that they keep their time of day. Times never move backwards, even if the host's clock is behind.
    """
    records = list(lines)
    newest = max(clock.ulid_time(id) for line in records for id in ULIDS.findall(line))
    age = max(now - newest, 0)
    past_shift, future_shift = age // QUARTER * QUARTER, -(-age // clock.DAY) * clock.DAY

    def move_ulid(found: re.Match[str]) -> str:
        return f'"{clock.ulid_of(clock.ulid_number(found[1]) + (past_shift << 80))}"'

    def move_line(line: str) -> str:
        future = [time for time in map(clock.milliseconds, TIMESTAMP.findall(line)) if time > newest]
        shift = future_shift if future and min(future) > newest + clock.HOUR else past_shift

        def move_timestamp(found: re.Match[str]) -> str:
            time = clock.milliseconds(found[1])
            return f'"{clock.timestamp(time + (shift if time > newest else past_shift))}"'

        return ULIDS.sub(move_ulid, TIMESTAMP.sub(move_timestamp, line))

    return map(move_line, records)

"""The demo of `serve --demo`: into an empty database it goes, its times moved to now, and what to try with it."""

import re
import tempfile
import textwrap
from collections.abc import Iterable, Iterator
from pathlib import Path

from ulid import ULID

from service import clock, demo, transfer
from service.commands import Stop
from service.models import ChatSession

QUARTER = 15 * clock.MINUTE

STAMP = re.compile(r'"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z)"', re.ASCII)
SORTABLE = re.compile(r'"([0-7][0-9A-HJKMNP-TV-Z]{25})"', re.ASCII)

PEOPLE = """
alice@demo.example  user   runs a pub quiz: chats in 14 languages, pins, a calendar, grants, a parcel that is late
bob@demo.example    user   plays in it, and had a teapot that dripped; sees nothing of Alice's
yuki@demo.example   user   plays in it too; Japanese chats and settings
agent@demo.example  agent  serves the chats of the app Lingua Lounge, and writes private notes
tomas@demo.example  agent  serves those of the app Kettle & Leaf, and none of Lingua Lounge's
admin@demo.example  admin  sees the chats of both apps, and works through everybody's feedback
"""
PASSWORD = "demo-password"

QUIZ = "b1695ed2-7632-51a7-afd1-b4ce71621874"  # the chat session of which the tour shows most

# Paragraphs; one that begins with #+ asks for what --documented-only leaves out. A line that ends in a backslash goes
# on in the next one and is printed as one, so that every printed line can be pasted by itself. All of it is ASCII, for
# terminals that know no more. curl's --json would be shorter, but older ones lack it.
TOUR = r"""
# Contents are arrays of bytes; `texts` makes words of them.
API=@URL@/api/v1 JSON='Content-Type: application/json'
texts() { python3 -c 'import json, sys; [print(one["sender_type"] + ":", \
    json.loads(bytes(one["content"]))["text"]) for one in json.load(sys.stdin)["data"]]'; }
log_in() { curl -fsS "$API/auth/login" -H "$JSON" -d "{\"email\": \"$1\", \"password\": \"@PASSWORD@\"}" | \
    sed 's/.*"access_token":"\([^"]*\)".*/Authorization: Bearer \1/'; }

# Log in as Alice.
ALICE=$(log_in alice@demo.example)

#+ Who she is, and her chats, the latest activity first.
curl -fsSw '\n' -H "$ALICE" "$API/users/me"
curl -fsSw '\n' -H "$ALICE" "$API/chats?limit=3"

# A long chat from its beginning, and from its end; meta.next_cursor of an answer leads to the next page.
CHAT=@QUIZ@
curl -fsS -H "$ALICE" "$API/chats/$CHAT/messages?limit=4" | texts
curl -fsS -H "$ALICE" "$API/chats/$CHAT/messages?limit=4&direction=backward" | texts

#+ Ask the bot, and read what it answers.
curl -fsSw '\n' -H "$ALICE" -H "$JSON" "$API/chats/$CHAT/messages" \
    -d '{"content": {"text": "What is the loudest animal on Earth?"}}'
curl -fsS -H "$ALICE" "$API/chats/$CHAT/messages?limit=2&direction=backward" | texts

#+ Search all of her chats.
curl -fsS -H "$ALICE" "$API/chats/search?q=whale" | texts

# Pin the newest message; the newest pin comes first.
LAST=$(curl -fsS -H "$ALICE" "$API/chats/$CHAT/messages?limit=1&direction=backward" | \
    sed 's/.*"data":\[{"id":"\([^"]*\)".*/\1/')
curl -fsSw '\n' -H "$ALICE" -X POST "$API/chats/$CHAT/messages/$LAST/pin"
curl -fsS -H "$ALICE" "$API/chats/$CHAT/pinned-messages" | texts

#+ Tomas is an agent of Kettle & Leaf: he sees its chats only, and writes to Alice in the one about her parcel.
TOMAS=$(log_in tomas@demo.example)
curl -fsSw '\n' -H "$TOMAS" "$API/chats"
curl -fsSw '\n' -H "$TOMAS" -H "$JSON" "$API/chats/0ff86875-0b20-5942-a72f-f6c7ca2ce427/messages" \
    -d '{"content": {"text": "The driver will ring twice."}}'

# What Alice was told of. Then she has read it all.
curl -fsSw '\n' -H "$ALICE" "$API/notifications?limit=2"
curl -fsSw '\n' -H "$ALICE" -X PATCH "$API/notifications/read-all"

# Her calendar from today on.
curl -fsSw '\n' -H "$ALICE" "$API/events?from=$(date -u +%Y-%m-%d)&limit=3"

#+ A secret address to which calendar programs can subscribe, and what they get there.
FEED=$(curl -fsS -H "$ALICE" -X POST "$API/events/feed" | sed 's/.*"url":"\([^"]*\)".*/\1/')
curl -fsS "$FEED"

# Let an MCP server read the forecast on her behalf, and nothing else.
curl -fsSw '\n' -H "$ALICE" -H "$JSON" "$API/data-shares" \
    -d '{"mcp_server_id": "weather.demo.example", "allowed_tools": ["forecast"]}'

#+ What the gateway of that server asks before it acts.
curl -fsSw '\n' -H "$ALICE" -H "$JSON" "$API/data-shares/check" \
    -d '{"mcp_server_id": "weather.demo.example", "tool": "forecast"}'
curl -fsSw '\n' -H "$ALICE" -H "$JSON" "$API/data-shares/check" \
    -d '{"mcp_server_id": "weather.demo.example", "tool": "make_rain"}'

# The bots of Lingua Lounge that talk about food.
curl -fsSw '\n' -H "$ALICE" "$API/bots?app_id=28cb2155-1c83-5d6c-ad2c-ca61622ab497&search=food&per_page=2"

# Her settings, and a patch to them.
curl -fsSw '\n' -H "$ALICE" "$API/users/me/settings"
curl -fsSw '\n' -H "$ALICE" -H "$JSON" -X PATCH "$API/users/me/settings" -d '{"appearance": {"theme": "dark"}}'

#+ Mika is an admin: what everybody has told the makers of the app, and that somebody is at work on it.
MIKA=$(log_in admin@demo.example)
curl -fsSw '\n' -H "$MIKA" "$API/feedback?everybody=true&limit=2"
curl -fsSw '\n' -H "$MIKA" -H "$JSON" -X PATCH "$API/feedback/0ce85a09-1c52-5cc8-b6bc-cc1821e4826d" \
    -d '{"status": "in_progress"}'
"""


def present(url: str, documented_only: bool) -> str:
    """See that an empty database has the demo; what to try with it, for people to read. Raises Stop."""
    if not transfer.count_rows():
        fill()
    if ChatSession.select().where(ChatSession.id == QUIZ).exists():
        return invitation(url, documented_only)
    return "The database holds data of its own; the demo was not added."


def invitation(url: str, documented_only: bool) -> str:
    """Who can sign in, where the pages are, and a tour."""
    pages = f"{url}/      the console\n{url}/docs  every operation, to read and to try"
    parts = [
        f"Sign in with the password {PASSWORD} as\n" + textwrap.indent(PEOPLE.strip(), "  "),
        *([] if documented_only else ["In a browser:\n" + textwrap.indent(pages, "  ")]),
        "On a command line, one line after the other:",
        *(textwrap.indent(step, "  ") for step in tour(url, documented_only)),
    ]
    return "\n\n".join(parts) + "\n"


def tour(url: str, documented_only: bool) -> list[str]:
    """The paragraphs of the tour, filled in."""
    whole = TOUR.replace(" \\\n    ", " ").replace("@URL@", url).replace("@QUIZ@", QUIZ).replace("@PASSWORD@", PASSWORD)
    steps = whole.strip().split("\n\n")
    return [step.replace("#+", "#", 1) for step in steps if not (documented_only and step.startswith("#+"))]


def fill() -> None:
    """Import the demo, as if it had happened until now. Raises Stop."""
    with demo.RECORDS.open(encoding="utf-8") as told, tempfile.NamedTemporaryFile("w", encoding="utf-8") as moved:
        moved.writelines(move(told.readlines(), clock.now()))
        moved.flush()
        faults = transfer.take_in([Path(moved.name)])
    if faults:
        raise Stop(f"the demo cannot be imported: {faults[0]}")


def move(lines: Iterable[str], now: int) -> Iterator[str]:
    """JSON Lines with every instant in them, those of ULIDs too, moved so that the newest message is of just now.

    What has been moves by whole quarters of an hour, as does what begins within the hour; a record of something later
    moves by whole days, so that it keeps its hour. Nothing moves back: on a host whose clock is behind, all stays.
    """
    told = list(lines)
    newest = max(clock.ulid_time(id) for line in told for id in SORTABLE.findall(line))
    age = max(now - newest, 0)
    lived, planned = age // QUARTER * QUARTER, -(-age // clock.DAY) * clock.DAY

    def move_ulid(found: re.Match[str]) -> str:
        return f'"{ULID.from_int(int(ULID.from_str(found[1])) + (lived << 80))}"'

    def move_line(line: str) -> str:
        ahead = [moment for moment in map(clock.milliseconds, STAMP.findall(line)) if moment > newest]
        later = planned if ahead and min(ahead) > newest + clock.HOUR else lived

        def move_stamp(found: re.Match[str]) -> str:
            moment = clock.milliseconds(found[1])
            return f'"{clock.timestamp(moment + (later if moment > newest else lived))}"'

        return SORTABLE.sub(move_ulid, STAMP.sub(move_stamp, line))

    return map(move_line, told)

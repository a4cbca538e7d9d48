"""Real conversations as JSON Lines records: the PyPI package ``chatterbot-corpus`` told as the chats of an app.

python tests/corpus.py --demo OUT    a small, fixed demo in many scripts
python tests/corpus.py --all OUT     every conversation of the package
"""

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from importlib.metadata import metadata
from importlib.resources import files
from itertools import groupby
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_DNS, UUID, uuid5

import yaml
from ulid import ULID

Members = dict[str, Any]  # a record, or what stands under its name
Session = tuple[str, list["Conversation"]]  # whose it is, and the conversations of one language told in it
START, SPAN = datetime(2026, 10, 5, 7, 30, tzinfo=UTC), timedelta(days=44)
PRESENCES = ("online", "away", "rsvp", "offline")
STATUSES = ("open", "resolved", "pending", "resolved", "archived", "resolved")
# Folder, the language's own name, country, city.
PLACES = """
bengali বাংলা BD Dhaka; chinese 简体中文 CN Chengdu; dutch Nederlands NL Utrecht; english English GB London;
french Français FR Lyon; german Deutsch DE Berlin; hebrew עברית IL Haifa; hindi हिन्दी IN Delhi;
hinglish Hinglish IN Mumbai; indonesian Indonesia ID Jakarta; italian Italiano IT Turin; japanese 日本語 JP Osaka;
korean 한국어 KR Seoul; marathi मराठी IN Pune; oriya ଓଡ଼ିଆ IN Bhubaneswar; persian فارسی IR Shiraz;
portuguese Português BR Fortaleza; russian Русский RU Kazan; spanish Español ES Seville; swedish Svenska SE Gothenburg;
tamil தமிழ் IN Chennai; telugu తెలుగు IN Hyderabad; thai ไทย TH Bangkok; traditionalchinese 繁體中文 TW Taipei;
turkish Türkçe TR Ankara; ukrainian Українська UA Lviv; urdu اردو PK Lahore; yoruba Yorùbá NG Ibadan
"""
LANGUAGES = {folder: rest for folder, *rest in (entry.split() for entry in PLACES.split(";"))}

# First and last name, role, locale, time zone.
PEOPLE = {
    "alice": ("Alice", "Lindqvist", "user", "en-GB", "Europe/London"),
    "bob": ("Bob", "Okafor", "user", "en-NG", "Africa/Lagos"),
    "agent": ("Noor", "Haddad", "agent", "de-DE", "Europe/Berlin"),
    "admin": ("Mika", "Tanaka", "admin", "ja-JP", "Asia/Tokyo"),
}

# Who talks about what in the demo: a session for each word, of whole conversations until it has that many messages.
DEMO = {
    "alice": """english/trivia/280 english/conversations/14 english/coding/8 german/greetings/8 german/food/18
        german/food/12 russian/conversations/14 russian/food/10 hindi/greetings/20 hindi/health/18 bengali/greetings/8
        bengali/food/20 persian/conversations/16 persian/trivia/28 persian/conversations/14 hebrew/greetings/12
        hebrew/conversations/30 urdu/greetings/8 urdu/greetings/14 chinese/greetings/8 chinese/conversations/40
        chinese/food/6 japanese/conversations/24 japanese/food/10 korean/greetings/20 korean/food/8 tamil/greetings/8
        tamil/conversations/12 thai/greeting/8 thai/greeting/6""",
    "bob": "english/tech_support/12 english/science/20 ukrainian/food/14 japanese/science/8 korean/food/10",
}
NOTE = "Alice is preparing a pub quiz. Please let the bot answer unless she asks for a person."

# The wheel carries no licence file; these are the words of license.md in the source distribution.
LICENCE = """\
Copyright (c) 2017, Gunther Cox All rights reserved.
Redistribution and use in source and binary forms, with or without modification, are permitted provided that the
following conditions are met:
* Redistributions of source code must retain the above copyright notice, this list of conditions and the following
  disclaimer.
* Redistributions in binary form must reproduce the above copyright notice, this list of conditions and the following
  disclaimer in the documentation and/or other materials provided with the distribution.
* Neither the name of chatterbot nor the names of its contributors may be used to endorse or promote products derived
  from this software without specific prior written permission.
THIS SOFTWARE IS PROVIDED BY THE COPYRIGHT HOLDERS AND CONTRIBUTORS "AS IS" AND ANY EXPRESS OR IMPLIED WARRANTIES,
INCLUDING, BUT NOT LIMITED TO, THE IMPLIED WARRANTIES OF MERCHANTABILITY AND FITNESS FOR A PARTICULAR PURPOSE ARE
DISCLAIMED. IN NO EVENT SHALL THE COPYRIGHT HOLDER OR CONTRIBUTORS BE LIABLE FOR ANY DIRECT, INDIRECT, INCIDENTAL,
SPECIAL, EXEMPLARY, OR CONSEQUENTIAL DAMAGES (INCLUDING, BUT NOT LIMITED TO, PROCUREMENT OF SUBSTITUTE GOODS OR
SERVICES; LOSS OF USE, DATA, OR PROFITS; OR BUSINESS INTERRUPTION) HOWEVER CAUSED AND ON ANY THEORY OF LIABILITY,
WHETHER IN CONTRACT, STRICT LIABILITY, OR TORT (INCLUDING NEGLIGENCE OR OTHERWISE) ARISING IN ANY WAY OUT OF THE USE OF
THIS SOFTWARE, EVEN IF ADVISED OF THE POSSIBILITY OF SUCH DAMAGE.
"""


@dataclass(frozen=True)
class Conversation:
    """One conversation of the package: its folder, its file without suffix, its place in the file, what was said."""

    language: str
    category: str
    number: int
    lines: tuple[str, ...]


def texts(item: object) -> Iterator[str]:
    """Every text in a YAML node, however deep; a mapping is a line with an unquoted colon and becomes that line again.

    Only what the service refuses as a message is skipped: blank text, NUL characters, lone surrogates. 1.3.3 has none.
    """
    if isinstance(item, dict):
        yield from texts([f"{key}: {' '.join(texts(value))}".rstrip() for key, value in item.items()])
    elif isinstance(item, list):
        for part in item:
            yield from texts(part)
    elif (text := str(item)).strip() and not any(c == "\0" or "\ud800" <= c <= "\udfff" for c in text):
        yield text


def conversations() -> Iterator[Conversation]:
    """Every conversation of the package, by folder, file and place; one without any text (see `texts`) is left out."""
    loader = getattr(yaml, "CBaseLoader", yaml.BaseLoader)  # leaves scalars as written: yes, 1.0, null
    data = Path(str(files("chatterbot_corpus"))) / "data"
    for file in sorted(data.glob("*/*.yml"), key=lambda path: path.parts[-2:]):
        for number, item in enumerate(yaml.load(file.read_bytes(), Loader=loader)["conversations"]):
            if lines := tuple(texts(item)):
                yield Conversation(file.parent.name, file.stem, number, lines)


def stamp(moment: datetime) -> str:
    """A moment as the wire has it."""
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


@dataclass(frozen=True)
class Realm:
    """One app with its people, bots and chats. All ids come from its name, so that two realms fit in one database."""

    name: str

    def id(self, *parts: object) -> str:
        return str(uuid5(NAMESPACE_DNS, "/".join([f"{self.name}.example", *map(str, parts)])))

    def user(self, person: str) -> Members:
        first, last, role, locale, timezone = PEOPLE[person]
        user: Members = {"id": self.id("user", person), "email": f"{person}@{self.name}.example", "role": role}
        user |= {"first_name": first, "last_name": last, "display_name": f"{first} {last}"}
        user |= {"password": "demo-password", "is_verified": True, "onboarding_completed": True}
        user |= {"app_id": self.id("app")} if role == "agent" else {}
        return user | {"locale": locale, "timezone": timezone, "created_at": stamp(START - timedelta(days=30))}

    def bot(self, language: str, topics: Iterable[str]) -> Members:
        name, country, city = LANGUAGES.get(language, (language.title(), "", ""))
        own, site = self.id("bot", language), f"https://{language}.{self.name}.example/"
        bot: Members = {"id": own, "app_id": self.id("app"), "name": name, "slug": language, "kind": "bot"}
        bot |= {"tagline": f"{name} · {city}", "description": f"Talks about {', '.join(topics)}.".replace("_", " ")}
        bot |= {"country": country, "city": city, "contact_email": f"{language}@{self.name}.example", "is_active": True}
        bot |= {"contact_website": site, "social_links": {"website": site}, "created_at": stamp(START)}
        dice, categories = UUID(own).int, ("knowledge", "small-talk", "support")
        bot |= {"status": "published", "presence": PRESENCES[dice // 3 % 4], "category": categories[dice % 3]}
        return bot | {"rating": 3 + dice % 21 / 10, "is_featured": dice % 5 == 0, "accent_color": f"#{own[:6]}"}

    def chat_session(self, person: str, first: Conversation, status: str, begin: datetime) -> Members:
        chat = {"id": self.id("session", person, first.language, first.category, first.number), "status": status}
        chat |= {"app_id": self.id("app"), "conversation_id": self.id("conversation", person, first.language)}
        chat |= {"user_id": self.id("user", person), "bot_id": self.id("bot", first.language)}
        return chat | {"created_at": stamp(begin)}

    def message(self, chat: Members, sender: tuple[str, str], text: str, moment: datetime) -> Members:
        """A message whose ULID is made of its time and session, so that it sorts by time and is the same every run."""
        salt = UUID(self.id("message", chat["id"], moment)).int % 2**80
        said = {"id": str(ULID.from_int(int(moment.timestamp()) * 1000 << 80 | salt)), "chat_session_id": chat["id"]}
        said |= {"conversation_id": chat["conversation_id"], "sender_type": sender[0], "sender_id": sender[1]}
        said |= {"channel": "web", "status": "read", "content_type": "text", "text": text}
        return said | {"created_at": stamp(moment)}

    def records(self, sessions: list[Session]) -> Iterator[Members]:
        """The app, its people, bots and sessions; in each conversation customer and bot take turns."""
        yield {"app": {"id": self.id("app"), "name": self.name.title()}}
        yield from ({"user": self.user(person)} for person in PEOPLE)
        topics = sorted({(part.language, part.category) for _, parts in sessions for part in parts})
        for language, pairs in groupby(topics, key=lambda topic: topic[0]):
            yield {"bot": self.bot(language, (category for _, category in pairs))}
        for index, (person, parts) in enumerate(sessions):
            moment = START + timedelta(seconds=SPAN.total_seconds() * index // len(sessions))
            chat = self.chat_session(person, parts[0], STATUSES[index % len(STATUSES)], moment)
            yield {"chat_session": chat}
            senders = ("user", chat["user_id"]), ("bot", chat["bot_id"])
            for turn, text in ((turn, text) for part in parts for turn, text in enumerate(part.lines)):
                moment += timedelta(seconds=5 + min(len(text), 55))
                yield {"message": self.message(chat, senders[turn % 2], text, moment)}


def records(of: Iterable[Conversation], realm: str = "corpus") -> Iterator[Members]:
    """A chat session for each conversation; every fourth is bob's, the others are alice's."""
    return Realm(realm).records([("bob" if index % 4 == 3 else "alice", [one]) for index, one in enumerate(of)])


def plan() -> Iterator[Session]:
    """The sessions of the demo, languages and people mixed; a topic goes on where its earlier session stopped."""
    words = [(person, *topic.split("/")) for person, topics in DEMO.items() for topic in topics.split()]
    found = groupby(conversations(), key=lambda one: (one.language, one.category))
    pools = {topic: iter(list(group)) for topic, group in found}
    for person, language, category, length in (word for start in range(7) for word in words[start::7]):
        parts: list[Conversation] = []
        while sum(len(part.lines) for part in parts) < int(length):
            parts.append(next(pools[language, category]))
        yield person, parts


def incidents(realm: Realm, chat: Members, said: list[Members]) -> Iterator[Members]:
    """What else happened in a session: pins, a deletion and a reply, put into its messages, and a note of the staff."""
    for place in (3, 150, 250):
        said[place] |= {"is_pinned": True, "pinned_at": stamp(START + timedelta(hours=9, minutes=place))}
    said[10]["deleted_at"] = stamp(START + timedelta(hours=9))
    said[29] |= {"reply_to_message_id": said[25]["id"], "reply_snapshot": {"text": said[25]["text"]}}
    note = realm.message(chat, ("agent", realm.id("user", "agent")), NOTE, START + timedelta(minutes=10))
    yield {"message": note | {"is_private": True}}


def demo() -> Iterator[Members]:
    """The planned sessions, incidents in the first one, which is long, notifications about alice's newest answers."""
    realm = Realm("demo")
    told = list(realm.records(list(plan())))
    chats, said, bots = ([one[kind] for one in told if kind in one] for kind in ("chat_session", "message", "bot"))
    told += incidents(realm, chats[0], [one for one in said if one["chat_session_id"] == chats[0]["id"]])
    names = {bot["id"]: bot["name"] for bot in bots}
    alices = {chat["id"] for chat in chats if chat["user_id"] == realm.id("user", "alice")}
    newest = {one["chat_session_id"]: one for one in said if one["sender_id"] in names}
    answers = [one for session, one in newest.items() if session in alices][-6:]
    for place, one in enumerate(answers):
        note = {"id": realm.id("notification", one["id"]), "user_id": realm.id("user", "alice"), "type": "chat_message"}
        note |= {"title": names[one["sender_id"]], "body": one["text"], "conversation_id": one["conversation_id"]}
        note |= {"session_id": one["chat_session_id"], "created_at": one["created_at"]}
        read = {"is_read": True, "read_at": stamp(START + SPAN)} if place < 3 else {}
        told.append({"notification": note | {"payload": {"message_id": one["id"]}} | read})
    yield from told


def notice() -> str:
    """What has to travel with the conversations: where they come from and under which licence."""
    about = metadata("chatterbot-corpus")
    origin = f"Conversations from {about['Name']} {about['Version']} by {about['Author']} and its contributors."
    return f"{origin}\nPeople, times and identifiers were added; the texts are unchanged.\n\n{LICENCE}"


def main() -> None:
    """Write the records that the command line asks for, and say how many of each."""
    parser = argparse.ArgumentParser(description="Real conversations as JSON Lines records.")
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--demo", type=Path, metavar="OUT", help="a small, fixed demo in many scripts")
    which.add_argument("--all", type=Path, metavar="OUT", help="every conversation of the package")
    chosen = parser.parse_args()
    out: Path = chosen.demo or chosen.all
    told = list(demo() if chosen.demo else records(conversations()))
    encoded = (json.dumps(one, ensure_ascii=False, separators=(",", ":")) + "\n" for one in told)
    out.write_text("".join(encoded), encoding="utf-8", newline="\n")
    out.with_name(f"{out.name}.NOTICE.txt").write_text(notice(), encoding="utf-8", newline="\n")
    print(*(f"{count} {kind}" for kind, count in Counter(k for one in told for k in one).items()), file=sys.stderr)


if __name__ == "__main__":
    main()

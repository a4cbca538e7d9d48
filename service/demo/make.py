"""Generates records.jsonl: conversations of the package ``chatterbot-corpus`` as chats of an app, and `story.toml`.

Needs the packages in requirements-dev.lock. The service reads only the generated file.

python -m service.demo.make --demo OUT    a small, fixed demo in many scripts
python -m service.demo.make --all OUT     all conversations of the package
"""

import argparse
import base64
import io
import json
import sys
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from importlib.metadata import metadata
from importlib.resources import files
from itertools import groupby
from pathlib import Path
from typing import Any, TypeAlias
from uuid import NAMESPACE_DNS, UUID, uuid5

from ulid import ULID

Value: TypeAlias = Any  # of TOML or JSON
Members: TypeAlias = dict[str, Any]  # of a record
Session = tuple[str, list["Conversation"]]  # the user, and conversations in one language
START, SPAN = datetime(2026, 10, 5, 7, 30, tzinfo=UTC), timedelta(days=44)
PASSWORD = "demo-password"
PRESENCES = ("online", "away", "rsvp", "offline")
STATUSES = ("open", "resolved", "pending", "resolved", "archived", "resolved")
# Folder, name of the language in that language, tag, country, city.
PLACES = """
bengali বাংলা bn BD Dhaka; chinese 简体中文 zh-Hans CN Chengdu; dutch Nederlands nl NL Utrecht;
english English en GB London; french Français fr FR Lyon; german Deutsch de DE Berlin; hebrew עברית he IL Haifa;
hindi हिन्दी hi IN Delhi; hinglish Hinglish hi-Latn IN Mumbai; indonesian Indonesia id ID Jakarta;
italian Italiano it IT Turin; japanese 日本語 ja JP Osaka; korean 한국어 ko KR Seoul; marathi मराठी mr IN Pune;
oriya ଓଡ଼ିଆ or IN Bhubaneswar; persian فارسی fa IR Shiraz; portuguese Português pt-BR BR Fortaleza;
russian Русский ru RU Kazan; spanish Español es ES Seville; swedish Svenska sv SE Gothenburg; tamil தமிழ் ta IN Chennai;
telugu తెలుగు te IN Hyderabad; thai ไทย th TH Bangkok; traditionalchinese 繁體中文 zh-Hant TW Taipei;
turkish Türkçe tr TR Ankara; ukrainian Українська uk UA Lviv; urdu اردو ur PK Lahore; yoruba Yorùbá yo NG Ibadan
"""
LANGUAGES = {folder: rest for folder, *rest in (entry.split() for entry in PLACES.split(";"))}

# First and last name, role, locale, time zone.
PEOPLE = {
    "alice": ("Alice", "Lindqvist", "user", "en-GB", "Europe/London"),
    "bob": ("Bob", "Okafor", "user", "en-NG", "Africa/Lagos"),
    "agent": ("Noor", "Haddad", "agent", "de-DE", "Europe/Berlin"),
    "admin": ("Mika", "Tanaka", "admin", "ja-JP", "Asia/Tokyo"),
}

# The sessions of each user in the demo: language/topic/minimum number of messages, in whole conversations.
DEMO = {
    "alice": """english/conversations/14 english/coding/8 german/greetings/8 german/food/18 german/food/12
        russian/conversations/14 english/trivia/280 russian/food/10 hindi/greetings/20 hindi/health/18
        bengali/greetings/8 bengali/food/20 persian/conversations/16 persian/trivia/28 persian/conversations/14
        hebrew/greetings/12 hebrew/conversations/30 urdu/greetings/8 urdu/greetings/14 chinese/greetings/8
        chinese/conversations/40 chinese/food/6 japanese/conversations/24 japanese/food/10 korean/greetings/20
        korean/food/8 tamil/greetings/8 tamil/conversations/12 thai/greeting/8 thai/greeting/6""",
    "bob": "english/tech_support/12 english/science/20 ukrainian/food/14 japanese/science/8 korean/food/10",
}
NOTE = "Alice is preparing a pub quiz. Please let the bot answer unless she asks for a person."
STORY = Path(__file__).with_name("story.toml")
NAMED = ("user", "bot", "app")  # members of the story that are names; in records they are identifiers
DATED = ("event", "feedback")  # kinds of records with `created_at` and `updated_at`
KINDS = {"event": "event", "grant": "data_share", "feedback": "feedback", "notification": "notification"}

# The text of license.md in the source distribution; the wheel has no licence file.
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
    """A conversation of the package: its folder, its file without suffix, its place in the file, its messages."""

    language: str
    category: str
    number: int
    lines: tuple[str, ...]


def texts(item: object) -> Iterator[str]:
    """Yield all texts in a YAML node. A mapping is a line with an unquoted colon, and becomes that line again.

    Texts that the service refuses as messages are skipped: empty ones, NUL characters, lone surrogates. 1.3.3 has none.
    """
    if isinstance(item, dict):
        yield from texts([f"{key}: {' '.join(texts(value))}".rstrip() for key, value in item.items()])
    elif isinstance(item, list):
        for part in item:
            yield from texts(part)
    elif (text := str(item)).strip() and not any(c == "\0" or "\ud800" <= c <= "\udfff" for c in text):
        yield text


def conversations() -> Iterator[Conversation]:
    """Yield all conversations with a text, ordered by folder, file and place."""
    import yaml

    loader = getattr(yaml, "CBaseLoader", yaml.BaseLoader)  # leaves scalars as written: yes, 1.0, null
    data = Path(str(files("chatterbot_corpus"))) / "data"
    for file in sorted(data.glob("*/*.yml"), key=lambda path: path.parts[-2:]):
        read = yaml.load(file.read_bytes(), loader)  # noqa: S506 (a BaseLoader creates only texts)
        for number, item in enumerate(read["conversations"]):
            if lines := tuple(texts(item)):
                yield Conversation(file.parent.name, file.stem, number, lines)


def stamp(moment: datetime) -> str:
    """Return a time in the format of the API."""
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


@dataclass(frozen=True)
class Realm:
    """An app with users, bots and chats. All identifiers derive from its name, so two realms fit into one database."""

    name: str
    title: str = ""

    def id(self, *parts: object) -> str:
        return str(uuid5(NAMESPACE_DNS, "/".join([f"{self.name}.example", *map(str, parts)])))

    def user(self, person: str, first: str, last: str, role: str, locale: str, timezone: str) -> Members:
        user: Members = {"id": self.id("user", person), "email": f"{person}@{self.name}.example", "role": role}
        user |= {"first_name": first, "last_name": last, "display_name": f"{first} {last}"}
        user |= {"password": PASSWORD, "is_verified": True, "onboarding_completed": True}
        user |= {"app_id": self.id("app")} if role == "agent" else {}
        return user | {"locale": locale, "timezone": timezone, "created_at": stamp(START - timedelta(days=30))}

    def bot(self, language: str, topics: Iterable[str]) -> Members:
        name, _, country, city = LANGUAGES.get(language, (language.title(), "", "", ""))
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
        """Return a message. Its ULID derives from its time and session, so that it is the same in every run."""
        salt = UUID(self.id("message", chat["id"], moment)).int % 2**80
        message = {
            "id": str(ULID.from_int(int(moment.timestamp()) * 1000 << 80 | salt)),
            "chat_session_id": chat["id"],
        }
        message |= {"conversation_id": chat["conversation_id"], "sender_type": sender[0], "sender_id": sender[1]}
        message |= {"channel": "web", "status": "read", "content_type": "text", "text": text}
        return message | {"created_at": stamp(moment)}

    def records(self, sessions: list[Session]) -> Iterator[Members]:
        """Yield the app, its users, bots, sessions and messages. In each conversation, customer and bot alternate."""
        yield {"app": {"id": self.id("app"), "name": self.title or self.name.title()}}
        yield from ({"user": self.user(person, *about)} for person, about in PEOPLE.items())
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
    """Yield a chat session for each conversation; every fourth belongs to bob, the others to alice."""
    return Realm(realm).records([("bob" if index % 4 == 3 else "alice", [one]) for index, one in enumerate(of)])


def plan() -> Iterator[Session]:
    """Yield the sessions of the demo, mixed by language and user. Each session continues its topic."""
    topics_by_user = [(person, *topic.split("/")) for person, topics in DEMO.items() for topic in topics.split()]
    found = groupby(conversations(), key=lambda one: (one.language, one.category))
    pools = {topic: iter(list(group)) for topic, group in found}
    for person, language, category, length in (topic for start in range(7) for topic in topics_by_user[start::7]):
        parts: list[Conversation] = []
        while sum(len(part.lines) for part in parts) < int(length):
            parts.append(next(pools[language, category]))
        yield person, parts


def add_details(realm: Realm, chat: Members, messages: list[Members]) -> Iterator[Members]:
    """Add pins, a deletion and a reply to the messages of a session. Yields a private note."""
    begin = datetime.fromisoformat(chat["created_at"])
    for place in (3, 150, 250):
        messages[place] |= {"is_pinned": True, "pinned_at": stamp(begin + timedelta(hours=9, minutes=place))}
    messages[10]["deleted_at"] = stamp(begin + timedelta(hours=9))
    messages[29] |= quotation(messages[25])
    note = realm.message(chat, ("agent", realm.id("user", "agent")), NOTE, begin + timedelta(minutes=10))
    yield {"message": note | {"is_private": True}}


def quotation(message: Members) -> Members:
    """Return the members of a reply that quote a message."""
    snapshot = {name: message[name] for name in ("sender_type", "content_type", "text")}
    return {"reply_to_message_id": message["id"], "reply_snapshot": snapshot}


def dated(members: Members) -> Members:
    """Return a record with `created_at` and `updated_at`."""
    created_at = members.get("created_at", stamp(START))
    return {**members, "created_at": created_at, "updated_at": created_at}


def message_notification(realm: Realm, user_id: str, title: str, message: Members, read_at: str | None) -> Members:
    """Return the notification about a message."""
    note: Members = {"id": realm.id("notification", user_id, message["id"]), "user_id": user_id, "type": "chat_message"}
    note |= {"title": title, "body": message["text"][:200], "conversation_id": message["conversation_id"]}
    note |= {"session_id": message["chat_session_id"], "created_at": message["created_at"]}
    note["payload"] = {"message_id": message["id"], "session_id": message["chat_session_id"]}
    return note | ({"is_read": True, "read_at": read_at} if read_at else {})


def canned_answers(realm: Realm, sessions: Iterable[Session]) -> Iterator[Members]:
    """Yield the questions and answers in some sessions as canned answers of their bots."""
    known: dict[tuple[str, str], str] = {}
    for part in (part for _, parts in sessions for part in parts):
        for question, answer in zip(part.lines[::2], part.lines[1::2], strict=False):
            known.setdefault((part.language, question.strip()), answer.strip())
    for (language, question), answer in known.items():
        made = {"id": realm.id("answer", language, question), "bot_id": realm.id("bot", language)}
        yield {"bot_answer": made | {"language": LANGUAGES[language][1], "question": question, "answer": answer}}


def draw_avatar(looks: dict[str, str]) -> str:
    """Return an avatar, WebP in base64: a face, shoulders and hair in flat colours."""
    from PIL import Image, ImageColor, ImageDraw

    image = Image.new("RGB", (768, 768), looks["back"])
    pen, skin, hair = ImageDraw.Draw(image), looks["skin"], looks["hair"]
    shade = tuple(channel * 7 // 8 for channel in ImageColor.getrgb(skin))
    if looks["style"] == "long":
        pen.rounded_rectangle((200, 140, 568, 640), 180, hair)
    elif looks["style"] == "curls":
        for x, y in ((230, 260), (280, 180), (384, 150), (488, 180), (538, 260), (220, 350), (548, 350)):
            pen.ellipse((x - 80, y - 80, x + 80, y + 80), hair)
    elif looks["style"] == "bun":
        pen.ellipse((304, 50, 464, 210), hair)
    pen.ellipse((104, 590, 664, 1100), looks["shirt"])
    pen.rounded_rectangle((314, 500, 454, 670), 70, shade)
    pen.ellipse((224, 170, 544, 580), skin)
    pen.chord((216, 156, 552, 500), 192, 348, hair)
    for x in (322, 446):
        pen.ellipse((x - 15, 362, x + 15, 398), "#2b2320")
    pen.arc((316, 380, 452, 496), 35, 145, "#7c3b36", 13)
    output = io.BytesIO()
    image.resize((192, 192), Image.Resampling.LANCZOS).save(output, "WEBP", quality=85)
    return base64.b64encode(output.getvalue()).decode()


def password_hash() -> str:
    """Return the hash of the password of all users. It is the same in every run, and saves time at the first start."""
    from argon2.low_level import Type, hash_secret

    return hash_secret(PASSWORD.encode(), b"of a demo, known", 2, 19456, 1, 32, Type.ID).decode()


@dataclass(frozen=True)
class Story:
    """The records of `story.toml`: a second app with its users, bots and chats, and other data of users."""

    realm: Realm
    content: Members

    def members(self, given: Value) -> Value:
        """Return a record in the format of the API: times as texts, and identifiers in place of names."""
        if isinstance(given, datetime):
            return stamp(given)
        if not isinstance(given, dict):
            return given
        plain = {name: self.members(value) for name, value in given.items() if name not in NAMED}
        return plain | {f"{name}_id": self.id(name, given[name]) for name in NAMED if name in given}

    def id(self, kind: str, name: str) -> str:
        return self.realm.id("app") if name == "lounge" else self.realm.id(kind, name)

    def people(self, known: dict[str, Members]) -> Iterator[Members]:
        """Update the users in `known`. Yields the other users, and the avatars of all."""
        for person, given in self.content["person"].items():
            members = self.members({name: value for name, value in given.items() if name != "looks"})
            if person in known:
                known[person] |= members
            else:
                names = (members[name] for name in ("first_name", "last_name", "role", "locale", "timezone"))
                yield {"user": self.realm.user(person, *names) | members}
            face = {"user_id": self.id("user", person), "name": f"{self.id('avatar', person)}.webp"}
            yield {"avatar": face | {"image": draw_avatar(given["looks"])}}

    def catalogue(self) -> Iterator[Members]:
        """Yield the second app, its bots and their canned answers."""
        for name, given in self.content["app"].items():
            yield {"app": {"id": self.id("app", name), **given}}
        for name, given in self.content["bot"].items():
            yield {"bot": {"id": self.id("bot", name), "slug": name, **dated(self.members(given))}}
        for number, given in enumerate(self.content["answer"]):
            yield {"bot_answer": {"id": self.realm.id("answer", number), **self.members(given)}}

    def chats(self, names: dict[str, str]) -> Iterator[Members]:
        """Yield chats, their messages and notifications. `names` are the display names of users by identifier."""
        for given in self.content["chat"]:
            chat = self.members({name: value for name, value in given.items() if name not in ("name", "said")})
            chat["id"] = self.id("session", given["name"])
            chat["conversation_id"] = self.realm.id("conversation", given["user"], given["bot"])
            yield {"chat_session": chat}
            messages = list(self.messages_of(chat, given))
            yield from ({"message": message} for message in messages)
            yield from ({"notification": note} for note in self.message_notifications(chat, messages, names))

    def messages_of(self, chat: Members, given: Members) -> Iterator[Members]:
        """Yield the messages of a chat."""
        moment, before = given["created_at"], list[Members]()
        for name, text, *more in given["said"]:
            also = dict(*more)
            kind = "user" if name == given["user"] else "bot" if name == given["bot"] else "agent"
            moment += timedelta(seconds=5 + min(len(text), 55) + also.pop("after", 0))
            sender = kind, self.id("bot" if kind == "bot" else "user", name)
            message = self.realm.message(chat, sender, text, moment) | also
            if "reply_to" in also:
                message |= quotation(before[message.pop("reply_to")])
            if also.get("is_pinned"):
                message["pinned_at"] = stamp(moment + timedelta(minutes=1))
            before.append(message)
            yield message

    def message_notifications(self, chat: Members, messages: list[Members], names: dict[str, str]) -> Iterator[Members]:
        """Yield notifications to the owner, and to staff who wrote before. Users read them when they write next."""
        for place, message in enumerate(messages):
            staff = {one["sender_id"] for one in messages[:place] if one["sender_type"] == "agent"}
            receivers = staff if message.get("is_private") else staff | {chat["user_id"]}
            for user_id in sorted(receivers - {message["sender_id"]}) if message["sender_id"] in names else ():
                own = [one["created_at"] for one in messages[place:] if one["sender_id"] == user_id]
                read_at = own[0] if own else None
                yield message_notification(self.realm, user_id, names[message["sender_id"]], message, read_at)

    def other_records(self) -> Iterator[Members]:
        """Yield events, data shares, feedback, and notifications that are not about messages."""
        for name, kind in KINDS.items():
            for number, given in enumerate(self.content[name]):
                members = self.members(given)
                yield {kind: {"id": self.realm.id(kind, number), **(dated(members) if kind in DATED else members)}}


def demo() -> Iterator[Members]:
    """Yield the records of the demo: the planned sessions, notifications about the newest replies, and the story."""
    realm = Realm("demo", "Lingua Lounge")
    sessions = list(plan())
    demo_records = list(realm.records(sessions))
    people, chats, messages, bots = (
        [one[kind] for one in demo_records if kind in one] for kind in ("user", "chat_session", "message", "bot")
    )
    lengths = Counter(one["chat_session_id"] for one in messages)
    long = max(chats, key=lambda chat: lengths[chat["id"]])
    demo_records += add_details(realm, long, [one for one in messages if one["chat_session_id"] == long["id"]])
    alice, names = realm.id("user", "alice"), {bot["id"]: bot["name"] for bot in bots}
    alice_chats = {chat["id"] for chat in chats if chat["user_id"] == alice}
    newest = {one["chat_session_id"]: one for one in messages if one["sender_id"] in names}
    answers = [one for session, one in newest.items() if session in alice_chats][-6:]
    for place, one in enumerate(answers):
        read_at = stamp(START + SPAN) if place < 3 else None
        demo_records.append({"notification": message_notification(realm, alice, names[one["sender_id"]], one, read_at)})
    story = Story(realm, tomllib.loads(STORY.read_text(encoding="utf-8")))
    demo_records += story.people(dict(zip(PEOPLE, people, strict=True)))
    users = [one["user"] for one in demo_records if "user" in one]
    hashed = password_hash()
    for user in users:
        del user["password"]
        user["password_hash"] = hashed
    display_names = {user["id"]: user["display_name"] for user in users}
    yield from (
        *demo_records,
        *story.catalogue(),
        *story.chats(display_names),
        *story.other_records(),
        *canned_answers(realm, sessions),
    )


def notice() -> str:
    """Return the origin and the licence of the conversations, which must accompany them."""
    about = metadata("chatterbot-corpus")
    origin = f"Conversations from {about['Name']} {about['Version']} by {about['Author']} and its contributors."
    return f"{origin}\nUsers, times, identifiers and a story were added; the texts are unchanged.\n\n{LICENCE}"


def main() -> None:
    """Write the chosen records, and print their number by kind."""
    parser = argparse.ArgumentParser(description="Generate conversations as JSON Lines records.")
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--demo", type=Path, metavar="OUT", help="a small, fixed demo in many scripts")
    which.add_argument("--all", type=Path, metavar="OUT", help="all conversations of the package")
    chosen = parser.parse_args()
    out: Path = chosen.demo or chosen.all
    chosen_records = list(demo() if chosen.demo else records(conversations()))
    encoded = (json.dumps(one, ensure_ascii=False, separators=(",", ":")) + "\n" for one in chosen_records)
    out.write_text("".join(encoded), encoding="utf-8", newline="\n")
    out.with_name(f"{out.name}.NOTICE.txt").write_text(notice(), encoding="utf-8", newline="\n")
    print(
        *(f"{count} {kind}" for kind, count in Counter(kind for one in chosen_records for kind in one).items()),
        file=sys.stderr,
    )


if __name__ == "__main__":
    main()

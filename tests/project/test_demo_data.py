"""The generated demo data: complete, valid, and the same in every run."""

import json
import os
import subprocess
import sys
import unicodedata
import zlib
from collections import Counter
from importlib.metadata import version
from importlib.resources import files
from itertools import cycle, groupby
from pathlib import Path

import pytest
import yaml
from ulid import ULID

from service.auth import passwords
from service.commands.demo import PASSWORD, PEOPLE, QUIZ
from service.demo import make as corpus
from service.demo.make import Members
from service.models import Avatar
from tests.support.paths import ROOT

pytestmark = pytest.mark.slow

# The members of the specification, and those that only imports have.
MEMBERS = {
    "app": "id name",
    "user": """id email first_name last_name auth_provider created_at last_login_at is_anonymous is_verified location
        onboarding_completed profile_image role user_type password password_hash is_disabled app_id display_name phone
        locale timezone settings""",
    "bot": """id app_id name slug tagline description category kind status presence is_active is_featured rating country
        region city accent_color brand_color cover_url icon_url contact_email contact_phone contact_website social_links
        created_at updated_at""",
    "chat_session": "id app_id conversation_id user_id bot_id status created_at",
    "message": """id chat_session_id conversation_id identity_id sender_id sender_type channel status content_type
        content original_content translations reply_to_message_id reply_snapshot action_id action_source_id
        action_payload is_edited edited_at is_pinned is_private is_read_once deleted_at gdpr_purged gdpr_purged_at
        gdpr_original_content_type created_at updated_at text pinned_at""",
    "notification": "id type title body conversation_id session_id payload is_read read_at created_at user_id",
    "event": """id user_id app_id title notes starts_at ends_at reminder_at is_time_sensitive source source_event_id
        created_at updated_at""",
    "data_share": """id user_id app_id conversation_id mcp_server_id allowed_tools scope_meta expires_at granted_at
        revoked_at is_active""",
    "feedback": """id user_id feedback_type description app_version device_info screenshot_url status created_at
        updated_at""",
    "avatar": "user_id name image",
    "bot_answer": "id bot_id language question answer actions",
}
SCRIPTS = {
    "LATIN",
    "CYRILLIC",
    "DEVANAGARI",
    "BENGALI",
    "ARABIC",
    "HEBREW",
    "CJK",
    "HIRAGANA",
    "HANGUL",
    "TAMIL",
    "THAI",
}

Records = dict[str, list[Members]]


def grouped(records: list[Members]) -> Records:
    by_kind: Records = {kind: [] for kind in MEMBERS}
    for record in records:
        ((kind, members),) = record.items()
        by_kind[kind].append(members)
    return by_kind


@pytest.fixture(scope="module")
def everything() -> Records:
    return grouped(list(corpus.records(corpus.conversations())))


@pytest.fixture(scope="module")
def demo() -> Records:
    return grouped(list(corpus.demo()))


@pytest.fixture(scope="module", params=["everything", "demo"])
def records(request: pytest.FixtureRequest) -> Records:
    value: Records = request.getfixturevalue(request.param)
    return value


def expected_texts() -> dict[str, list[str]]:
    """The texts of each language, parsed differently: the scalars after the key `conversations`."""
    lines: dict[str, list[str]] = {}
    data = Path(str(files("chatterbot_corpus"))) / "data"
    for file in sorted(data.rglob("*.yml")):
        events = yaml.parse(file.read_text(encoding="utf-8-sig"), Loader=getattr(yaml, "CLoader", yaml.Loader))
        scalars = [event.value for event in events if isinstance(event, yaml.ScalarEvent)]
        last = len(scalars) - scalars[::-1].index("conversations")
        lines.setdefault(file.parent.name, []).extend(scalars[last:])
    return lines


def test_all_lines_of_all_languages_are_generated_in_order(everything: Records) -> None:
    language = {bot["id"]: bot["slug"] for bot in everything["bot"]}
    language_of = {chat["id"]: language[chat["bot_id"]] for chat in everything["chat_session"]}
    texts: dict[str, list[str]] = {}
    for message in everything["message"]:
        texts.setdefault(language_of[message["chat_session_id"]], []).append(message["text"])
    assert texts == expected_texts()


@pytest.mark.skipif(version("chatterbot-corpus") != "1.3.3", reason="counts of another release")
def test_numbers_of_the_known_release(everything: Records) -> None:
    assert {kind: len(rows) for kind, rows in everything.items() if rows} == {
        "app": 1,
        "user": 4,
        "bot": 28,
        "chat_session": 7644,
        "message": 19597,
    }
    assert {bot["slug"] for bot in everything["bot"]} == set(corpus.LANGUAGES)


def test_unusual_yaml_items_become_texts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "data" / "elvish"
    folder.mkdir(parents=True)
    unusual = '- [yes, 1.0, null, 2026-10-01]\n- bare: string\n- - - deep\n  - key: [a, b]\n- [""]\n- ["\\0", " x "]\n'
    (folder / "odd.yml").write_bytes(b"\xef\xbb\xbfcategories: [unusual]\r\nconversations:\r\n" + unusual.encode())
    monkeypatch.setattr(corpus, "files", lambda _: tmp_path)
    lines = [("yes", "1.0", "null", "2026-10-01"), ("bare: string",), ("deep", "key: a b"), (" x ",)]
    assert [one.lines for one in corpus.conversations()] == lines
    assert list(corpus.texts([None, True, 7, "\ud800", {"a\0b": 1}, "\n", "kept\n"])) == ["None", "True", "7", "kept\n"]
    (bot,) = (record["bot"] for record in corpus.records(corpus.conversations()) if "bot" in record)
    assert bot["name"] == "Elvish"


@pytest.mark.slow
@pytest.mark.parametrize("flag", ["--demo", "--all"])
def test_generation_is_reproducible(flag: str, tmp_path: Path) -> None:
    for seed in "1", "2":
        command = [sys.executable, "-W", "error", "-m", corpus.__name__, flag, str(tmp_path / seed)]
        variables = os.environ | {"PYTHONHASHSEED": seed}
        run = subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, check=True)
        assert b"chat_session" in run.stderr
    assert (tmp_path / "1").read_bytes() == (tmp_path / "2").read_bytes()
    notice = (tmp_path / "1.NOTICE.txt").read_text(encoding="utf-8")
    assert f"chatterbot-corpus {version('chatterbot-corpus')} by Gunther Cox" in notice
    assert "Redistributions in binary form must reproduce the above copyright notice" in notice
    records = [json.loads(line) for line in (tmp_path / "1").read_bytes().splitlines()]
    assert records == list(corpus.demo() if flag == "--demo" else corpus.records(corpus.conversations()))


def test_only_documented_members_are_written(records: Records) -> None:
    for kind, rows in records.items():
        assert {name for members in rows for name in members} <= set(MEMBERS[kind].split())


def test_ids_are_unique_and_references_valid(records: Records) -> None:
    for kind, rows in records.items():
        assert len({members["user_id" if kind == "avatar" else "id"] for members in rows}) == len(rows)
    apps = {app["id"] for app in records["app"]}
    people = {user["id"]: user for user in records["user"]}
    bots = {bot["id"]: bot for bot in records["bot"]}
    chats = {chat["id"]: chat for chat in records["chat_session"]}
    messages = {message["id"]: message for message in records["message"]}
    assert {bot["app_id"] for bot in bots.values()} == apps
    for user in people.values():
        assert user.get("app_id") in (apps if user["role"] == "agent" else {None})
    for chat in chats.values():
        assert chat["user_id"] in people
        assert bots[chat["bot_id"]]["app_id"] == chat["app_id"]
    for message in messages.values():
        chat, sender = chats[message["chat_session_id"]], message["sender_id"]
        assert message["conversation_id"] == chat["conversation_id"]
        if message["sender_type"] == "agent":
            assert people[sender]["app_id"] == chat["app_id"]
        else:
            assert sender == chat[f"{message['sender_type']}_id"]
        replied = messages.get(message.get("reply_to_message_id", message["id"]))
        assert replied
        assert replied["chat_session_id"] == message["chat_session_id"]
    for kind in ("event", "data_share", "feedback", "notification", "avatar"):
        for members in records[kind]:
            assert members["user_id"] in people
            assert members.get("app_id") in {None, *apps}
    assert {answer["bot_id"] for answer in records["bot_answer"]} <= set(bots)


def test_notifications_are_about_visible_messages(records: Records) -> None:
    people = {user["id"]: user for user in records["user"]}
    chats = {chat["id"]: chat for chat in records["chat_session"]}
    messages = {message["id"]: message for message in records["message"]}
    for note in (note for note in records["notification"] if note["type"] == "chat_message"):
        message, reader = messages[note["payload"]["message_id"]], people[note["user_id"]]
        assert note["session_id"] == note["payload"]["session_id"] == message["chat_session_id"]
        assert note["body"] == message["text"]
        assert reader["id"] != message["sender_id"]
        if reader["role"] == "user":
            assert chats[note["session_id"]]["user_id"] == reader["id"]
            assert not message.get("is_private")
        else:
            assert chats[note["session_id"]]["app_id"] == reader["app_id"]


def test_user_and_bot_share_one_conversation(records: Records) -> None:
    pairs = {(chat["user_id"], chat["bot_id"], chat["conversation_id"]) for chat in records["chat_session"]}
    assert len(pairs) == len({pair[:2] for pair in pairs}) == len({pair[2] for pair in pairs})


def test_messages_are_ordered_by_time_and_ulid(records: Records) -> None:
    public = [message for message in records["message"] if not message.get("is_private")]
    started = {chat["id"]: chat["created_at"] for chat in records["chat_session"]}
    for session, messages_of_chat in groupby(public, key=lambda message: message["chat_session_id"]):
        rows = [(message["created_at"], message["id"]) for message in messages_of_chat]
        assert rows == sorted(set(rows))
        assert started[session] < rows[0][0]
    for message in records["message"]:
        assert corpus.stamp(ULID.from_str(message["id"]).datetime) == message["created_at"]
        assert "2026-10-05T07:30" < message["created_at"] < "2026-11-20T09:00"


def test_customer_and_bot_alternate(everything: Records) -> None:
    for _, messages_of_chat in groupby(everything["message"], key=lambda message: message["chat_session_id"]):
        for message, sender in zip(messages_of_chat, cycle(("user", "bot")), strict=False):
            assert message["sender_type"] == sender


def test_demo_has_many_scripts_and_both_directions(demo: Records) -> None:
    letters = {letter for message in demo["message"] for letter in message["text"] if letter.isalpha()}
    assert {unicodedata.name(letter).split()[0].split("-")[0] for letter in letters} >= SCRIPTS
    assert {unicodedata.bidirectional(letter) for letter in letters} >= {"L", "R", "AL"}


def test_demo_is_small_and_has_its_users(demo: Records) -> None:
    lines = "".join(json.dumps({kind: one}, ensure_ascii=False) for kind in demo for one in demo[kind]).encode()
    assert len(lines) < 500_000
    assert len(zlib.compress(lines, 9)) < 100_000
    roles = {user["email"]: user["role"] for user in demo["user"]}
    expected_roles = dict(line.split()[:2] for line in PEOPLE.strip().splitlines())
    assert roles == expected_roles
    assert {user["role"] for user in demo["user"]} == {"user", "agent", "admin"}
    assert len({user["app_id"] for user in demo["user"] if user["role"] == "agent"}) == len(demo["app"]) == 2
    assert {avatar["user_id"] for avatar in demo["avatar"]} == {user["id"] for user in demo["user"]}
    assert {bot["presence"] for bot in demo["bot"]} == set(corpus.PRESENCES)
    assert {bot["status"] for bot in demo["bot"]} == {"draft", "published"}
    assert len({bot["rating"] for bot in demo["bot"] if "rating" in bot}) >= 5


def test_all_users_have_the_demo_password_with_the_usual_hash_cost(demo: Records) -> None:
    (password_hash,) = {user["password_hash"] for user in demo["user"]}
    assert passwords.is_correct(PASSWORD, password_hash)
    assert not passwords.is_correct(f"{PASSWORD}!", password_hash)
    assert password_hash.split("$")[:4] == passwords.hash_password("another one").split("$")[:4]


def test_avatars_are_imported_unchanged(demo: Records) -> None:
    for avatar in demo["avatar"]:
        assert Avatar.from_import(avatar) == {}
        assert len(avatar["image"]) < 4000


def test_demo_has_short_chats_in_each_language_and_a_long_one(demo: Records) -> None:
    lengths = Counter(message["chat_session_id"] for message in demo["message"])
    (long,) = (chat for chat in demo["chat_session"] if chat["id"] == QUIZ)
    assert lengths[long["id"]] > 250
    assert long["status"] == "open"
    assert all(3 <= lengths[chat["id"]] <= 60 for chat in demo["chat_session"] if chat is not long)
    statuses = {chat["status"] for chat in demo["chat_session"]}
    assert statuses == {"open", "pending", "resolved", "archived", "ended", "on_hold"}
    alice, bob, *_ = (user["id"] for user in demo["user"])
    languages = Counter(chat["bot_id"] for chat in demo["chat_session"] if chat["user_id"] == alice)
    assert len(languages) >= 14
    assert 0 < sum(chat["user_id"] == bob for chat in demo["chat_session"]) < languages.total()


def test_demo_has_pins_a_deletion_replies_notes_and_notifications(demo: Records) -> None:
    messages = {message["id"]: message for message in demo["message"]}
    assert sum("pinned_at" in message and message["is_pinned"] for message in messages.values()) == 4
    assert sum("deleted_at" in message for message in messages.values()) == 1
    replies = [message for message in messages.values() if "reply_to_message_id" in message]
    originals = [messages[reply["reply_to_message_id"]] for reply in replies]
    assert [one["sender_type"] for one in replies] == ["user", "user"]
    assert {one["sender_type"] for one in originals} == {"bot", "agent"}
    for reply, original in zip(replies, originals, strict=True):
        assert reply["reply_snapshot"] == {
            "sender_type": original["sender_type"],
            "content_type": "text",
            "text": original["text"],
        }
    notes = [message for message in messages.values() if message.get("is_private")]
    assert {note["sender_type"] for note in notes} == {"agent"}
    assert len(notes) == 3
    reads = Counter((note.get("is_read", False), "read_at" in note) for note in demo["notification"])
    assert set(reads) == {(True, True), (False, False)}
    assert {note["type"] for note in demo["notification"]} == {"chat_message", "chat_status", "event_reminder"}


def test_demo_has_data_shares_and_feedback_of_all_statuses(demo: Records) -> None:
    ends = {
        (bool(grant.get("revoked_at")), grant.get("expires_at", "9") > "2026-11-20") for grant in demo["data_share"]
    }
    assert ends == {(False, True), (False, False), (True, True)}
    assert {one["status"] for one in demo["feedback"]} == {"new", "in_progress", "done", "declined"}
    assert len({one["user_id"] for one in demo["feedback"]}) == 3


def test_demo_bots_have_canned_answers(demo: Records) -> None:
    known = {(one["bot_id"], one["question"]): one for one in demo["bot_answer"]}
    slugs = {bot["id"]: bot["slug"] for bot in demo["bot"]}
    assert {slugs[one["bot_id"]] for one in demo["bot_answer"]} == set(slugs.values()) - {"counter", "sommelier"}
    for (bot, _), answer in known.items():
        assert answer["language"] in {"en", "de", "ja"} if slugs[bot] == "ketty" else answer["language"]
    for message in demo["message"]:
        if message["chat_session_id"] == QUIZ and message["sender_type"] == "bot":
            assert message["text"].strip() in {one["answer"] for one in known.values()}

"""The legal purge: tombstones stay, the bytes leave the files (contract, section 5)."""

import pytest

from service import db
from service.commands import run
from service.models import ChatSession, Message, Notification
from service.models.contents import CONTENTS
from tests.conftest import flags_of, walk
from tests.postgres import is_chosen, on_sqlite_alone
from tests.test_chats import as_stored, delete, now, pin, pinned, quote, texts, total
from tests.trouble import another_connection
from tests.watching import files_of, nothing_changes, stored

SECRET = "Grüße aus Zürich, IBAN DE02120300000000202051"


@pytest.fixture
def purge(settings):
    """Runs the command as an operator does; the exit status."""

    def command(*arguments: str) -> int:
        db.close_database()
        status = run(["purge", *arguments, *flags_of(settings)])
        db.close_database()
        return status

    return command


@pytest.fixture
def secret_message(say, alice):
    """A message that holds the secret wherever a message can, and everything that repeats it."""
    message = say(SECRET, **{name: as_stored({"text": SECRET}) for name in CONTENTS if name != "content"})
    say("as you said", **quote(message))
    payload = as_stored({"text": SECRET, "message_id": message.id})
    Notification.create(user_id=alice.user.id, body=SECRET, payload=payload, message_id=message.id)
    return message


def spellings(secret: str) -> set[bytes]:
    """A text as it may lie in the files: itself, and as the integers that it is stored as."""
    piece = secret.encode()
    return {piece, ",".join(map(str, piece)).encode()}


def lie_in_files(settings, secret: str) -> set[bytes]:
    """Which spellings of a secret are found in any file of the database."""
    files = files_of(settings)
    assert files
    return {spelling for spelling in spellings(secret) if any(spelling in file for file in files)}


def by_message(message: Message) -> tuple[str, str]:
    return "--message", message.id


def by_session(message: Message) -> tuple[str, str]:
    return "--session", message.chat_session_id


def by_user(message: Message) -> tuple[str, str]:
    return "--user", " ALICE@Example.com "


every_way = pytest.mark.parametrize("way", [by_message, by_session, by_user])


@every_way
def test_the_bytes_of_a_purged_message_are_gone_from_the_files(way, purge, settings, secret_message):
    assert lie_in_files(settings, SECRET) == spellings(SECRET), "it was there before"
    assert purge(*way(secret_message)) == 0
    assert lie_in_files(settings, SECRET) == set()
    assert not [path for path in settings.data.glob("*-wal") if path.stat().st_size]


@pytest.mark.parametrize("spell", [str.upper, str.lower])
def test_the_identifiers_of_the_command_are_taken_in_any_case(purge, secret_message, spell):
    assert purge("--message", spell(secret_message.id)) == 0
    assert purge("--session", spell(secret_message.chat_session_id)) == 0
    assert now(secret_message).gdpr_purged_at


def test_the_bytes_are_gone_while_the_service_is_running(purge, settings, secret_message):
    with another_connection() as served:
        served.execute("SELECT count(*) FROM message").fetchall()
        assert purge(*by_message(secret_message)) == 0
        assert lie_in_files(settings, SECRET) == set()
        found = served.execute(f"SELECT content FROM message WHERE id = '{secret_message.id}'").fetchall()
    assert found == [("[]",)]


@on_sqlite_alone
@pytest.mark.slow  # waits until the reader has been waited for long enough
def test_a_purge_that_cannot_empty_the_journal_says_so_and_can_be_repeated(purge, settings, secret_message, capsys):
    with another_connection() as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM message").fetchall()
        assert purge(*by_message(secret_message)) == 1
        assert "run this again" in capsys.readouterr().err
    assert purge(*by_message(secret_message)) == 0
    assert lie_in_files(settings, SECRET) == set()


@pytest.mark.slow  # waits until the reader has been waited for long enough
def test_a_purge_of_rows_that_a_reader_still_sees_says_so_and_can_be_repeated(purge, settings, secret_message, capsys):
    if not is_chosen():
        pytest.skip("a matter of PostgreSQL alone")
    with another_connection() as reader, another_connection() as holder:
        holder.execute("CREATE TABLE elsewhere (id BIGINT)")
        reader.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        reader.execute("SELECT count(*) FROM elsewhere").fetchall()
        assert purge(*by_message(secret_message)) == 1
        assert "run this again" in capsys.readouterr().err
        reader.execute("COMMIT")
        holder.execute("DROP TABLE elsewhere")
    assert purge(*by_message(secret_message)) == 0
    assert lie_in_files(settings, SECRET) == set()


def test_a_purged_message_stays_as_a_tombstone(host_clock, purge, alice, agent, session, secret_message):
    host_clock.forward(minutes=1)
    before = walk(alice, f"/chats/{session.id}/messages")[0]
    purge(*by_message(secret_message))
    for client in (alice, agent):
        tombstone, _ = walk(client, f"/chats/{session.id}/messages")
        assert tombstone == before | dict.fromkeys(CONTENTS, []) | {
            "content_type": "gdpr_purged",
            "gdpr_original_content_type": "text",
            "gdpr_purged": True,
            "gdpr_purged_at": "2026-11-20T10:01:00.000Z",
        }
        assert total(client, session) == 2


def test_a_purged_message_is_not_soft_deleted(purge, alice, secret_message):
    purge(*by_message(secret_message))
    assert now(secret_message).deleted_at is None
    assert pin(alice, secret_message).status == 200
    assert delete(alice, secret_message).data == {"deleted": True}


def test_a_purged_message_leaves_the_answers_that_quote_it(purge, alice, session, secret_message, say):
    say("kept", **quote(say("another")))
    purge(*by_message(secret_message))
    _, answer, _, kept = walk(alice, f"/chats/{session.id}/messages")
    assert (answer["reply_to_message_id"], answer["reply_snapshot"]) == (secret_message.id, [])
    assert bytes(kept["reply_snapshot"]) == b'{"text":"another"}'


def test_a_purged_message_leaves_the_notifications_that_announce_it(purge, secret_message):
    purge(*by_message(secret_message))
    told = Notification.get(Notification.message_id == secret_message.id)
    assert (told.body, told.payload) == ("", "[]")


def test_the_text_of_a_purged_message_leaves_the_pins(purge, alice, agent, session, secret_message):
    pin(alice, secret_message)
    purge(*by_message(secret_message))
    for client in (alice, agent):
        (tombstone,) = client.get(f"/chats/{session.id}/pinned-messages").data
        assert (tombstone["content_type"], tombstone["content"]) == ("gdpr_purged", [])


def test_a_soft_deleted_message_keeps_its_bytes_until_it_is_purged(purge, settings, alice, session, secret_message):
    delete(alice, secret_message)
    assert lie_in_files(settings, SECRET) == spellings(SECRET)
    deleted_at = now(secret_message).deleted_at
    assert purge(*by_message(secret_message)) == 0
    assert lie_in_files(settings, SECRET) == set()
    assert texts(alice, session) == ["as you said"]
    assert (now(secret_message).content_type, now(secret_message).deleted_at) == ("gdpr_purged", deleted_at)


def test_a_second_purge_keeps_the_timestamp_and_the_original_type(host_clock, purge, secret_message, capsys):
    assert purge(*by_message(secret_message)) == 0
    assert "1 messages purged" in capsys.readouterr().out
    host_clock.forward(hours=1)
    with nothing_changes():
        assert purge(*by_message(secret_message)) == 0
    assert "0 messages purged" in capsys.readouterr().out
    assert now(secret_message).gdpr_original_content_type == "text"


def test_purging_a_message_leaves_every_other_alone(purge, secret_message, say):
    other = say("another", original_content=as_stored({"text": "before"}))
    before = now(other).__data__
    purge(*by_message(secret_message))
    assert now(other).__data__ == before


@pytest.mark.parametrize("way", [by_session, by_user])
def test_purging_a_session_or_a_user_spares_the_others(way, purge, alice, bob, shop, session, secret_message, say):
    more, his = [ChatSession.create(app_id=shop.id, user_id=client.user.id) for client in (alice, bob)]
    say("in her other session", more)
    say("bob's", his)
    pin(bob, Message.get(Message.chat_session_id == his.id))
    assert purge(*way(secret_message)) == 0
    purged = Message.select().where(Message.gdpr_purged_at.is_null(False))
    assert {message.chat_session_id for message in purged} == (
        {session.id} if way is by_session else {session.id, more.id}
    )
    assert texts(bob, his) == pinned(bob, his) == ["bob's"]


def test_a_private_note_can_be_purged(purge, settings, alice, agent, session, say):
    note = say(SECRET, is_private=True)
    assert purge(*by_message(note)) == 0
    assert lie_in_files(settings, SECRET) == set()
    assert (total(alice, session), total(agent, session)) == (0, 1)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--message", "01ARZ3NDEKTSV4RRFFQ69G5FAV"), "no such message"),
        (("--session", "00000000-0000-4000-8000-000000000000"), "no such message"),
        (("--user", "nobody@example.com"), "no user nobody@example.com"),
        (("--message", "nonsense"), "expected a ULID"),
        (("--session", "nonsense"), "expected a UUID"),
    ],
)
def test_what_is_not_there_cannot_be_purged(purge, secret_message, capsys, arguments, complaint):
    with nothing_changes():
        assert purge(*arguments) == 1
    assert complaint in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [(), ("--message", "x", "--user", "y")])
def test_the_command_takes_exactly_one_of_its_flags(purge, secret_message, capsys, arguments):
    before = stored()
    with pytest.raises(SystemExit) as stop:
        purge(*arguments)
    assert stop.value.code == 2
    assert capsys.readouterr().err.startswith("usage:")
    assert stored() == before

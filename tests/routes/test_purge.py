"""The legal purge: tombstones stay, the bytes are removed from the files."""

import pytest

from service import db
from service.commands import run
from service.models import ChatSession, Message, Notification
from service.models.contents import CONTENTS
from tests.support.chats import as_stored, delete, now, pin, pinned, quote, texts, total
from tests.support.client import walk
from tests.support.faults import another_connection
from tests.support.installation import flags_of
from tests.support.observe import files_of, nothing_changes, stored
from tests.support.postgres import is_chosen

SECRET = "Grüße aus Zürich, IBAN DE02120300000000202051"


@pytest.fixture
def purge(settings):
    """Return a function that runs the command and return its exit status."""

    def command(*arguments: str) -> int:
        db.close_database()
        status = run(["purge", *arguments, *flags_of(settings)])
        db.close_database()
        return status

    return command


@pytest.fixture
def secret_message(say, alice):
    """A message with the secret in every column for content, a reply that quotes it, and a notification."""
    message = say(SECRET, **{name: as_stored({"text": SECRET}) for name in CONTENTS if name != "content"})
    say("as you said", **quote(message))
    payload = as_stored({"text": SECRET, "message_id": message.id})
    Notification.create(user_id=alice.user.id, body=SECRET, payload=payload, message_id=message.id)
    return message


def spellings(secret: str) -> set[bytes]:
    """Return the forms of a text in the files: UTF-8, and an array of its bytes."""
    text = secret.encode()
    return {text, ",".join(map(str, text)).encode()}


def spellings_in_files(settings, secret: str) -> set[bytes]:
    """Return the spellings of a secret that are in the files of the database."""
    files = files_of(settings)
    assert files
    return {spelling for spelling in spellings(secret) if any(spelling in file for file in files)}


def by_message(message: Message) -> tuple[str, str]:
    return "--message", message.id


def by_session(message: Message) -> tuple[str, str]:
    return "--session", message.chat_session_id


def by_user(message: Message) -> tuple[str, str]:
    return "--user", " ALICE@Example.com "


every_flag = pytest.mark.parametrize("flag", [by_message, by_session, by_user])


@every_flag
def test_bytes_of_a_purged_message_are_removed_from_the_files(flag, purge, settings, secret_message):
    assert spellings_in_files(settings, SECRET) == spellings(SECRET), "the secret is not in the files"
    assert purge(*flag(secret_message)) == 0
    assert spellings_in_files(settings, SECRET) == set()
    assert not [path for path in settings.data.glob("*-wal") if path.stat().st_size]


@pytest.mark.parametrize("spell", [str.upper, str.lower])
def test_identifiers_are_case_insensitive(purge, secret_message, spell):
    assert purge("--message", spell(secret_message.id)) == 0
    assert purge("--session", spell(secret_message.chat_session_id)) == 0
    assert now(secret_message).gdpr_purged_at


def test_bytes_are_removed_while_the_service_is_running(purge, settings, secret_message):
    with another_connection() as connection:
        connection.execute("SELECT count(*) FROM message").fetchall()
        assert purge(*by_message(secret_message)) == 0
        assert spellings_in_files(settings, SECRET) == set()
        found = connection.execute(f"SELECT content FROM message WHERE id = '{secret_message.id}'").fetchall()
    assert found == [("[]",)]


@pytest.mark.sqlite_only
@pytest.mark.slow  # waits for the reader until the timeout
def test_purge_reports_a_journal_in_use_and_can_be_repeated(purge, settings, secret_message, capsys):
    with another_connection() as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM message").fetchall()
        assert purge(*by_message(secret_message)) == 1
        assert "run this again" in capsys.readouterr().err
    assert purge(*by_message(secret_message)) == 0
    assert spellings_in_files(settings, SECRET) == set()


@pytest.mark.slow  # waits for the reader until the timeout
def test_purge_reports_rows_visible_to_a_reader_and_can_be_repeated(purge, settings, secret_message, capsys):
    if not is_chosen():
        pytest.skip("only on PostgreSQL")
    with another_connection() as reader, another_connection() as holder:
        holder.execute("CREATE TABLE elsewhere (id BIGINT)")
        reader.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        reader.execute("SELECT count(*) FROM elsewhere").fetchall()
        assert purge(*by_message(secret_message)) == 1
        error = capsys.readouterr().err
        process = f"process {reader.info.backend_pid} of the database server (client backend, idle in transaction, "
        assert f"visible to {process}" in error
        assert "run this again" in error
        reader.execute("COMMIT")
        holder.execute("DROP TABLE elsewhere")
    assert purge(*by_message(secret_message)) == 0
    assert spellings_in_files(settings, SECRET) == set()


def test_purged_message_stays_as_a_tombstone(host_clock, purge, alice, agent, session, secret_message):
    host_clock.forward(minutes=1)
    before = walk(alice, f"/chats/{session.id}/messages")[0]
    purge(*by_message(secret_message))
    for client in (alice, agent):
        tombstone, _ = walk(client, f"/chats/{session.id}/messages")
        assert tombstone == before | dict.fromkeys(before.keys() & {*CONTENTS}, []) | {
            "content_type": "gdpr_purged",
            "gdpr_original_content_type": "text",
            "gdpr_purged": True,
            "gdpr_purged_at": "2026-11-20T10:01:00.000Z",
        }
        assert total(client, session) == 2


def test_purged_message_is_not_soft_deleted(purge, alice, secret_message):
    purge(*by_message(secret_message))
    assert now(secret_message).deleted_at is None
    assert pin(alice, secret_message).status == 200
    assert delete(alice, secret_message).data == {"deleted": True}


def test_purged_message_is_removed_from_quotations(purge, alice, session, secret_message, say):
    say("reply", **quote(say("another")))
    purge(*by_message(secret_message))
    _, reply, _, other = walk(alice, f"/chats/{session.id}/messages")
    assert (reply["reply_to_message_id"], reply["reply_snapshot"]) == (secret_message.id, [])
    assert bytes(other["reply_snapshot"]) == b'{"text":"another"}'


def test_purged_message_is_removed_from_notifications(purge, secret_message):
    purge(*by_message(secret_message))
    notification = Notification.get(Notification.message_id == secret_message.id)
    assert (notification.body, notification.payload) == ("", "[]")


def test_purged_message_is_removed_from_pins(purge, alice, agent, session, secret_message):
    pin(alice, secret_message)
    purge(*by_message(secret_message))
    for client in (alice, agent):
        (tombstone,) = client.get(f"/chats/{session.id}/pinned-messages").data
        assert (tombstone["content_type"], tombstone["content"]) == ("gdpr_purged", [])


def test_soft_deleted_message_keeps_its_bytes_until_the_purge(purge, settings, alice, session, secret_message):
    delete(alice, secret_message)
    assert spellings_in_files(settings, SECRET) == spellings(SECRET)
    deleted_at = now(secret_message).deleted_at
    assert purge(*by_message(secret_message)) == 0
    assert spellings_in_files(settings, SECRET) == set()
    assert texts(alice, session) == ["as you said"]
    assert (now(secret_message).content_type, now(secret_message).deleted_at) == ("gdpr_purged", deleted_at)


def test_second_purge_keeps_the_time_and_the_original_type(host_clock, purge, secret_message, capsys):
    assert purge(*by_message(secret_message)) == 0
    assert "1 messages purged" in capsys.readouterr().out
    host_clock.forward(hours=1)
    with nothing_changes():
        assert purge(*by_message(secret_message)) == 0
    assert "0 messages purged" in capsys.readouterr().out
    assert now(secret_message).gdpr_original_content_type == "text"


def test_purge_of_a_message_keeps_all_others(purge, secret_message, say):
    other = say("another", original_content=as_stored({"text": "before"}))
    before = now(other).__data__
    purge(*by_message(secret_message))
    assert now(other).__data__ == before


@pytest.mark.parametrize("flag", [by_session, by_user])
def test_purge_of_a_session_or_user_keeps_all_others(flag, purge, alice, bob, shop, session, secret_message, say):
    another, bobs = [ChatSession.create(app_id=shop.id, user_id=client.user.id) for client in (alice, bob)]
    say("in another session", another)
    say("bob's", bobs)
    pin(bob, Message.get(Message.chat_session_id == bobs.id))
    assert purge(*flag(secret_message)) == 0
    purged = Message.select().where(Message.gdpr_purged_at.is_null(False))
    assert {message.chat_session_id for message in purged} == (
        {session.id} if flag is by_session else {session.id, another.id}
    )
    assert texts(bob, bobs) == pinned(bob, bobs) == ["bob's"]


def test_private_note_can_be_purged(purge, settings, alice, agent, session, say):
    note = say(SECRET, is_private=True)
    assert purge(*by_message(note)) == 0
    assert spellings_in_files(settings, SECRET) == set()
    assert (total(alice, session), total(agent, session)) == (0, 1)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("--message", "01ARZ3NDEKTSV4RRFFQ69G5FAV"), "no such message"),
        (("--session", "00000000-0000-4000-8000-000000000000"), "no such message"),
        (("--user", "unknown@example.com"), "no such user: unknown@example.com"),
        (("--message", "nonsense"), "expected a ULID"),
        (("--session", "nonsense"), "expected a UUID"),
    ],
)
def test_unknown_identifiers_are_errors(purge, secret_message, capsys, arguments, error):
    with nothing_changes():
        assert purge(*arguments) == 1
    assert error in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [(), ("--message", "x", "--user", "y")])
def test_command_requires_exactly_one_flag(purge, secret_message, capsys, arguments):
    before = stored()
    with pytest.raises(SystemExit) as exit_info:
        purge(*arguments)
    assert exit_info.value.code == 2
    assert capsys.readouterr().err.startswith("usage:")
    assert stored() == before

"""The cost of a page depends on the page, not on the messages of other sessions."""

import pytest

from service import clock, db
from service.models import ChatSession, Message
from service.models.recompute import recompute
from tests.support.observe import query_plan, reads_a_page, statements


def fill(session, number, start):
    """Create messages one second apart."""
    times = [clock.milliseconds(start) + index * clock.SECOND for index in range(number)]
    Message.insert_many(
        [{"id": clock.ulid(at), "chat_session_id": session.id, "content": "[]"} for at in times]
    ).execute()


@pytest.fixture
def crowded(shop, bob, alice, session):
    """A session between older and newer ones, all long enough for the statistics of the database."""
    older, newer = (ChatSession.create(app_id=shop.id, user_id=bob.user.id) for _ in range(2))
    fill(older, 600, "2026-01-01T00:00:00.000Z")
    fill(session, 600, "2026-02-01T00:00:00.000Z")
    fill(newer, 600, "2026-03-01T00:00:00.000Z")
    recompute([older.id, session.id, newer.id])
    db.database.execute_sql("ANALYZE message")
    return session


@pytest.mark.parametrize("direction", ["forward", "backward"])
@pytest.mark.parametrize("name", ["alice", "agent"])
def test_page_of_messages_reads_one_index_range(request, crowded, name, direction):
    client = request.getfixturevalue(name)
    path = f"/chats/{crowded.id}/messages?limit=25&direction={direction}"
    cursor = client.get(path).meta["next_cursor"]
    for query in ("", f"&cursor={cursor}"):
        with statements() as seen:
            assert len(client.get(path + query).data) == 25
        (page,) = filter(reads_a_page, seen)
        plan = query_plan(*page)
        assert (plan.ranges, plan.scans, plan.sorts) == (["message_shown"], [], False), plan

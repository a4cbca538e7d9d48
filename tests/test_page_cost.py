"""What a page costs is a matter of the page: not of what others have written, before or since."""

import pytest

from service import clock, db
from service.models import ChatSession, Message
from service.models.settling import settle
from tests.watching import is_of_a_page, query_plan, statements


def fill(session, number, begun):
    """Messages of a session, a second apart."""
    moments = [clock.milliseconds(begun) + place * clock.SECOND for place in range(number)]
    Message.insert_many(
        [{"id": clock.ulid(at), "chat_session_id": session.id, "content": "[]"} for at in moments]
    ).execute()


@pytest.fixture
def crowded(shop, bob, alice, session):
    """Alice's session among others, all of them long enough to be counted by the database."""
    before, since = (ChatSession.create(app_id=shop.id, user_id=bob.user.id) for _ in range(2))
    fill(before, 600, "2026-01-01T00:00:00.000Z")
    fill(session, 600, "2026-02-01T00:00:00.000Z")
    fill(since, 600, "2026-03-01T00:00:00.000Z")
    settle([before.id, session.id, since.id])
    db.database.execute_sql("ANALYZE message")
    return session


@pytest.mark.parametrize("direction", ["forward", "backward"])
@pytest.mark.parametrize(("name", "index"), [("alice", "message_public"), ("agent", "message_shown")])
def test_a_page_of_messages_is_not_looked_for_among_those_of_others(request, crowded, name, index, direction):
    client = request.getfixturevalue(name)
    path = f"/chats/{crowded.id}/messages?limit=25&direction={direction}"
    cursor = client.get(path).meta["next_cursor"]
    for query in ("", f"&cursor={cursor}"):
        with statements() as seen:
            assert len(client.get(path + query).data) == 25
        (page,) = filter(is_of_a_page, seen)
        plan = query_plan(*page)
        assert (plan.ranges, plan.scans, plan.sorts) == ([index], [], False), plan

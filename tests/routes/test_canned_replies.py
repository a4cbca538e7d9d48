"""Canned replies of an app: listing, changing, limits, and who may do it."""

import json

import pytest

from service.models import CannedReply, canned_replies
from service.operate import import_export
from tests.support.client import walk
from tests.support.observe import at_once, nothing_changes, query_plan, reads_a_page, statements

pytestmark = pytest.mark.database

UNKNOWN = "00000000-0000-4000-8000-000000000000"


@pytest.fixture
def path(shop):
    return f"/apps/{shop.id}/canned-replies"


def add(client, path, shortcut, text="Hello.", **members):
    reply = client.post(path, {"shortcut": shortcut, "text": text, **members})
    assert reply.status == 201, reply.json
    return reply.data


def shortcuts(client, path, **query):
    return [row["shortcut"] for row in walk(client, path, **query)]


def test_staff_creates_changes_and_deletes_a_canned_reply(host_clock, agent, admin, shop, path):
    made = add(agent, path, "Thanks", "Thank you.", language="en")
    assert made == {
        "id": made["id"],
        "app_id": shop.id,
        "shortcut": "thanks",
        "language": "en",
        "text": "Thank you.",
        "created_at": "2026-11-20T10:00:00.000Z",
        "updated_at": "2026-11-20T10:00:00.000Z",
    }
    host_clock.forward(minutes=1)
    changed = admin.patch(f"{path}/{made['id']}", {"text": "Thanks!", "language": ""}).data
    assert changed == {**made, "text": "Thanks!", "language": "", "updated_at": "2026-11-20T10:01:00.000Z"}
    assert agent.get(path).data == [changed]
    assert agent.delete(f"{path}/{made['id']}").data == {"deleted": True}
    assert agent.get(path).data == []


def test_a_change_to_the_same_values_writes_nothing(agent, path):
    id = add(agent, path, "thanks")["id"]
    with nothing_changes():
        assert agent.patch(f"{path}/{id}", {"shortcut": "THANKS"}).status == 200
        assert agent.patch(f"{path}/{id}", {}).status == 200


def test_a_prefix_selects_by_shortcut(agent, path):
    for shortcut in ("hours", "hello", "bye", "100%", "100_", "ÉCOLE", "営業時間"):
        add(agent, path, shortcut)
    found = {prefix: shortcuts(agent, path, prefix=prefix) for prefix in ("h", "HE", "x", "100%25", "%25", "_")}
    assert found == {"h": ["hello", "hours"], "HE": ["hello"], "x": [], "100%25": ["100%"], "%25": [], "_": []}
    assert agent.get(f"{path}?prefix=%C3%A9c").data[0]["shortcut"] == canned_replies.check_shortcut("école")
    assert shortcuts(agent, path, prefix="%E5%96%B6") == ["営業時間"]


@pytest.mark.parametrize("prefix", ["", "r"])
def test_pages_are_complete_and_in_order(agent, path, other_shop, prefix):
    CannedReply.create(app_id=other_shop.id, shortcut="r0", text="Hello.")
    for number in (3, 1, 2, 5, 4):
        add(agent, path, f"r{number}")
    add(agent, path, "r3", language="de")
    expected = ["r1", "r2", "r3", "r3", "r4", "r5"]
    for per_page in (1, 2, 100):
        assert shortcuts(agent, path, prefix=prefix, per_page=per_page) == expected


def test_a_page_is_a_range_of_an_index(agent, path):
    with statements() as seen:
        agent.get(f"{path}?prefix=a")
    (statement,) = filter(reads_a_page, seen)
    plan = query_plan(*statement)
    assert (plan.ranges, plan.scans, plan.sorts) == (["canned_reply_app_id_shortcut_id"], [], False), plan


def test_a_shortcut_is_unique_for_each_language(agent, admin, path, other_shop):
    first, second = add(agent, path, "hi"), add(agent, path, "hi", language="de")
    add(admin, f"/apps/{other_shop.id}/canned-replies", "hi")
    with nothing_changes():
        assert agent.post(path, {"shortcut": "HI", "text": "Hello."}).error == (400, "canned_reply_exists")
        assert agent.patch(f"{path}/{second['id']}", {"language": ""}).error == (400, "canned_reply_exists")
    agent.delete(f"{path}/{first['id']}")
    assert agent.patch(f"{path}/{second['id']}", {"language": ""}).status == 200


def test_of_concurrent_creations_of_a_shortcut_one_succeeds(agent, path):
    found = at_once(4, lambda _: agent.post(path, {"shortcut": "hi", "text": "Hello."}).status)
    assert sorted(found) == [201, 400, 400, 400]


def test_the_number_is_limited(monkeypatch, agent, admin, path, other_shop):
    monkeypatch.setattr(canned_replies, "LIMIT", 3)
    made = [add(agent, path, f"r{number}") for number in range(3)]
    with nothing_changes():
        assert agent.post(path, {"shortcut": "r4", "text": "Hello."}).error == (400, "canned_reply_limit_reached")
    add(admin, f"/apps/{other_shop.id}/canned-replies", "r4")
    agent.delete(f"{path}/{made[0]['id']}")
    add(agent, path, "r4")


def test_the_limit_is_that_of_the_message():
    assert f"{canned_replies.LIMIT:,}" in canned_replies.CannedReplyLimitReached.default_message()


@pytest.mark.parametrize(
    "members",
    [
        {"shortcut": ""},
        {"shortcut": None},
        {"shortcut": "two words"},
        {"shortcut": "tab\t"},
        {"shortcut": "nul\0"},
        {"shortcut": "s" * 65},
        {"text": ""},
        {"text": "t" * 10_001},
        {"text": 1},
        {"language": "x y"},
    ],
)
def test_invalid_members_are_400(agent, path, members):
    id = add(agent, path, "hi")["id"]
    with nothing_changes():
        assert agent.post(path, {"shortcut": "new", "text": "Hello.", **members}).error[0] == 400
        assert agent.patch(f"{path}/{id}", members).error[0] == 400


@pytest.mark.parametrize("missing", ["shortcut", "text"])
def test_shortcut_and_text_are_required(agent, path, missing):
    body = {"shortcut": "hi", "text": "Hello."}
    del body[missing]
    assert agent.post(path, body).error == (400, "invalid_body")


def test_only_the_staff_of_the_app_has_access(alice, other_agent, agent, path):
    id = add(agent, path, "hi")["id"]
    with nothing_changes():
        for client in (alice, other_agent):
            assert client.get(path).error == (403, "forbidden")
            assert client.post(path, {"shortcut": "new", "text": "Hello."}).error == (403, "forbidden")
            assert client.patch(f"{path}/{id}", {"text": "New"}).error == (403, "forbidden")
            assert client.delete(f"{path}/{id}").error == (403, "forbidden")


def test_replies_of_another_app_are_not_found(admin, path, other_shop):
    other = CannedReply.create(app_id=other_shop.id, shortcut="hi", text="Hello.").id
    with nothing_changes():
        for id in (other, UNKNOWN):
            assert admin.patch(f"{path}/{id}", {"text": "New"}).error == (404, "canned_reply_not_found")
            assert admin.delete(f"{path}/{id}").error == (404, "canned_reply_not_found")


def test_a_second_deletion_is_not_found(agent, path):
    id = add(agent, path, "hi")["id"]
    assert agent.delete(f"{path}/{id}").status == 200
    assert agent.delete(f"{path}/{id}").error == (404, "canned_reply_not_found")


def test_canned_replies_are_exported_and_imported(agent, path, tmp_path):
    made = add(agent, path, "hi", language="de")
    lines = []
    import_export.export(lines.append)
    CannedReply.delete().execute()
    file = tmp_path / "rows.jsonl"
    file.write_bytes(b"".join(lines))
    assert import_export.import_files([file]) == []
    assert agent.get(path).data == [made]
    file.write_text(json.dumps({"canned_reply": {"app_id": made["app_id"], "shortcut": "two words", "text": "x"}}))
    assert "expected a text without white space" in import_export.import_files([file])[0]

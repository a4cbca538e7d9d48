"""Canned answers of bots: list, creation, changes and deletion by staff."""

from typing import Any

import pytest

from service.models import App, Bot, CannedAnswer, CannedAnswerWord
from tests.support.client import Client, text_of, walk
from tests.support.observe import nothing_changes

pytestmark = pytest.mark.database

UNKNOWN = "00000000-0000-4000-8000-000000000000"
BOOK = {"id": "book", "label": "Book a table", "payload": {"table": [7]}}


@pytest.fixture
def path(bot: Bot) -> str:
    """The address of the canned answers of the shop's bot."""
    return f"/apps/{bot.app_id}/bots/{bot.id}/answers"


def add(client: Client, path: str, question: str, answer: str = "Yes.", **members: Any) -> str:
    """Add a canned answer; return its identifier."""
    reply = client.post(path, {"question": question, "answer": answer, **members})
    assert reply.status == 201
    return str(reply.data["id"])


def questions(client: Client, path: str, **query: Any) -> list[str]:
    """The questions of all pages of the list."""
    return [row["question"] for row in walk(client, path, **query)]


def test_answer_is_created_with_all_members(agent: Client, path: str, bot: Bot) -> None:
    given = {"question": "Open?", "answer": "Yes.", "language": "pt-BR", "actions": [BOOK]}
    created = agent.post(path, given).data
    assert created == {"id": created["id"], "bot_id": bot.id, **given}
    assert agent.get(path).data == [created]


def test_list_is_ordered_by_question_and_paged(agent: Client, path: str, shop: App) -> None:
    for question in ("Cats?", "Ants?", "Bees?"):
        add(agent, path, question)
    CannedAnswer.create(bot_id=Bot.create(app_id=shop.id, name="Other").id, question="Dogs?", answer="No.")
    assert questions(agent, path, per_page=1) == ["Ants?", "Bees?", "Cats?"]
    assert agent.get(f"{path}?per_page=2").meta["per_page"] == 2


@pytest.mark.parametrize(
    ("search", "found"),
    [
        ("", ["Wann habt ihr geöffnet?", "When are you open?", "Where are you?"]),
        ("OPEN", ["When are you open?"]),
        ("you%20whe", ["When are you open?", "Where are you?"]),
        ("geoffnet", ["Wann habt ihr geöffnet?"]),
        ("%25", ["Wann habt ihr geöffnet?", "When are you open?", "Where are you?"]),
        ("dogs", []),
    ],
)
def test_search_finds_words_of_the_question(agent: Client, path: str, search: str, found: list[str]) -> None:
    for question in ("When are you open?", "Where are you?", "Wann habt ihr geöffnet?"):
        add(agent, path, question)
    assert questions(agent, path, search=search) == found


def test_changed_answer_is_the_reply_of_the_bot(agent: Client, alice: Client, path: str, bot: Bot, session) -> None:
    Bot.update(kind="bot", status="published").where(Bot.id == bot.id).execute()
    id = add(agent, path, "When are you open?", "From nine.")

    def reply_to(text: str) -> str:
        alice.post(f"/chats/{session.id}/messages", {"content": {"text": text}})
        return text_of(alice.get(f"/chats/{session.id}/messages?direction=backward&limit=1").data[0])

    assert reply_to("When are you open?") == "From nine."
    agent.patch(f"{path}/{id}", {"question": "Do you sell cheese?", "answer": "We do."})
    assert reply_to("Do you sell cheese?") == "We do."
    assert reply_to("When are you open?") != "From nine."
    agent.delete(f"{path}/{id}")
    assert reply_to("Do you sell cheese?") != "We do."
    assert not CannedAnswerWord.select().exists()


@pytest.mark.parametrize(
    "body",
    [
        {"question": ""},
        {"question": None},
        {"question": "q" * 501},
        {"answer": ""},
        {"answer": "a" * 10_001},
        {"language": "x y"},
        {"language": 1},
        {"actions": {}},
        {"actions": [{"label": "Book"}]},
        {"actions": [{"id": "book", "label": ""}]},
        {"actions": [{"id": "book", "label": "two\nlines"}]},
        {"actions": [{"id": "book", "label": "x" * 81}]},
        {"actions": [{"id": "x" * 81, "label": "Book"}]},
        {"actions": [{"id": "book", "label": "Book", "payload": 1}]},
        {"actions": [{"id": "book", "label": "Book", "payload": {"x": "x" * 1017}}]},
        {"actions": [BOOK, BOOK]},
        {"actions": [{"id": str(number), "label": "Book"} for number in range(9)]},
    ],
)
def test_invalid_members_are_refused(agent: Client, path: str, body: dict[str, Any]) -> None:
    id = add(agent, path, "Open?")
    with nothing_changes():
        assert agent.patch(f"{path}/{id}", body).error == (400, "invalid_body")
        assert agent.post(path, {"question": "Open?", "answer": "Yes.", **body}).error == (400, "invalid_body")


def test_actions_are_kept_replaced_and_removed(agent: Client, path: str) -> None:
    id = add(agent, path, "Open?", actions=[BOOK])
    assert agent.patch(f"{path}/{id}", {"answer": "No."}).data["actions"] == [BOOK]
    actions = [{"id": str(number), "label": "x" * 80, "payload": {"x": "x" * 1016}} for number in range(8)]
    assert agent.patch(f"{path}/{id}", {"actions": actions}).data["actions"] == actions
    assert agent.patch(f"{path}/{id}", {"actions": []}).data["actions"] == []
    agent.patch(f"{path}/{id}", {"actions": [BOOK]})
    assert agent.patch(f"{path}/{id}", {"actions": None}).data["actions"] == []


@pytest.mark.parametrize("missing", ["question", "answer"])
def test_question_and_answer_are_required(agent: Client, path: str, missing: str) -> None:
    body = {"question": "Open?", "answer": "Yes."}
    del body[missing]
    assert agent.post(path, body).error == (400, "invalid_body")


def test_answers_of_another_bot_are_not_found(agent: Client, path: str, shop: App) -> None:
    other = Bot.create(app_id=shop.id, name="Other")
    id = CannedAnswer.create(bot_id=other.id, question="Dogs?", answer="No.").id
    with nothing_changes():
        for answer_id in (id, UNKNOWN):
            assert agent.patch(f"{path}/{answer_id}", {"answer": "Yes."}).error == (404, "answer_not_found")
            assert agent.delete(f"{path}/{answer_id}").error == (404, "answer_not_found")


def test_answers_of_another_app_are_forbidden(other_agent: Client, alice: Client, agent: Client, path: str) -> None:
    id = add(agent, path, "Open?")
    with nothing_changes():
        for client in (other_agent, alice):
            assert client.get(path).error == (403, "forbidden")
            assert client.post(path, {"question": "Open?", "answer": "Yes."}).error == (403, "forbidden")
            assert client.patch(f"{path}/{id}", {"answer": "No."}).error == (403, "forbidden")
            assert client.delete(f"{path}/{id}").error == (403, "forbidden")


def test_bot_of_another_app_is_not_found(admin: Client, bot: Bot, other_shop: App) -> None:
    assert admin.get(f"/apps/{other_shop.id}/bots/{bot.id}/answers").error == (404, "bot_not_found")


def test_second_deletion_is_not_found(agent: Client, path: str) -> None:
    id = add(agent, path, "Open?")
    assert agent.delete(f"{path}/{id}").data == {"deleted": True}
    assert agent.delete(f"{path}/{id}").error == (404, "answer_not_found")
    assert agent.get(path).data == []

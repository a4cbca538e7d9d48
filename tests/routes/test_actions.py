"""Actions of messages: offers of staff, and the presses of customers."""

import json
from typing import Any

import pytest

from service.models import CannedAnswer, ChatSession, Message, actions
from service.operate import import_export
from tests.support.chats import delete, texts
from tests.support.client import Client, Reply, text_of, walk
from tests.support.messages import edit, send, sent
from tests.support.observe import at_once, nothing_changes, query_plan, statements
from tests.support.sample_data import UNKNOWN_ID, UNKNOWN_MESSAGE_ID

pytestmark = pytest.mark.database

YES, NO = {"id": "yes", "label": "Yes, please", "payload": {"order": 7}}, {"id": "no", "label": "No"}


def offer(client: Client, session: ChatSession, *offered: dict[str, Any], **members: Any) -> Reply:
    return send(client, session, "Send it again?", action_payload={"actions": list(offered)}, **members)


def press(client: Client, session: ChatSession, source: str, action: str = "yes", **members: Any) -> Reply:
    body = {"action_source_id": source, "action_id": action, **members}
    return client.post(f"/chats/{session.id}/messages", body)


def stored(offered: list[dict[str, Any]]) -> Any:
    """Actions as in the column of a canned answer."""
    return actions.Actions().to_stored([actions.Action(**one) for one in offered])


def newest(client: Client, session: ChatSession) -> dict[str, Any]:
    return walk(client, f"/chats/{session.id}/messages")[-1]


def payload_of(message: dict[str, Any]) -> Any:
    return json.loads(bytes(message["action_payload"]) or b"null")


@pytest.fixture
def source(agent: Client, session: ChatSession) -> str:
    """The identifier of a message that offers two actions."""
    return str(offer(agent, session, YES, NO).data["id"])


class TestOffers:
    def test_are_listed_with_their_actions(self, alice, agent, session):
        reply = offer(agent, session, YES, NO)
        assert reply.status == 201
        assert walk(alice, f"/chats/{session.id}/messages") == [reply.data]
        assert payload_of(reply.data) == {"actions": [YES, {**NO, "payload": None}]}
        assert (reply.data["action_id"], reply.data["action_source_id"]) == (None, None)

    def test_of_customers_are_refused(self, alice, session, agent):
        with nothing_changes():
            assert offer(alice, session, YES).error == (403, "forbidden")
        session = ChatSession.create(app_id=session.app_id, user_id=agent.user.id)
        with nothing_changes():  # staff who are the customer
            assert offer(agent, session, YES).error == (403, "forbidden")

    def test_of_private_notes_are_refused(self, agent, session):
        with nothing_changes():
            assert offer(agent, session, YES, is_private=True).error == (400, "invalid_body")

    @pytest.mark.parametrize(
        ("offered", "reason"),
        [
            ([], "$.action_payload.actions"),
            ([NO] * 9, "$.action_payload.actions"),
            ([NO, {**YES, "id": "no"}], "the same id"),
            ([{"id": "x"}], "$.action_payload.actions[0]"),
            ([{"label": "x"}], "$.action_payload.actions[0]"),
            ([{**NO, "id": ""}], "$.action_payload.actions[0].id"),
            ([{**NO, "id": "x" * 81}], "$.action_payload.actions[0].id"),
            ([{**NO, "label": "x" * 81}], "$.action_payload.actions[0].label"),
            ([{**NO, "label": "two\nlines"}], "$.action_payload.actions[0].label"),
            ([{**NO, "label": " "}], "$.action_payload.actions[0].label"),
            ([{**NO, "payload": [1]}], "$.action_payload.actions[0].payload"),
            ([{**NO, "payload": {"x": "y" * 1017}}], "at most 1024 bytes"),
        ],
    )
    def test_that_are_malformed_are_refused(self, agent, session, offered, reason):
        with nothing_changes():
            reply = offer(agent, session, *offered)
        assert reply.error == (400, "invalid_body")
        assert reason in reply.json["error"]["message"]

    def test_have_at_most_eight_actions_with_long_labels_and_payloads(self, alice, agent, session):
        offered = [{"id": "x" * 79 + str(n), "label": "é" * 80, "payload": {"x": "y" * 1016}} for n in range(8)]
        source = offer(agent, session, *offered).data["id"]
        assert payload_of(press(alice, session, source, offered[7]["id"]).data) == offered[7]["payload"]

    def test_keep_their_actions_when_they_are_edited(self, alice, agent, session, source):
        assert edit(agent, Message.get_by_id(source), "Again?").status == 200
        assert press(alice, session, source).status == 201

    def test_in_imports_can_be_any_json(self, alice, session, say):
        for value in ({"actions": 1}, [1, 2, 300], {"actions": [{"id": "yes"}]}, "x"):
            source = say("Hi", sender_type="bot", action_payload=json.dumps(list(json.dumps(value).encode())))
            assert press(alice, session, source.id).error == (404, "action_not_found")
        source = say("Hi", sender_type="user", action_payload=actions.offer_of(["Yes"]))
        assert press(alice, session, source.id, "1").error == (404, "action_not_found")
        source = say("Hi", sender_type="bot", action_payload=actions.offer_of(["Yes"]))
        assert press(alice, session, source.id, "1").status == 201


class TestPresses:
    def test_are_messages_of_the_customer_with_the_label(self, alice, agent, session, source):
        reply = press(alice, session, source)
        assert reply.status == 201
        assert walk(agent, f"/chats/{session.id}/messages")[-1] == reply.data
        assert (text_of(reply.data), payload_of(reply.data)) == ("Yes, please", {"order": 7})
        expected = {"sender_type": "user", "action_id": "yes", "action_source_id": source}
        assert expected.items() <= reply.data.items()

    def test_of_an_action_without_a_payload_have_none(self, alice, session, source):
        assert press(alice, session, source, "no").data["action_payload"] == []

    def test_may_have_another_content(self, alice, session, source):
        assert text_of(press(alice, session, source, content={"text": "Ja, bitte"}).data) == "Ja, bitte"

    def test_count_once(self, alice, session, source):
        first = press(alice, session, source)
        with nothing_changes():
            again = press(alice, session, source, content={"text": "Yes!"}, client_message_id="other")
            assert (again.status, again.data) == (201, first.data)
            assert press(alice, session, source, "no").error == (400, "action_already_chosen")

    def test_at_once_count_once(self, alice, session, source):
        replies = at_once(4, lambda number: press(alice, session, source, ["yes", "no"][number % 2]))
        assert {reply.status for reply in replies} == {201, 400}
        assert len({reply.data["id"] for reply in replies if reply.status == 201}) == 1
        assert Message.select().where(Message.action_source_id == source).count() == 1

    def test_that_were_deleted_are_not_repeated(self, alice, session, source):
        assert delete(alice, Message.get_by_id(press(alice, session, source).data["id"])).status == 200
        with nothing_changes():
            assert press(alice, session, source).error == (400, "action_already_chosen")

    def test_of_staff_are_refused(self, agent, admin, bob, session, source):
        with nothing_changes():
            for client in (agent, admin, bob):
                assert press(client, session, source).error == (403, "forbidden")

    def test_need_an_offer_that_the_customer_sees(self, alice, agent, session, source):
        plain = sent(agent, session)
        elsewhere = ChatSession.create(app_id=session.app_id, user_id=alice.user.id)
        with nothing_changes():
            assert press(alice, session, source, "maybe").error == (404, "action_not_found")
            assert press(alice, session, plain.id).error == (404, "action_not_found")
            assert press(alice, session, UNKNOWN_MESSAGE_ID).error == (404, "message_not_found")
            assert press(alice, elsewhere, source).error == (404, "message_not_found")
        assert delete(agent, Message.get_by_id(source)).status == 200
        with nothing_changes():
            assert press(alice, session, source).error == (404, "message_not_found")

    def test_of_a_purged_offer_are_refused(self, alice, session, source):
        Message.purge(Message.id == source)
        with nothing_changes():
            assert press(alice, session, source).error == (404, "action_not_found")

    def test_in_an_archived_session_are_refused(self, alice, session, source):
        assert alice.post(f"/chats/{session.id}/archive").status == 200
        with nothing_changes():
            assert press(alice, session, source).error == (400, "session_archived")

    def test_reopen_a_session_that_is_over(self, alice, session, source):
        assert alice.post(f"/chats/{session.id}/end").status == 200
        assert press(alice, session, source).status == 201
        assert alice.get(f"/chats/{session.id}").data["status"] == "open"

    @pytest.mark.parametrize(
        "body",
        [
            {"action_id": "yes", "content": "x"},
            {"action_source_id": UNKNOWN_MESSAGE_ID, "content": "x"},
            {"action_id": "yes", "action_source_id": UNKNOWN_MESSAGE_ID, "action_payload": {"actions": [NO]}},
            {"action_id": "yes", "action_source_id": UNKNOWN_MESSAGE_ID, "is_private": True},
            {"action_id": "yes", "action_source_id": "x"},
            {"content_type": "", "content": "x"},
            {"content_type": "image", "content": "x"},
            {"content_type": "gdpr_purged", "content": "x"},
            {"content_type": "x" * 65, "content": "x"},
            {"channel": "", "content": "x"},
            {"channel": "x" * 65, "content": "x"},
            {"action_payload": {"x": 1}, "content": "x"},
            {},
        ],
    )
    def test_and_offers_that_are_malformed_are_refused(self, alice, agent, session, body):
        with nothing_changes():
            for client in (alice, agent):
                reply = client.post(f"/chats/{session.id}/messages", body)
                assert reply.error == (400, "invalid_body")

    def test_are_found_without_reading_the_session(self, alice, session, source):
        with statements() as executed:
            press(alice, session, source)
        (lookup,) = [seen for seen in executed if '"action_source_id" =' in seen[0]]
        assert query_plan(*lookup).ranges == ["message_action"]

    def test_are_imported_as_they_were_exported(self, alice, session, source):
        press(alice, session, source)
        lines: list[bytes] = []
        import_export.export(lines.append)
        (row,) = [json.loads(line)["message"] for line in lines if b'"action_id":"yes"' in line]
        assert (row["action_source_id"], payload_of(row)) == (source, {"order": 7})


def test_bot_replies_to_the_label_of_an_action(alice, bot, session, say):
    question = "When are you open?"
    CannedAnswer.create(bot_id=bot.id, language="en", question=question, answer="From nine to five.")
    source = say("Hello", sender_type="bot", sender_id=bot.id, action_payload=actions.offer_of([question]))
    for _ in range(2):
        assert press(alice, session, source.id, "1").status == 201
        assert texts(alice, session) == ["Hello", question, "From nine to five."]


class TestCannedAnswers:
    """Canned answers with actions: the bot offers them, and replies to the chosen one."""

    MENU, TEA, GREEN = "What can you do?", "How long should tea steep?", "How long should green tea steep?"

    @pytest.fixture(autouse=True)
    def menu(self, bot):
        first = [{"id": "tea", "label": self.TEA, "payload": {"page": 1}}, NO]
        columns = {"bot_id": bot.id, "language": "en"}
        for question, answer, offered in (
            (self.MENU, "Choose.", first),
            (self.TEA, "Which tea?", [{"id": "green", "label": self.GREEN}]),
            (self.GREEN, "Two minutes.", []),
        ):
            CannedAnswer.create(question=question, answer=answer, actions=stored(offered), **columns)

    def test_make_menus(self, alice, bot, session):
        send(alice, session, self.MENU)
        menu = newest(alice, session)
        assert (menu["sender_id"], text_of(menu)) == (bot.id, "Choose.")
        tea = {"id": "tea", "label": self.TEA, "payload": {"page": 1}}
        assert payload_of(menu) == {"actions": [tea, {**NO, "payload": None}]}
        pressed = press(alice, session, menu["id"], "tea").data
        assert (pressed["action_source_id"], payload_of(pressed)) == (menu["id"], {"page": 1})
        tea = newest(alice, session)
        assert payload_of(tea) == {"actions": [{"id": "green", "label": self.GREEN, "payload": None}]}
        press(alice, session, tea["id"], "green")
        assert texts(alice, session) == [self.MENU, "Choose.", self.TEA, "Which tea?", self.GREEN, "Two minutes."]
        assert newest(alice, session)["action_payload"] == []

    def test_are_chosen_once(self, alice, session):
        send(alice, session, self.MENU)
        menu = newest(alice, session)["id"]
        first = press(alice, session, menu, "tea")
        with nothing_changes():
            assert press(alice, session, menu, "tea").data == first.data
            assert press(alice, session, menu, "no").error == (400, "action_already_chosen")

    def test_that_are_changed_later_leave_the_messages(self, alice, agent, session, bot):
        send(alice, session, self.MENU)
        menu = newest(alice, session)
        answer = CannedAnswer.get(CannedAnswer.question == self.MENU)
        agent.patch(f"/apps/{bot.app_id}/bots/{bot.id}/answers/{answer.id}", {"actions": []})
        assert newest(alice, session) == menu
        assert press(alice, session, menu["id"], "tea").status == 201

    def test_with_a_request_for_a_person_are_offered_to_the_customer(self, alice, session, bot):
        CannedAnswer.create(
            bot_id=bot.id, question="How do I reach a person?", answer="About what?", actions=stored([YES])
        )
        send(alice, session, "How do I reach a person?")
        offered = newest(alice, session)
        assert (text_of(offered), payload_of(offered)) == ("About what?", {"actions": [YES]})
        press(alice, session, offered["id"])
        assert texts(alice, session)[-1] == YES["label"]  # people reply

    def test_cost_as_much_without_actions_as_with_them(self, alice, session):
        send(alice, session, "Hello")  # the first message notifies staff
        seen = []
        for question in (self.GREEN, self.MENU):
            with statements() as executed:
                send(alice, session, question)
            seen.append([sql for sql, *_ in executed])
        assert seen[0] == seen[1]


class TestTypeAndChannel:
    def test_are_those_of_the_request(self, alice, session):
        data = send(alice, session, content_type="order", channel="ios").data
        assert (data["content_type"], data["channel"]) == ("order", "ios")

    def test_belong_to_the_message_that_is_sent_once(self, alice, session):
        first = send(alice, session, client_message_id="c", content_type="order", channel="ios")
        with nothing_changes():
            again = send(alice, session, client_message_id="c", content_type="order", channel="ios")
            assert again.data == first.data
            assert send(alice, session, client_message_id="c").error == (400, "client_message_id_reused")

    def test_of_a_message_with_pictures_is_image(self, alice, session):
        with nothing_changes():
            reply = send(alice, session, images=[UNKNOWN_ID], content_type="order")
        assert reply.error == (400, "invalid_body")


def test_offer_is_sent_once_with_a_client_message_id(agent, session):
    first = offer(agent, session, YES, client_message_id="c")
    with nothing_changes():
        assert offer(agent, session, YES, client_message_id="c").data == first.data
        assert offer(agent, session, NO, client_message_id="c").error == (400, "client_message_id_reused")

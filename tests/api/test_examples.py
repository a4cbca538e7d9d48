"""The examples in the OpenAPI document: every request body has one, and the demo accepts it unchanged."""

import re
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import msgspec
import pytest

from service.api import openapi
from service.api.operations import Operation
from service.auth import authorization_codes, tokens
from service.auth.consent import ConsentRequest
from service.commands import demo
from service.fields import as_bytes, compact_json
from service.http import decoding
from service.models import (
    App,
    Bot,
    CannedAnswer,
    CannedReply,
    ChatSession,
    Event,
    Feedback,
    FeedbackScreenshot,
    Message,
    User,
)
from service.routes import operations
from tests.support.access import as_form
from tests.support.client import Client, Reply, text_of
from tests.support.consent import VALID_PARAMETERS
from tests.support.sample_data import picture

API = [operation for operation in operations() if operation.body and not (operation.is_page and operation.extension)]
NAMES = {operation.name for operation in API}
BINARY = {"upload_avatar", "upload_image", "upload_screenshot", "upload_bot_cover", "upload_bot_icon"}
SECRET = {  # a code, a token, keys or the secret of one client
    *("refresh_tokens", "exchange_code", "subscribe_browser", "answer_mcp", "introspect_data_share"),
}
ROLES = {
    **dict.fromkeys(("change_feedback_status", "create_app", "update_app", "create_user", "change_user"), "admin"),
    **dict.fromkeys(
        (
            "publish_bot",
            "change_bot_presence",
            "create_bot",
            "update_bot",
            "create_answer",
            "update_answer",
            "assign_chat_session",
            "snooze_chat_session",
            "store_translation",
            "create_announcement",
            "create_canned_reply",
            "update_canned_reply",
            "upload_bot_cover",
            "upload_bot_icon",
        ),
        "agent",
    ),
}


def for_operations(*names: str) -> Any:
    """Parametrize a test with the operations of these names."""
    return pytest.mark.parametrize(
        "operation", [each for each in API if each.name in names], ids=lambda each: each.name
    )


@pytest.fixture
def service(application: Any) -> Client:
    """The service with the data of the demo."""
    demo.fill()
    return Client(application)


def log_in(service: Client, name: str) -> dict[str, str]:
    """Return the tokens of a user of the demo."""
    credentials = {"email": f"{name}@demo.example", "password": demo.PASSWORD}
    return dict(service.post("/auth/login", credentials).data["tokens"])


def path_of(operation: Operation) -> str:
    """Return the path of an operation with rows of Alice, and the app of her chat session."""
    alice = User.by_email("alice@demo.example")
    if operation.name == "rate_chat_session":  # which must be over
        ChatSession.update(status="resolved").execute()
    if operation.name == "store_translation":  # without an AI, the translation that is stored
        Message.update(translations=compact_json(as_bytes({"en": "Hello"}))).execute()
    chat = ChatSession.get_by_id(demo.QUIZ)
    own = Message.select().where(Message.chat_session_id == chat.id, Message.sender_id == alice.id)
    identifiers = {
        ChatSession: chat.id,
        Message: own.order_by(Message.id.desc()).get().id,
        App: chat.app_id,
        Bot: chat.bot_id,
        CannedAnswer: CannedAnswer.select().where(CannedAnswer.bot_id == chat.bot_id).first().id,
        CannedReply: CannedReply.create(app_id=chat.app_id, shortcut="hello", text="Hello!").id,
        Feedback: Feedback.select().get().id,
        FeedbackScreenshot: Feedback.get(Feedback.user_id == User.get(User.email.startswith("alice")).id).id,
        Event: Event.get(Event.user_id == alice.id).id,
        User: alice.id,
    }
    tables = iter(operation.path_rows)
    return "/" + re.sub(r"{\w+}", lambda _: str(identifiers[next(tables)[2]]), operation.full_path)


def execute(service: Client, operation: Operation, body: Any, token: str = "") -> Reply:
    """Send a body to an operation, with the content type that it accepts."""
    if operation.accepts == "application/json":
        content = {"raw": msgspec.json.encode(body), "content_type": operation.accepts}
    else:
        content = {"raw": urlencode(body).encode(), "content_type": operation.accepts}
    headers = {"authorization": f"Bearer {token}"} if token else {}
    return service.call(operation.method, path_of(operation), **content, **headers)


def test_every_request_body_has_an_example_except_files() -> None:
    paths = openapi.document(operations())["paths"]
    for operation in API:
        [content] = paths[operation.full_path][operation.method.lower()]["requestBody"]["content"].values()
        assert content.get("example") == operation.example
        assert (operation.example is None) == (operation.name in BINARY)


@for_operations(*NAMES - BINARY - SECRET)
@pytest.mark.slow
def test_example_is_accepted_by_the_demo_unchanged(service: Client, operation: Operation) -> None:
    token = "" if operation.public else log_in(service, ROLES.get(operation.name, "alice"))["access_token"]
    reply = execute(service, operation, operation.example, token)
    assert reply.status == operation.status, reply.json
    assert "X-Request-Warning" not in reply.headers


@for_operations("send_message")
def test_example_message_has_several_words(service: Client, operation: Operation) -> None:
    sent = execute(service, operation, operation.example, log_in(service, "alice")["access_token"]).data
    assert len(text_of(sent).split()) > 3


@for_operations("refresh_tokens")
def test_example_of_a_refresh_works_with_a_valid_token(service: Client, operation: Operation) -> None:
    body = operation.example | {"refresh_token": log_in(service, "alice")["refresh_token"]}
    assert execute(service, operation, body).status == 200


@for_operations("exchange_code")
def test_example_of_a_token_request_works_with_a_valid_code(service: Client, operation: Operation) -> None:
    decoding.read_form(urlencode(operation.example).encode(), operation.accepts, operation.body)
    caller = tokens.authenticate(f"Bearer {log_in(service, 'alice')['access_token']}")
    request = msgspec.convert(VALID_PARAMETERS, ConsentRequest)
    address = authorization_codes.record_decision(
        caller, authorization_codes.make_csrf_token(caller, request), True, "http://chat.example"
    )
    [code] = parse_qs(urlsplit(address).query)["code"]
    assert execute(service, operation, operation.example | {"code": code}).status == 200


@for_operations(*BINARY)
def test_file_can_be_uploaded(service: Client, operation: Operation) -> None:
    token = log_in(service, ROLES.get(operation.name, "alice"))["access_token"]
    (member,) = msgspec.structs.fields(operation.body)
    form = as_form({member.name: picture()})
    reply = service.call(operation.method, path_of(operation), **form, authorization=f"Bearer {token}")
    assert reply.status == operation.status

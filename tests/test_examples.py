"""The examples in the OpenAPI document: every body has one, and the demo takes it as it stands."""

import re
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import msgspec
import pytest

from service import decoding, openapi
from service.auth import codes, tokens
from service.auth.consent import ConsentRequest
from service.commands import demo
from service.models import App, Bot, ChatSession, Event, Feedback, Message, User
from service.operations import Operation
from service.routes import operations
from tests.conftest import Client, Reply, text_of
from tests.household import picture
from tests.test_access import as_form
from tests.test_consent import GOOD

API = [one for one in operations() if one.body and not (one.is_page and one.extension)]
NAMES = {operation.name for operation in API}
BINARY = {"upload_avatar"}
SECRET = {"refresh_tokens", "exchange_code"}  # their bodies name what the service gives out once, and to one client
WHO = {"change_feedback_status": "admin", "publish_bot": "agent", "change_bot_presence": "agent"}


def named(*names: str) -> Any:
    """Runs a test on the operations of these names."""
    return pytest.mark.parametrize("operation", [one for one in API if one.name in names], ids=lambda one: one.name)


@pytest.fixture
def service(application: Any) -> Client:
    """The service with the demo in it."""
    demo.fill()
    return Client(application)


def log_in(service: Client, name: str) -> dict[str, str]:
    """The tokens of one of the people of the demo."""
    given = {"email": f"{name}@demo.example", "password": demo.PASSWORD}
    return dict(service.post("/auth/login", given).data["tokens"])


def path_of(operation: Operation) -> str:
    """The path of an operation on things of Alice's, and of the app in which she chats."""
    alice = User.by_email("alice@demo.example")
    chat = ChatSession.get_by_id(demo.QUIZ)
    own = Message.select().where(Message.chat_session_id == chat.id, Message.sender_id == alice.id)
    found = {
        ChatSession: chat.id,
        Message: own.order_by(Message.id.desc()).get().id,
        App: chat.app_id,
        Bot: chat.bot_id,
        Feedback: Feedback.select().get().id,
        Event: Event.get(Event.user_id == alice.id).id,
    }
    tables = iter(operation.loads)
    return "/" + re.sub(r"{\w+}", lambda _: str(found[next(tables)[2]]), operation.full_path)


def execute(service: Client, operation: Operation, body: Any, token: str = "") -> Reply:
    """Send a body to an operation, in the form that it takes."""
    if operation.accepts == "application/json":
        content = {"raw": msgspec.json.encode(body), "content_type": operation.accepts}
    else:
        content = {"raw": urlencode(body).encode(), "content_type": operation.accepts}
    headers = {"authorization": f"Bearer {token}"} if token else {}
    return service.call(operation.method, path_of(operation), **content, **headers)


def test_every_body_has_an_example_but_for_files() -> None:
    shown = openapi.document(operations())["paths"]
    for operation in API:
        [content] = shown[operation.full_path][operation.method.lower()]["requestBody"]["content"].values()
        assert content.get("example") == operation.example
        assert (operation.example is None) == (operation.name in BINARY)


@named(*NAMES - BINARY - SECRET)
def test_the_demo_takes_an_example_as_it_stands(service: Client, operation: Operation) -> None:
    token = "" if operation.public else log_in(service, WHO.get(operation.name, "alice"))["access_token"]
    reply = execute(service, operation, operation.example, token)
    assert reply.status == operation.status, reply.json
    assert "X-Request-Warning" not in reply.headers


@named("send_message")
def test_the_example_of_a_message_is_a_sensible_one(service: Client, operation: Operation) -> None:
    sent = execute(service, operation, operation.example, log_in(service, "alice")["access_token"]).data
    assert len(text_of(sent).split()) > 3


@named("refresh_tokens")
def test_a_refresh_works_with_a_token_in_its_place(service: Client, operation: Operation) -> None:
    body = operation.example | {"refresh_token": log_in(service, "alice")["refresh_token"]}
    assert execute(service, operation, body).status == 200


@named("exchange_code")
def test_a_token_request_works_with_a_code_in_its_place(service: Client, operation: Operation) -> None:
    decoding.read_form(urlencode(operation.example).encode(), operation.accepts, operation.body)
    caller = tokens.authenticate(f"Bearer {log_in(service, 'alice')['access_token']}")
    asked = msgspec.convert(GOOD, ConsentRequest)
    address = codes.answer(caller, codes.make_ticket(caller, asked), True, "http://chat.example")
    [code] = parse_qs(urlsplit(address).query)["code"]
    assert execute(service, operation, operation.example | {"code": code}).status == 200


@named(*BINARY)
def test_a_file_is_uploaded(service: Client, operation: Operation) -> None:
    token = log_in(service, "alice")["access_token"]
    form = as_form({"avatar": picture()})
    assert service.call("POST", path_of(operation), **form, authorization=f"Bearer {token}").status == 200

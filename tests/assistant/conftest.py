"""An AI server, and the workers that request replies from it."""

import dataclasses
import threading

import pytest

from service.assistant.metering import metered_assistant
from service.assistant.reply_worker import Worker
from tests.support.fake_ai import fake_server, says
from tests.support.messages import send
from tests.support.tool_calls import newest, requests, run, then, worker_of


@pytest.fixture
def ai():
    with fake_server() as server:
        yield server


@pytest.fixture
def settings(settings, ai):
    return dataclasses.replace(settings, assistant_url=ai.url, assistant_model="small", assistant_key="sk-secret")


@pytest.fixture
def replier(settings, application):
    return Worker(metered_assistant(settings), threading.Event())


@pytest.fixture
def worker(settings, application):
    """The worker with the tools of the MCP servers in the settings."""
    return worker_of(settings)


@pytest.fixture
def ask(alice, session, ai, worker):
    """Let the customer ask, and the assistant request a call until the customer is asked. Returns the offer."""

    def asked(*behaviours, text="How is the weather?", by=worker):
        ai.behave = then(*(behaviours or (requests(), says("It is sunny."))))
        assert send(alice, session, text).status == 201
        run(by)
        return newest(alice, session)

    return asked

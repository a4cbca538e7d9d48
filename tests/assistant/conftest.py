"""An AI server, and the worker that requests replies from it."""

import dataclasses
import threading

import pytest

from service.assistant.metering import metered_assistant
from service.assistant.reply_worker import Worker
from tests.support.fake_ai import fake_server


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

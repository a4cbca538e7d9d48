"""The assistant with a server of the package `mcp`, whose tools have faults."""

import dataclasses
import importlib.util
import logging
import os
import threading
from urllib.parse import urlsplit

import pytest

from service.mcp_client import connection
from tests.support.bot_replies import answers
from tests.support.client import text_of
from tests.support.cutting_proxy import CuttingProxy
from tests.support.fake_ai import says
from tests.support.package_mcp import package_mcp_server
from tests.support.tool_calls import BERN, entries, press, requests, run, worker_of

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not importlib.util.find_spec("mcp") and not os.environ.get("CI"),
        reason="NOT TESTED: the package mcp is missing; it is in requirements-dev.lock",
    ),
]


@pytest.fixture
def file(tmp_path):
    """Where the tools record calls."""
    return tmp_path / "calls"


@pytest.fixture(params=["events", "json"])
def url(request, file):
    with package_mcp_server(file, request.param) as found:
        yield found


@pytest.fixture
def settings(settings, url):
    return dataclasses.replace(settings, mcp=(f"weather={url}",))


def call(tool, ask, alice, session, worker):
    """Let the assistant call a tool, with the permission of the customer."""
    offer = ask(requests(function=f"weather__{tool}"), says("It is sunny."), by=worker)
    assert f"“{tool}” of “weather”" in text_of(offer)
    press(alice, session, offer, "once")
    run(worker)


def result_for(ai):
    """Return the result of the last call, as the assistant has received it."""
    assert ai.requests[-1].body["messages"][-1]["role"] == "tool"
    return ai.requests[-1].body["messages"][-1]["content"]


def test_result_is_what_the_assistant_gets(ask, alice, session, ai, worker):
    call("forecast", ask, alice, session, worker)
    assert "Sunny in Bern." in result_for(ai)
    assert answers(alice, session)[-1] == "It is sunny."
    assert entries()[-1][2]["outcome"] == "ok"


def test_result_of_another_schema_is_text_like_any_other(ask, alice, session, ai, worker):
    call("other_schema", ask, alice, session, worker)
    assert '{"days":"many"}' in result_for(ai)
    assert answers(alice, session)[-1] == "It is sunny."


@pytest.mark.parametrize(
    ("tool", "reason"),
    [("slow", "timeout"), ("huge", "the response is larger than 32768 bytes"), ("fails", "error 0")],
)
def test_fault_of_a_tool_is_an_error_that_the_assistant_gets(
    tool, reason, ask, alice, session, ai, worker, monkeypatch, caplog
):
    if tool == "slow":
        monkeypatch.setattr(connection, "TIMEOUT", 2.0)
    with caplog.at_level(logging.WARNING):
        call(tool, ask, alice, session, worker)
    assert result_for(ai).startswith("Error: ") and "secret" not in result_for(ai)
    assert reason in caplog.text and "Bern" not in caplog.text
    assert answers(alice, session)[-1] == "It is sunny."
    assert entries()[-1][2]["outcome"] == "error"


def test_cut_connection_is_an_error_that_the_assistant_gets(ask, alice, session, ai, settings, url, file, caplog):
    proxy = CuttingProxy(urlsplit(url).port)
    try:
        worker = worker_of(dataclasses.replace(settings, mcp=(f"weather={proxy.url}/mcp",)))
        is_over = threading.Event()

        def cut():
            while not file.exists() and not is_over.wait(0.01):
                pass
            proxy.cut()

        thread = threading.Thread(target=cut)
        thread.start()
        try:
            call("slow", ask, alice, session, worker)
        finally:
            is_over.set()
            thread.join()
        assert file.read_text() == "slow Bern\n"  # the call is not repeated
        assert result_for(ai).startswith("Error: ") and "timeout" not in caplog.text
        assert entries()[-1][2]["outcome"] == "error"
    finally:
        proxy.close()


def test_redirect_is_not_followed(ask, ai, settings, url, caplog):
    """The package itself redirects from an address that ends with a slash."""
    worker = worker_of(dataclasses.replace(settings, mcp=(f"weather={url}/",)))
    with caplog.at_level(logging.WARNING):
        assert text_of(ask(says("I do not know."), by=worker)) == "I do not know."
    assert "redirect with status 307, which is not followed" in caplog.text
    assert len(ai.requests[0].body["tools"]) == 1


@pytest.mark.parametrize("decision", ["once", "always", "no"])
def test_tool_that_writes_but_says_that_it_reads_needs_permission(decision, ask, alice, session, ai, worker, file):
    offer = ask(requests(function="weather__writes"), says("It is sunny."))
    assert "only read" not in text_of(offer)
    assert not file.exists()
    press(alice, session, offer, decision)
    run(worker)
    assert file.exists() is (decision != "no")
    granted = [grant["allowed_tools"] for grant in alice.get("/data-shares").data]
    assert granted == ([["writes"]] if decision == "always" else [])
    offer = ask(requests(BERN, "weather__slow"), says("It is sunny."))
    assert "“slow” of “weather”" in text_of(offer)  # permission for one tool is none for another that says the same

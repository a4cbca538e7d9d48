"""The client of the assistant against a fake server on loopback: requests, responses and errors."""

import datetime
import ipaddress
import json
import socket
import ssl

import pytest

from service.assistant import client
from service.assistant.client import CALL_PERSON, MAX_BYTES, MAX_CHARACTERS, Assistant, AssistantError
from service.http_client import HttpServer
from tests.support.fake_ai import (
    REPETITIONS,
    FakeServer,
    calls,
    completion,
    fake_server,
    hangs,
    resets,
    says,
    sends,
    writes,
)

pytestmark = pytest.mark.slow

HELLO = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Grüße 👋"}]
SECRET = "sk-very-secret"
HEAD = b"HTTP/1.1 200 OK\r\n"
KIB = b"x" * 1024


@pytest.fixture
def short_timeouts(monkeypatch):
    monkeypatch.setattr(client, "CONNECT_TIMEOUT", 0.1)
    monkeypatch.setattr(client, "TIMEOUT", 0.2)


def failure(ai, behave=None, **options):
    ai.behave = behave or ai.behave
    with pytest.raises(AssistantError) as caught:
        Assistant(ai.url, key=SECRET).complete(HELLO, **options)
    assert SECRET not in str(caught.value)
    return caught.value


# Requests


@pytest.mark.parametrize("ending", ["", "/", "/chat/completions", "/chat/completions/"])
def test_url_may_be_that_of_the_api_or_of_the_endpoint(ai, ending):
    assert Assistant(ai.url + ending).complete(HELLO).text == "I am the assistant."
    assert [request.path for request in ai.requests] == ["/v1/chat/completions"]


def test_url_may_have_no_path(ai):
    Assistant(ai.url.removesuffix("/v1")).complete(HELLO)
    assert ai.requests[0].path == "/chat/completions"


def test_request_has_model_messages_and_key(ai):
    Assistant(ai.url, "small", SECRET).complete(HELLO)
    (request,) = ai.requests
    assert request.body == {"model": "small", "messages": HELLO}
    assert request.headers["Authorization"] == f"Bearer {SECRET}"
    assert request.headers["Content-Type"] == "application/json"
    assert request.headers["Host"] == f"127.0.0.1:{ai.server_port}"


def test_request_without_model_and_key(ai):
    Assistant(ai.url).complete(HELLO)
    (request,) = ai.requests
    assert request.body == {"messages": HELLO}
    assert "Authorization" not in request.headers


@pytest.mark.parametrize(
    "url",
    [
        *("ai.example", "/v1", "ftp://ai.example", "http://", "https:///v1", "http://ai.example:port", "http://[::1"),
        *("http://me@ai.example", "http://me:key@ai.example", "http://ai.example?v=1", "http://ai.example#v1"),
        *("http://ai.example/v 1", "http://ai.example/\r\nHost: b", "http://ai.example/ü", "http://ai.example:99999"),
    ],
)
def test_invalid_url_is_refused(url):
    with pytest.raises(ValueError, match="the URL of the assistant must have the form"):
        Assistant(url)


@pytest.mark.parametrize("key", ["a b", "a\r\nX: y", "kéy", "\x00"])
def test_key_that_is_invalid_in_a_header_is_refused(key):
    with pytest.raises(ValueError, match="the key of the assistant") as raised:
        Assistant("https://ai.example", key=key)
    assert key not in str(raised.value)


def test_proxy_settings_of_the_environment_are_ignored(ai, monkeypatch):
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "https_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    assert Assistant(ai.url).complete(HELLO)


# Calling a person


def reply(ai, **options):
    return Assistant(ai.url, "small").complete(HELLO, may_call_person=True, **options)


def test_function_is_offered_only_where_it_may_be_called(ai):
    reply(ai)
    Assistant(ai.url).complete(HELLO)
    offered, not_offered = (request.body for request in ai.requests)
    (tool,) = offered.pop("tools")
    assert (tool["type"], tool["function"]["name"]) == ("function", CALL_PERSON)
    assert tool["function"]["parameters"] == {"type": "object", "properties": {}}
    assert (offered, not_offered) == ({"model": "small", "messages": HELLO}, {"messages": HELLO})


@pytest.mark.parametrize(("text", "expected"), [(None, ""), ("", ""), (" I call Ada. ", "I call Ada.")])
def test_call_of_the_function_calls_a_person(ai, text, expected):
    ai.behave = calls(CALL_PERSON, text=text)
    assert reply(ai)[:2] == (expected, True)
    ai.behave = calls("search", CALL_PERSON, CALL_PERSON, text=text)
    assert reply(ai).calls_person


def test_call_of_another_function_is_ignored(ai):
    ai.behave = calls("delete_everything", text="Hello")
    assert reply(ai)[:2] == ("Hello", False)
    ai.behave = calls("delete_everything")
    assert "not a chat completion" in str(failure(ai, ai.behave, may_call_person=True))


def test_call_of_a_function_that_was_not_offered_is_ignored(ai):
    ai.behave = calls(CALL_PERSON, text="Hello")
    assert Assistant(ai.url).complete(HELLO)[:2] == ("Hello", False)


@pytest.mark.parametrize(
    "tool_calls",
    [1, "call_person", {}, [1], [None], [{}], [{"function": None}], [{"function": {}}], [{"function": {"name": 1}}]],
)
def test_malformed_call_is_an_error(ai, tool_calls):
    body = completion("Hello")
    body["choices"][0]["message"]["tool_calls"] = tool_calls
    assert "not a chat completion" in str(failure(ai, sends(body), may_call_person=True))


@pytest.mark.parametrize("status", [400, 422, 500, 501])
def test_server_without_functions_gets_the_request_without_them(ai, status):
    def behave(handler):
        refuses = "tools" in handler.server.requests[-1].body
        (sends({"error": {"message": "tools are not supported"}}, status) if refuses else says("Hello"))(handler)

    ai.behave = behave
    assert reply(ai)[:2] == ("Hello", False)
    assert ["tools" in request.body for request in ai.requests] == [True, False]


def test_repeated_request_has_the_time_that_is_left(ai, monkeypatch):
    ai.behave = sends({}, 400)
    ends, post = [], HttpServer.post

    def observed(self, path, content, headers, limits):
        ends.append(limits.end_by)
        return post(self, path, content, headers, limits)

    monkeypatch.setattr(HttpServer, "post", observed)
    failure(ai, may_call_person=True)
    assert len(ends) == 2 and ends[0] == pytest.approx(ends[1], abs=0.001)


# Responses


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("Hello", "Hello"),
        ("  Grüße\n\n👋 \n", "Grüße\n\n👋"),
        ("\0a\0", "a"),
        ("x" * MAX_CHARACTERS, "x" * MAX_CHARACTERS),
        ("x" * (MAX_CHARACTERS + 1), "x" * (MAX_CHARACTERS - 1) + "…"),
        ("<script>alert(1)</script>", "<script>alert(1)</script>"),
    ],
)
def test_reply_is_the_text_of_the_first_choice(ai, content, text):
    ai.behave = sends(
        {**completion(content), "choices": completion(content)["choices"] + completion("other")["choices"]}
    )
    assert Assistant(ai.url).complete(HELLO).text == text


def test_response_may_be_chunked_or_end_with_the_connection(ai):
    body = json.dumps(completion("Hello")).encode()
    chunks = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in (body[:9], body[9:], b""))
    ai.behave = writes(HEAD, b"Transfer-Encoding: chunked\r\n\r\n", chunks)
    assert Assistant(ai.url).complete(HELLO).text == "Hello"
    ai.behave = writes(HEAD, b"\r\n", body)
    assert Assistant(ai.url).complete(HELLO).text == "Hello"


def test_interim_responses_are_skipped(ai):
    body = json.dumps(completion("Hello")).encode()
    ai.behave = writes(b"HTTP/1.1 100 Continue\r\n\r\n", HEAD, b"\r\n", body)
    assert Assistant(ai.url).complete(HELLO).text == "Hello"


@pytest.mark.parametrize(
    "body",
    [
        *(b"", b"<html><body>Welcome</body></html>", b"{", b"null", b"[]", b'"text"', b"\xff\xfe{}", b"NaN"),
        *(b"[" * 200_000, b'{"a":' * 30_000, b'{"choices": [{"message": {"content": "\xff"}}]}'),
        b'{"choices": [{"message": {"content": "\\ud800"}}]}',
        json.dumps(completion("cut"))[:-9].encode(),
        *({}, {"choices": None}, {"choices": []}, {"choices": {}}, {"choices": [None]}, {"choices": [{}]}),
        *({"choices": [{"message": "Hello"}]}, {"choices": [{"message": {}}]}, {"error": {"message": "no"}}),
        *(completion(None), completion(1), completion(["Hello"]), completion({"text": "Hello"})),
    ],
    ids=lambda body: repr(body)[:40],
)
def test_response_that_is_no_completion_is_an_error(ai, body):
    found = failure(ai, sends(body))
    assert (str(found), found.is_final) == ("the response is not a chat completion", False)


@pytest.mark.parametrize("content", ["", " \n\t", "\0"])
def test_empty_reply_is_an_error(ai, content):
    found = failure(ai, says(content))
    assert (str(found), found.is_final) == ("the reply is empty", False)


# Errors


@pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 504, 529])
def test_temporary_status_is_not_final(ai, status):
    found = failure(ai, sends(completion("Hello"), status))
    assert (str(found), found.is_final, found.after) == (f"status {status}", False, 0)


@pytest.mark.parametrize("status", [201, 204, 301, 302, 307, 308, 400, 401, 403, 404, 405, 413, 422])
def test_other_status_is_final(ai, status):
    found = failure(ai, sends(b"" if status == 204 else completion("Hello"), status))
    assert (str(found), found.is_final) == (f"status {status}", True)


@pytest.mark.parametrize(
    ("retry_after", "milliseconds"),
    [
        *(("0", 0), ("1", 1000), (" 120 ", 120_000), ("999999", 999_999_000), ("9" * 7, 0), ("9" * 999, 0), ("-1", 0)),
        *(("1.5", 0), ("²", 0), ("soon", 0), ("", 0), ("Fri, 20 Nov 2026 10:01:30 GMT", 90_000)),
        *(("Fri, 20 Nov 2026 09:00:00 GMT", 0), ("Fri, 99 Nov 2026 09:00:00 GMT", 0)),
    ],
)
@pytest.mark.parametrize("status", [429, 503])
def test_retry_after_is_read(ai, host_clock, retry_after, milliseconds, status):
    found = failure(ai, sends({}, status, retry_after=retry_after))
    assert (found.is_final, found.after) == (False, milliseconds)


def test_redirects_are_not_followed(ai):
    with fake_server() as elsewhere:
        found = failure(ai, sends({}, 307, location=f"{elsewhere.url}/chat/completions"))
        assert (str(found), elsewhere.requests) == ("status 307", [])


@pytest.mark.parametrize(
    "behave",
    [
        hangs,
        writes(HEAD, again=b"x", every=0.01),
        writes(HEAD, b"X: ", again=b"x", every=0.01),
        writes(HEAD, b"Content-Length: 999\r\n\r\n", again=b" ", every=0.01),
        writes(HEAD, b"Transfer-Encoding: chunked\r\n\r\n", again=b"1\r\n \r\n", every=0.01),
        writes(again=b"HTTP/1.1 100 Continue\r\n\r\n", every=0.01),
    ],
    ids=["hangs", "first line", "head", "body", "chunks", "interim responses"],
)
def test_slow_response_is_a_timeout(ai, short_timeouts, behave):
    found = failure(ai, behave)
    assert (str(found), found.is_final) == ("timeout", False)


def test_connection_that_is_not_accepted_is_a_timeout(short_timeouts):
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full:
        address = full.getsockname()
        waiting = [socket.socket() for _ in range(4)]
        for client_socket in waiting:
            client_socket.setblocking(False)
            client_socket.connect_ex(address)
        with pytest.raises(AssistantError, match="timeout"):
            Assistant(f"http://127.0.0.1:{address[1]}").complete(HELLO)
        for client_socket in waiting:
            client_socket.close()


def test_request_that_is_not_read_is_a_timeout(short_timeouts):
    with socket.create_server(("127.0.0.1", 0)) as idle, pytest.raises(AssistantError, match="timeout"):
        Assistant(f"http://127.0.0.1:{idle.getsockname()[1]}").complete([{"role": "user", "content": "x" * 2**24}])


@pytest.mark.parametrize(
    ("behave", "reason"),
    [
        (writes(HEAD, b"\r\n", again=KIB * 64), "larger than"),
        (writes(HEAD, b"Content-Length: 999999999999999\r\n\r\n", again=KIB * 64), "larger than"),
        (writes(HEAD, b"Transfer-Encoding: chunked\r\n\r\n", again=b"400\r\n%s\r\n" % KIB), "larger than"),
        (writes(HEAD, b"Transfer-Encoding: chunked\r\n\r\n1;", again=KIB), "LineTooLong"),
        (writes(again=b"HTTP/1.1 100 Continue\r\n\r\n" * 99), "larger than"),
        (writes(HEAD, again=b"A: b\r\n"), "HTTPException"),
        (writes(HEAD, b"A: ", again=KIB), "LineTooLong"),
        (writes(again=KIB), "LineTooLong"),
        (sends(completion("x" * 10_000_000)), "larger than"),
        (sends(completion("x" * MAX_BYTES)), "larger than"),
    ],
)
def test_large_response_is_an_error(ai, behave, reason):
    found = failure(ai, behave)
    assert reason in str(found) and not found.is_final


def test_response_may_be_almost_as_large_as_the_limit(ai):
    ai.behave = sends({**completion("Hello"), "padding": "x" * (MAX_BYTES - 4096)})
    assert Assistant(ai.url).complete(HELLO).text == "Hello"


@pytest.mark.parametrize(
    "behave",
    [
        resets,
        writes(),
        writes(b"SSH-2.0-OpenSSH_9.9\r\n"),
        writes(b"HTTP/1.1 OK\r\n\r\n"),
        writes(b"HTTP/1.1 99999 OK\r\n\r\n"),
        writes(HEAD, b"Content-Length: 9\r\n\r\n"),
        writes(HEAD, b"Transfer-Encoding: chunked\r\n\r\nzz\r\n"),
        writes(HEAD, b"Transfer-Encoding: chunked\r\n\r\n5\r\nab"),
        writes(HEAD, b"Content-Length: x\r\n\r\n{}"),
    ],
)
def test_broken_connection_is_not_final(ai, behave):
    assert failure(ai, behave).is_final is False


def test_error_does_not_repeat_the_response(ai):
    assert str(failure(ai, writes(b"HTTP/1.1 the words of a customer\r\n\r\n"))) == "BadStatusLine"


def test_refused_connection_is_not_final(ai):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        with pytest.raises(AssistantError, match="Connection refused") as caught:
            Assistant(f"http://127.0.0.1:{taken.getsockname()[1]}").complete(HELLO)
    assert caught.value.is_final is False


@pytest.mark.parametrize("host", ["unknown.invalid", f"{'a' * 64}.invalid", "a..invalid"])
def test_unknown_host_is_not_final(host):
    with pytest.raises(AssistantError) as caught:
        Assistant(f"http://{host}/v1").complete(HELLO)
    assert caught.value.is_final is False


def test_connection_is_closed_after_a_large_response(ai):
    failure(ai, writes(HEAD, b"\r\n", again=KIB * 64))
    ai.behave = says("Hello")
    assert Assistant(ai.url).complete(HELLO).text == "Hello"
    assert REPETITIONS * 64 * 1024 > 100 * MAX_BYTES  # else the first response would have ended by itself


# TLS


class Encrypted(FakeServer):
    scheme = "https"


@pytest.fixture
def certificate(tmp_path):
    """A file with the key and the self-signed certificate of a server."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    file = tmp_path / "server.pem"
    file.write_bytes(private + certificate.public_bytes(pem))
    return file


@pytest.fixture
def encrypted(certificate):
    server = Encrypted()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    with fake_server(server):
        yield server


def test_server_with_an_untrusted_certificate_gets_no_request(encrypted):
    assert "certificate" in str(failure(encrypted)).lower() or "SSL" in str(failure(encrypted))
    assert encrypted.requests == []


def test_server_with_a_trusted_certificate_gets_the_request(encrypted, certificate, monkeypatch):
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    assert Assistant(encrypted.url).complete(HELLO).text == "I am the assistant."


def test_server_with_a_certificate_of_another_name_gets_no_request(encrypted, certificate, monkeypatch):
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    with pytest.raises(AssistantError):
        Assistant(encrypted.url.replace("127.0.0.1", "localhost")).complete(HELLO)
    assert encrypted.requests == []


def test_slow_tls_response_is_a_timeout(encrypted, certificate, monkeypatch, short_timeouts):
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    assert str(failure(encrypted, writes(HEAD, b"X: ", again=b"x", every=0.01))) == "timeout"

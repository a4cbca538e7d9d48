"""The assistant over HTTP, against a stand-in on loopback: what it is asked, and everything that may go wrong."""

import datetime
import ipaddress
import json
import socket
import ssl

import pytest

from service import assistant
from service.assistant import LARGEST, LONGEST, Assistant, NoAnswer, instructions
from tests.standin import COUNTLESS, StandIn, completion, hangs, resets, says, sends, standing_in, writes

pytestmark = pytest.mark.slow

HELLO = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Grüße 👋"}]
SECRET = "sk-very-secret"
HEAD = b"HTTP/1.1 200 OK\r\n"
KIB = b"x" * 1024


@pytest.fixture
def ai():
    with standing_in() as server:
        yield server


@pytest.fixture
def hurry(monkeypatch):
    """Nobody is waited for as long as usual."""
    monkeypatch.setattr(assistant, "CONNECT", 0.1)
    monkeypatch.setattr(assistant, "PATIENCE", 0.2)


def failure(ai, behave=None):
    ai.behave = behave or ai.behave
    with pytest.raises(NoAnswer) as caught:
        Assistant(ai.url, key=SECRET).answer(HELLO)
    assert SECRET not in str(caught.value)
    return caught.value


# Asking


@pytest.mark.parametrize("ending", ["", "/", "/chat/completions", "/chat/completions/"])
def test_the_address_is_that_of_the_api_or_of_its_operation(ai, ending):
    assert Assistant(ai.url + ending).answer(HELLO) == "I am the assistant."
    assert [asked.path for asked in ai.asked] == ["/v1/chat/completions"]


def test_an_address_may_have_no_path(ai):
    Assistant(ai.url.removesuffix("/v1")).answer(HELLO)
    assert ai.asked[0].path == "/chat/completions"


def test_model_messages_and_key_are_sent(ai):
    Assistant(ai.url, "small", SECRET).answer(HELLO)
    (asked,) = ai.asked
    assert asked.body == {"model": "small", "messages": HELLO}
    assert asked.headers["Authorization"] == f"Bearer {SECRET}"
    assert asked.headers["Content-Type"] == "application/json"
    assert asked.headers["Host"] == f"127.0.0.1:{ai.server_port}"


def test_without_a_model_and_a_key_none_are_sent(ai):
    Assistant(ai.url).answer(HELLO)
    (asked,) = ai.asked
    assert asked.body == {"messages": HELLO}
    assert "Authorization" not in asked.headers


@pytest.mark.parametrize(
    "url",
    [
        *("ai.example", "/v1", "ftp://ai.example", "http://", "https:///v1", "http://ai.example:port", "http://[::1"),
        *("http://me@ai.example", "http://me:key@ai.example", "http://ai.example?v=1", "http://ai.example#v1"),
        *("http://ai.example/v 1", "http://ai.example/\r\nHost: b", "http://ai.example/ü", "http://ai.example:99999"),
    ],
)
def test_what_is_no_address_is_refused(url):
    with pytest.raises(ValueError, match="the address of the assistant must be like"):
        Assistant(url)


@pytest.mark.parametrize("key", ["a b", "a\r\nX: y", "kéy", "\x00"])
def test_a_key_that_fits_into_no_header_is_refused(key):
    with pytest.raises(ValueError, match="the key of the assistant") as refusal:
        Assistant("https://ai.example", key=key)
    assert key not in str(refusal.value)


def test_proxies_of_the_environment_are_not_used(ai, monkeypatch):
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "https_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    assert Assistant(ai.url).answer(HELLO)


# What it says


@pytest.mark.parametrize(
    ("said", "text"),
    [
        ("Hello", "Hello"),
        ("  Grüße\n\n👋 \n", "Grüße\n\n👋"),
        ("\0a\0", "a"),
        ("x" * LONGEST, "x" * LONGEST),
        ("x" * (LONGEST + 1), "x" * (LONGEST - 1) + "…"),
        ("<script>alert(1)</script>", "<script>alert(1)</script>"),
    ],
)
def test_the_text_of_the_first_choice_is_the_answer(ai, said, text):
    ai.behave = sends({**completion(said), "choices": completion(said)["choices"] + completion("other")["choices"]})
    assert Assistant(ai.url).answer(HELLO) == text


def test_an_answer_may_come_in_chunks_or_end_with_the_connection(ai):
    body = json.dumps(completion("Hello")).encode()
    chunks = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in (body[:9], body[9:], b""))
    ai.behave = writes(HEAD, b"Transfer-Encoding: chunked\r\n\r\n", chunks)
    assert Assistant(ai.url).answer(HELLO) == "Hello"
    ai.behave = writes(HEAD, b"\r\n", body)
    assert Assistant(ai.url).answer(HELLO) == "Hello"


def test_an_interim_answer_is_passed_over(ai):
    body = json.dumps(completion("Hello")).encode()
    ai.behave = writes(b"HTTP/1.1 100 Continue\r\n\r\n", HEAD, b"\r\n", body)
    assert Assistant(ai.url).answer(HELLO) == "Hello"


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
def test_what_is_no_completion_is_no_answer(ai, body):
    found = failure(ai, sends(body))
    assert (str(found), found.is_final) == ("what it sent is no chat completion", False)


@pytest.mark.parametrize("said", ["", " \n\t", "\0"])
def test_an_empty_answer_is_none(ai, said):
    found = failure(ai, says(said))
    assert (str(found), found.is_final) == ("it said nothing", False)


# What goes wrong


@pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 504, 529])
def test_who_is_busy_may_be_asked_again(ai, status):
    found = failure(ai, sends(completion("Hello"), status))
    assert (str(found), found.is_final, found.after) == (f"status {status}", False, 0)


@pytest.mark.parametrize("status", [201, 204, 301, 302, 307, 308, 400, 401, 403, 404, 405, 413, 422])
def test_who_refuses_is_not_asked_again(ai, status):
    found = failure(ai, sends(b"" if status == 204 else completion("Hello"), status))
    assert (str(found), found.is_final) == (f"status {status}", True)


@pytest.mark.parametrize(
    ("told", "milliseconds"),
    [
        *(("0", 0), ("1", 1000), (" 120 ", 120_000), ("999999", 999_999_000), ("9" * 7, 0), ("9" * 999, 0), ("-1", 0)),
        *(("1.5", 0), ("²", 0), ("soon", 0), ("", 0), ("Fri, 20 Nov 2026 10:01:30 GMT", 90_000)),
        *(("Fri, 20 Nov 2026 09:00:00 GMT", 0), ("Fri, 99 Nov 2026 09:00:00 GMT", 0)),
    ],
)
@pytest.mark.parametrize("status", [429, 503])
def test_who_is_busy_may_say_until_when(ai, host_clock, told, milliseconds, status):
    found = failure(ai, sends({}, status, retry_after=told))
    assert (found.is_final, found.after) == (False, milliseconds)


def test_redirects_are_not_followed(ai):
    with standing_in() as elsewhere:
        found = failure(ai, sends({}, 307, location=f"{elsewhere.url}/chat/completions"))
        assert (str(found), elsewhere.asked) == ("status 307", [])


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
    ids=["hangs", "first line", "head", "body", "chunks", "interim answers"],
)
def test_who_is_too_slow_is_not_waited_for(ai, hurry, behave):
    found = failure(ai, behave)
    assert (str(found), found.is_final) == ("it took too long", False)


def test_who_takes_no_connection_is_not_waited_for(hurry):
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full:
        address = full.getsockname()
        waiting = [socket.socket() for _ in range(4)]
        for one in waiting:
            one.setblocking(False)
            one.connect_ex(address)
        with pytest.raises(NoAnswer, match="it took too long"):
            Assistant(f"http://127.0.0.1:{address[1]}").answer(HELLO)
        for one in waiting:
            one.close()


def test_who_does_not_read_is_not_waited_for(hurry):
    with socket.create_server(("127.0.0.1", 0)) as idle, pytest.raises(NoAnswer, match="it took too long"):
        Assistant(f"http://127.0.0.1:{idle.getsockname()[1]}").answer([{"role": "user", "content": "x" * 2**24}])


@pytest.mark.parametrize(
    ("behave", "reason"),
    [
        (writes(HEAD, b"\r\n", again=KIB * 64), "more than"),
        (writes(HEAD, b"Content-Length: 999999999999999\r\n\r\n", again=KIB * 64), "more than"),
        (writes(HEAD, b"Transfer-Encoding: chunked\r\n\r\n", again=b"400\r\n%s\r\n" % KIB), "more than"),
        (writes(HEAD, b"Transfer-Encoding: chunked\r\n\r\n1;", again=KIB), "LineTooLong"),
        (writes(again=b"HTTP/1.1 100 Continue\r\n\r\n" * 99), "more than"),
        (writes(HEAD, again=b"A: b\r\n"), "HTTPException"),
        (writes(HEAD, b"A: ", again=KIB), "LineTooLong"),
        (writes(again=KIB), "LineTooLong"),
        (sends(completion("x" * 10_000_000)), "more than"),
        (sends(completion("x" * LARGEST)), "more than"),
    ],
)
def test_no_more_is_read_than_an_answer_may_have(ai, behave, reason):
    found = failure(ai, behave)
    assert reason in str(found) and not found.is_final


def test_an_answer_may_be_large_if_not_too_large(ai):
    ai.behave = sends({**completion("Hello"), "padding": "x" * (LARGEST - 4096)})
    assert Assistant(ai.url).answer(HELLO) == "Hello"


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
def test_a_broken_connection_is_no_answer(ai, behave):
    assert failure(ai, behave).is_final is False


def test_what_a_broken_server_writes_is_not_repeated(ai):
    assert str(failure(ai, writes(b"HTTP/1.1 the words of a customer\r\n\r\n"))) == "BadStatusLine"


def test_a_server_that_is_down_is_no_answer(ai):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        with pytest.raises(NoAnswer, match="Connection refused") as caught:
            Assistant(f"http://127.0.0.1:{taken.getsockname()[1]}").answer(HELLO)
    assert caught.value.is_final is False


@pytest.mark.parametrize("host", ["nobody.invalid", f"{'a' * 64}.invalid", "a..invalid"])
def test_a_name_that_leads_nowhere_is_no_answer(host):
    with pytest.raises(NoAnswer) as caught:
        Assistant(f"http://{host}/v1").answer(HELLO)
    assert caught.value.is_final is False


def test_the_server_is_left_alone_after_an_answer_that_was_too_large(ai):
    failure(ai, writes(HEAD, b"\r\n", again=KIB * 64))
    ai.behave = says("Hello")
    assert Assistant(ai.url).answer(HELLO) == "Hello"
    assert COUNTLESS * 64 * 1024 > 100 * LARGEST  # else the one before would have ended by itself


# Encrypted


class Encrypted(StandIn):
    scheme = "https"


@pytest.fixture
def certificate(tmp_path):
    """A file with the key and the certificate of a server that only its owner trusts."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
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
    file.write_bytes(private + made.public_bytes(pem))
    return file


@pytest.fixture
def encrypted(certificate):
    server = Encrypted()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    with standing_in(server):
        yield server


def test_a_server_that_nobody_vouches_for_is_told_nothing(encrypted):
    assert "certificate" in str(failure(encrypted)).lower() or "SSL" in str(failure(encrypted))
    assert encrypted.asked == []


def test_a_server_that_the_host_trusts_is_asked(encrypted, certificate, monkeypatch):
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    assert Assistant(encrypted.url).answer(HELLO) == "I am the assistant."


def test_a_server_by_another_name_is_told_nothing(encrypted, certificate, monkeypatch):
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    with pytest.raises(NoAnswer):
        Assistant(encrypted.url.replace("127.0.0.1", "localhost")).answer(HELLO)
    assert encrypted.asked == []


def test_an_encrypted_drip_is_not_waited_for(encrypted, certificate, monkeypatch, hurry):
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    assert str(failure(encrypted, writes(HEAD, b"X: ", again=b"x", every=0.01))) == "it took too long"


# What it is told


def test_it_is_told_for_whom_it_speaks_and_in_which_languages():
    assert instructions("Hilda", "The shop", ("Knows shoes.", "All of them.\n"), ["de-CH", "fr"]) == (
        "You are Hilda of The shop, and talk with a customer in a chat.\n"
        "Knows shoes.\n"
        "All of them.\n"
        "Answer in the language de-CH (a BCP 47 tag), whatever the language of the messages.\n"
        "If you do not speak it, answer in fr."
    )


def test_it_is_told_nothing_of_what_a_profile_does_not_say():
    assert instructions("", "", ("", " "), []) == (
        "You are the bot, and talk with a customer in a chat.\nAnswer in the language of the customer."
    )

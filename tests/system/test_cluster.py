"""Several instances on one PostgreSQL behind nginx behave like a single one."""

import base64
import contextlib
import hashlib
import itertools
import secrets
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import psycopg
import pytest

from tests.support import cluster, postgres
from tests.support.client import Reply
from tests.support.cluster import Cluster, Load, message
from tests.support.event_stream import EventClient
from tests.support.observe import at_once
from tests.support.passwords import PASSWORD
from tests.support.server_process import APP, SESSION, Served, send_request, serving

pytestmark = [*cluster.MARKS, pytest.mark.database]

LOAD = 3.0  # seconds
BOUND = 20.0  # seconds that no request may exceed
VERIFIER = "v" * 43
CHALLENGE = base64.urlsafe_b64encode(hashlib.sha256(VERIFIER.encode()).digest()).rstrip(b"=").decode()
CALLBACK = "http://127.0.0.1:1/"


@pytest.fixture(scope="module")
def server() -> Iterator[postgres.Server]:
    """PostgreSQL with its default settings, by which a commit is on the disk."""
    cluster.find_postgresql()
    with postgres.running(max_connections="100") as running:
        yield running


def new_database(server: postgres.Server) -> str:
    """The address of an empty database."""
    name = f"cx_{secrets.token_hex(4)}"
    with psycopg.connect(f"{server.url}/postgres", autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name} TEMPLATE template0".encode())
    return f"{server.url}/{name}"


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory, server: postgres.Server) -> Iterator[Cluster]:
    """Three instances that were started concurrently on an empty database."""
    with cluster.cluster(tmp_path_factory.mktemp("several"), new_database(server)) as running:
        yield running


@pytest.fixture
def fresh(several: Cluster) -> Cluster:
    """The same instances with only the initial records, for tests that count rows."""
    several.reset_data()
    return several


def call(instance: Served, method: str, path: str, body: Any = None, token: str = "", **headers: str) -> Reply:
    """Send a request to one instance, as nginx does."""
    renamed = {name.replace("_", "-"): value for name, value in headers.items()}
    return instance.call(method, f"/api/v1{path}", body, token, headers=renamed)


def log_in(instance: Served) -> dict[str, str]:
    reply = call(instance, "POST", "/auth/login", {"email": "alice@example.com", "password": PASSWORD})
    return dict(reply.data["tokens"])


def statuses(several: Cluster, token: str) -> list[int]:
    """The status of a request with a token at each instance."""
    return [call(instance, "GET", "/users/me", token=token).status for instance in several.instances]


# The proxy.


def test_concurrent_first_starts_create_one_schema_and_one_key(several: Cluster) -> None:
    assert several.rows("SELECT count(*) FROM signing_key") == [(1,)]
    assert several.rows("SELECT count(*) FROM schema_version") == [(1,)]
    assert not [instance.errors for instance in several.instances if "Traceback" in instance.errors]


def test_nginx_distributes_requests_evenly(several: Cluster) -> None:
    def counts() -> list[int]:
        return [instance.errors.count("GET /healthz 200") for instance in several.instances]

    before = counts()
    with contextlib.closing(several.proxy.connect()) as connection:
        assert [send_request(connection, "GET", "/healthz").status for _ in range(30)] == [200] * 30
    cluster.until(lambda: sum(counts()) == sum(before) + 30)
    assert [later - earlier for earlier, later in zip(before, counts(), strict=True)] == [10, 10, 10]


def test_streams_continue_at_other_instances(several: Cluster) -> None:
    token, last_id, path = log_in(several.instances[0])["access_token"], "", f"/chats/{SESSION}/messages"
    for instance in several.instances * 2:
        with EventClient(several.proxy.connect(), token, last_id) as stream:
            last_id = last_id or stream.next().last_id
            assert call(instance, "POST", path, {"content": "Hello"}, token).status == 201
            event = stream.next()
            assert event.data["chats"] == [SESSION]
            last_id = event.last_id


def test_clients_see_one_address_and_secure_cookies(several: Cluster) -> None:
    with contextlib.closing(several.proxy.connect()) as connection:
        metadata = send_request(connection, "GET", "/.well-known/oauth-authorization-server")
        cookie = send_request(connection, "GET", "/sign-in").headers["Set-Cookie"]
    assert metadata.json["issuer"] == several.proxy.url
    assert cookie.startswith("__Host-") and "; Secure" in cookie


def test_errors_of_nginx_are_in_the_envelope(several: Cluster) -> None:
    with contextlib.closing(several.proxy.connect()) as connection:
        connection.putrequest("POST", "/api/v1/users/me/avatar")
        connection.putheader("Content-Length", str(100 * 1024 * 1024))
        connection.endheaders()
        response = connection.getresponse()
        reply = Reply(response.status, dict(response.getheaders()), response.read())
    assert reply.error == (413, "body_too_large")
    assert reply.headers["Content-Type"] == "application/json"


def test_cursors_are_valid_at_all_instances(several: Cluster) -> None:
    token, found, cursor = log_in(several.instances[0])["access_token"], [], ""
    turns = itertools.cycle(several.instances)
    while True:
        page = call(next(turns), "GET", f"/chats/{SESSION}/messages?limit=7&cursor={cursor}", token=token)
        found += [row["id"] for row in page.data]
        cursor = page.meta["next_cursor"]
        if not cursor:
            break
    assert found[: cluster.MESSAGES] == [message(number) for number in range(cluster.MESSAGES)]  # then those of tests


# Logins.


def test_logins_and_logouts_apply_to_all_instances_at_once(several: Cluster) -> None:
    for number, instance in enumerate(several.instances * 3):
        token = log_in(instance)["access_token"]
        assert statuses(several, token) == [200, 200, 200]
        assert call(several.instances[(number + 1) % 3], "POST", "/auth/logout", {}, token).status == 200
        assert statuses(several, token) == [401, 401, 401]


def test_global_logout_applies_to_all_instances(several: Cluster) -> None:
    tokens = [log_in(instance)["access_token"] for instance in several.instances]
    assert call(several.instances[1], "POST", "/auth/logout", {"scope": "global"}, tokens[1]).status == 200
    assert [statuses(several, token) for token in tokens] == [[401] * 3] * 3


def refresh(instance: Served, tokens: dict[str, str]) -> Reply:
    return call(instance, "POST", "/auth/refresh", {"refresh_token": tokens["refresh_token"]})


def test_refresh_tokens_rotate_across_instances(several: Cluster) -> None:
    tokens = log_in(several.instances[0])
    for instance in several.instances * 3:
        tokens = refresh(instance, tokens).data["tokens"]
        assert statuses(several, tokens["access_token"]) == [200, 200, 200]


def test_concurrent_refreshes_at_all_instances_have_one_successor(several: Cluster) -> None:
    tokens = log_in(several.instances[0])
    replies: list[Reply] = at_once(9, lambda index: refresh(several.instances[index % 3], tokens))
    pairs = {reply.data["tokens"]["refresh_token"] for reply in replies}
    assert len(pairs) == 1
    assert statuses(several, replies[0].data["tokens"]["access_token"]) == [200, 200, 200]


def test_reused_refresh_token_ends_the_login_at_all_instances(several: Cluster) -> None:
    first = log_in(several.instances[0])
    second = refresh(several.instances[1], first).data["tokens"]
    third = refresh(several.instances[2], second).data["tokens"]
    assert statuses(several, third["access_token"]) == [200, 200, 200]
    assert refresh(several.instances[0], first).error == (401, "invalid_token")
    assert statuses(several, third["access_token"]) == [401, 401, 401]
    assert refresh(several.instances[1], third).error == (401, "invalid_token")


def test_failed_logins_are_counted_across_instances(several: Cluster) -> None:
    wrong = {"email": "unknown@example.com", "password": "a guess"}
    guesses = [
        call(instance, "POST", "/auth/login", wrong, X_Forwarded_For="203.0.113.7").status
        for instance in [*several.instances * 7, several.instances[0]]
    ]
    assert guesses == [401] * 20 + [429] * 2
    other_client = [
        call(instance, "POST", "/auth/login", wrong, X_Forwarded_For="198.51.100.9").status
        for instance in several.instances
    ]
    assert other_client == [401] * 3


def test_forged_hops_are_removed_by_nginx(several: Cluster) -> None:
    wrong = {"email": "also-unknown@example.com", "password": "a guess"}
    with contextlib.closing(several.proxy.connect()) as connection:
        guesses = [
            send_request(
                connection, "POST", "/api/v1/auth/login", wrong, headers={"X-Forwarded-For": f"203.0.{number}.7"}
            )
            for number in range(22)
        ]
    assert [guess.status for guess in guesses] == [401] * 20 + [429] * 2


# Consent of a command-line client.


def approve(several: Cluster, number: int, token: str) -> str:
    """An authorization code: one instance serves the page, the next receives the form."""
    parameters = {
        "client_id": "service-cli",
        "response_type": "code",
        "code_challenge": CHALLENGE,
        "code_challenge_method": "S256",
        "redirect_uri": CALLBACK,
        "state": "s",
        "install_id": f"install-{number}",
    }
    page = call(several.instances[number % 3], "GET", f"/auth/cli/authorize?{urlencode(parameters)}", token=token)
    csrf_token = page.raw.decode().partition('name="csrf_token" value="')[2].partition('"')[0]
    form = urlencode({"csrf_token": csrf_token, "answer": "approve"}).encode()
    kind = {"Content_Type": "application/x-www-form-urlencoded"}
    done = call(several.instances[(number + 1) % 3], "POST", "/auth/cli/authorize", form, token, **kind)
    assert done.status == 200, done.raw
    target = done.raw.decode().partition(CALLBACK)[2].partition('"')[0].replace("&amp;", "&")
    return parse_qs(urlsplit(target).query)["code"][0]


def exchange(instance: Served, code: str) -> Reply:
    parameters = {"grant_type": "authorization_code", "client_id": "service-cli", "code": code}
    form = urlencode({**parameters, "code_verifier": VERIFIER, "redirect_uri": CALLBACK}).encode()
    return call(instance, "POST", "/auth/cli/token", form, Content_Type="application/x-www-form-urlencoded")


def exchange_at_once(several: Cluster, code: str) -> list[Reply]:
    """Six concurrent exchanges of one code, two at each instance."""
    return at_once(6, lambda index: exchange(several.instances[index % 3], code))


def test_page_form_and_code_may_go_to_different_instances(several: Cluster) -> None:
    token = log_in(several.instances[0])["access_token"]
    for number in range(3):
        exchanged = exchange(several.instances[(number + 2) % 3], approve(several, number, token))
        assert exchanged.status == 200
        assert statuses(several, exchanged.json["access_token"]) == [200, 200, 200]


def test_code_that_is_exchanged_concurrently_is_accepted_once(several: Cluster) -> None:
    token = log_in(several.instances[0])["access_token"]
    for number in range(5):
        replies = exchange_at_once(several, approve(several, 10 + number, token))
        assert sorted(reply.status for reply in replies) == [200] + [400] * 5
        (winner,) = [reply.json["access_token"] for reply in replies if reply.status == 200]
        assert statuses(several, winner) == [401] * 3  # the second use of a code revokes the tokens of the first


# Idempotency keys.


@pytest.mark.parametrize(
    ("path", "body", "stored"),
    [
        ("/feedback", {"description": "once"}, "feedback WHERE description = 'once'"),
        ("/data-shares", {"mcp_server_id": "once", "allowed_tools": ["a"]}, "data_share WHERE mcp_server_id = 'once'"),
    ],
)
def test_concurrent_requests_with_one_idempotency_key_create_one_record(
    path: str, body: dict[str, Any], stored: str, several: Cluster
) -> None:
    token = log_in(several.instances[0])["access_token"]

    def create(number: int, more: dict[str, str]) -> Reply:
        return call(several.instances[number % 3], "POST", path, body | more, token, Idempotency_Key="a key")

    replies: list[Reply] = at_once(9, lambda number: create(number, {}))
    assert {(reply.status, reply.raw) for reply in replies} == {(201, replies[0].raw)}
    assert sum("Idempotency-Replayed" in reply.headers for reply in replies) == 8
    for number in range(3):
        assert create(number, {"app_id": APP}).error == (400, "idempotency_key_reused")
    assert several.rows(f"SELECT count(*) FROM {stored}") == [(1,)]


# Signing keys.


def test_tokens_of_a_new_signing_key_are_valid_at_all_instances(several: Cluster) -> None:
    old = log_in(several.instances[0])["access_token"]
    assert statuses(several, old) == [200, 200, 200]
    with psycopg.connect(several.direct) as connection:
        connection.execute(
            "INSERT INTO signing_key SELECT '7' || substr(max(id), 2), max(created_at) + 1, %s FROM signing_key",
            (secrets.token_hex(32),),
        )
    several.restart(1)  # it has read both keys; the others have read only the old one
    new = log_in(several.instances[1])["access_token"]
    others = [several.instances[0], several.instances[2]]
    cluster.until(lambda: all(call(other, "GET", "/users/me", token=new).status == 200 for other in others), 3)
    assert statuses(several, old) == statuses(several, new) == [200, 200, 200]


# Load.


def test_load_stores_each_write_exactly_once(fresh: Cluster) -> None:
    load = Load(fresh.proxy)
    with load.running(LOAD):
        pass
    assert load.faults == [] and load.unavailable == []
    load.assert_all_stored(fresh.rows)
    for instance in fresh.instances:
        assert instance.errors.count(" 200 ") > 20
        assert "Traceback" not in instance.errors


def test_load_through_pgbouncer_in_transaction_mode(tmp_path: Path, server: postgres.Server) -> None:
    """Twenty threads on four connections."""
    direct = new_database(server)
    with (
        cluster.pgbouncer(direct, 4) as url,
        cluster.cluster(tmp_path, url, direct) as fresh,
    ):
        load = Load(fresh.proxy)
        with load.running(LOAD):
            pass
        assert load.faults == [] and load.unavailable == []
        load.assert_all_stored(fresh.rows)
        assert fresh.rows("SELECT count(*) <= 5 FROM pg_stat_activity WHERE datname = current_database()") == [(True,)]


def test_killed_instance_under_load(fresh: Cluster) -> None:
    load = Load(fresh.proxy)
    with load.running(LOAD):
        time.sleep(LOAD / 3)
        fresh.kill(0)
    assert load.faults == []
    assert len(load.unavailable) <= cluster.WRITERS  # requests in progress, which may have been committed
    assert load.longest < BOUND
    load.assert_all_stored(fresh.rows)


def test_rolling_restart_under_load(fresh: Cluster) -> None:
    load = Load(fresh.proxy)
    with load.running(LOAD):
        for number, instance in enumerate(list(fresh.instances)):
            assert instance.stop() == 0
            fresh.restart(number)
            time.sleep(2.5)  # until nginx uses it again
    assert load.faults == []
    assert len(load.unavailable) <= 1  # a POST on a connection that was closed as it was sent
    load.assert_all_stored(fresh.rows)


@pytest.mark.parametrize("mode", ["fast", "immediate"])
def test_database_restart_under_load(mode: str, fresh: Cluster, server: postgres.Server) -> None:
    load = Load(fresh.proxy)
    with load.running(LOAD):
        time.sleep(LOAD / 3)
        server.stop(mode)
        server.start()
        restarted = time.monotonic()
        time.sleep(LOAD / 3)
    assert load.faults == []
    assert load.unavailable
    assert all(writer.written[-1] > restarted for writer in load.writers)
    assert load.longest < BOUND
    load.assert_all_stored(fresh.rows)
    assert [instance.process.poll() for instance in fresh.instances] == [None] * 3
    assert [call(instance, "GET", "/chats", token="").status for instance in fresh.instances] == [401] * 3


def test_request_that_waits_for_a_lock_of_an_operator_is_503_after_the_lock_timeout(
    tmp_path: Path, server: postgres.Server
) -> None:
    """The lock is the same as that of VACUUM FULL; the timeout is the recommended one of docs/topologies.md."""
    url = new_database(server)
    with psycopg.connect(url, autocommit=True) as operator:
        for statement in cluster.documented_block("sql", "lock_timeout").splitlines():
            operator.execute(statement.replace("DATABASE cx", f"DATABASE {urlsplit(url).path[1:]}").encode())
        with serving(tmp_path / "instance", "--database", url) as instance:
            cluster.import_records(url, cluster.initial_records())
            token = log_in(instance)["access_token"]
            path = f"/chats/{SESSION}/messages"
            with operator.transaction():
                operator.execute("LOCK TABLE message")
                assert call(instance, "GET", path, token=token).error == (503, "storage_unavailable")
            assert call(instance, "GET", path, token=token).status == 200


def test_without_instances_the_response_is_503_with_retry_after(fresh: Cluster) -> None:
    for number in range(3):
        fresh.kill(number)
    with contextlib.closing(fresh.proxy.connect()) as connection:
        for method in ("GET", "POST", "DELETE"):
            reply = send_request(connection, method, "/api/v1/feedback")
            assert reply.error == (503, "storage_unavailable")
            assert reply.headers["Retry-After"] == "2"
        fresh.restart(2)
        cluster.until(lambda: send_request(connection, "GET", "/readyz").status == 200)

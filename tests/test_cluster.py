"""Several instances on one PostgreSQL behind one nginx: whatever they are asked, they answer as one."""

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

from tests import cluster, postgres
from tests.cluster import Cluster, Load, message
from tests.conftest import PASSWORD, Reply
from tests.serving import APP, SESSION, Served, ask, serving
from tests.watching import at_once

pytestmark = cluster.ONCE

LOAD = 3.0  # seconds
BOUND = 20.0  # seconds that no request may take, whatever happens
VERIFIER = "v" * 43
CHALLENGE = base64.urlsafe_b64encode(hashlib.sha256(VERIFIER.encode()).digest()).rstrip(b"=").decode()
CALLBACK = "http://127.0.0.1:1/"


@pytest.fixture(scope="module")
def server() -> Iterator[postgres.Server]:
    """PostgreSQL with its own defaults: an answered write is on the disk."""
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
    """Three instances, which began at once on an empty database."""
    with cluster.cluster(tmp_path_factory.mktemp("several"), new_database(server)) as running:
        yield running


@pytest.fixture
def fresh(several: Cluster) -> Cluster:
    """The same instances, for a test that counts all there is."""
    several.begin_anew()
    return several


def at(instance: Served, method: str, path: str, body: Any = None, token: str = "", **headers: str) -> Reply:
    """One request to one instance, as if nginx had sent it there."""
    told = {name.replace("_", "-"): value for name, value in headers.items()}
    return instance.call(method, f"/api/v1{path}", body, token, headers=told)


def log_in(instance: Served) -> dict[str, str]:
    answer = at(instance, "POST", "/auth/login", {"email": "alice@example.com", "password": PASSWORD})
    return dict(answer.data["tokens"])


def statuses(several: Cluster, token: str) -> list[int]:
    """What each instance says to a token."""
    return [at(instance, "GET", "/users/me", token=token).status for instance in several.instances]


# From the outside.


def test_three_that_begin_at_once_on_an_empty_database_make_one_schema_and_one_key(several: Cluster) -> None:
    assert several.rows("SELECT count(*) FROM signing_key") == [(1,)]
    assert several.rows("SELECT count(*) FROM schema_version") == [(1,)]
    assert not [told for instance in several.instances for told in (instance.errors,) if "Traceback" in told]


def test_nginx_takes_one_after_the_other(several: Cluster) -> None:
    def asked() -> list[int]:
        return [instance.errors.count("GET /healthz 200") for instance in several.instances]

    before = asked()
    with contextlib.closing(several.front.connect()) as connection:
        assert [ask(connection, "GET", "/healthz").status for _ in range(30)] == [200] * 30
    cluster.until(lambda: sum(asked()) == sum(before) + 30)
    assert [later - earlier for earlier, later in zip(before, asked(), strict=True)] == [10, 10, 10]


def test_clients_see_one_address_and_secure_cookies(several: Cluster) -> None:
    with contextlib.closing(several.front.connect()) as connection:
        metadata = ask(connection, "GET", "/.well-known/oauth-authorization-server")
        cookie = ask(connection, "GET", "/sign-in").headers["Set-Cookie"]
    assert metadata.json["issuer"] == several.front.url
    assert cookie.startswith("__Host-") and "; Secure" in cookie


def test_what_nginx_refuses_comes_in_the_envelope(several: Cluster) -> None:
    with contextlib.closing(several.front.connect()) as connection:
        connection.putrequest("POST", "/api/v1/users/me/avatar")
        connection.putheader("Content-Length", str(100 * 1024 * 1024))
        connection.endheaders()
        answer = connection.getresponse()
        reply = Reply(answer.status, dict(answer.getheaders()), answer.read())
    assert reply.error == (413, "body_too_large")
    assert reply.headers["Content-Type"] == "application/json"


def test_a_cursor_of_one_walks_on_at_another(several: Cluster) -> None:
    token, found, cursor = log_in(several.instances[0])["access_token"], [], ""
    turns = itertools.cycle(several.instances)
    while True:
        page = at(next(turns), "GET", f"/chats/{SESSION}/messages?limit=7&cursor={cursor}", token=token)
        found += [row["id"] for row in page.data]
        cursor = page.meta["next_cursor"]
        if not cursor:
            break
    assert found == [message(number) for number in range(cluster.MESSAGES)]


# Logins.


def test_a_login_is_good_everywhere_and_gone_everywhere_at_once(several: Cluster) -> None:
    for number, instance in enumerate(several.instances * 3):
        token = log_in(instance)["access_token"]
        assert statuses(several, token) == [200, 200, 200]
        assert at(several.instances[(number + 1) % 3], "POST", "/auth/logout", {}, token).status == 200
        assert statuses(several, token) == [401, 401, 401]


def test_logging_out_of_everything_reaches_every_instance(several: Cluster) -> None:
    tokens = [log_in(instance)["access_token"] for instance in several.instances]
    assert at(several.instances[1], "POST", "/auth/logout", {"scope": "global"}, tokens[1]).status == 200
    assert [statuses(several, token) for token in tokens] == [[401] * 3] * 3


def refresh(instance: Served, tokens: dict[str, str]) -> Reply:
    return at(instance, "POST", "/auth/refresh", {"refresh_token": tokens["refresh_token"]})


def test_refresh_tokens_rotate_from_instance_to_instance(several: Cluster) -> None:
    tokens = log_in(several.instances[0])
    for instance in several.instances * 3:
        tokens = refresh(instance, tokens).data["tokens"]
        assert statuses(several, tokens["access_token"]) == [200, 200, 200]


def test_one_refresh_token_at_all_instances_at_once_has_one_successor(several: Cluster) -> None:
    tokens = log_in(several.instances[0])
    answers: list[Reply] = at_once(9, lambda index: refresh(several.instances[index % 3], tokens))
    pairs = {answer.data["tokens"]["refresh_token"] for answer in answers}
    assert len(pairs) == 1
    assert statuses(several, answers[0].data["tokens"]["access_token"]) == [200, 200, 200]


def test_a_copied_refresh_token_ends_the_login_everywhere(several: Cluster) -> None:
    first = log_in(several.instances[0])
    second = refresh(several.instances[1], first).data["tokens"]
    third = refresh(several.instances[2], second).data["tokens"]
    assert statuses(several, third["access_token"]) == [200, 200, 200]
    assert refresh(several.instances[0], first).error == (401, "invalid_token")
    assert statuses(several, third["access_token"]) == [401, 401, 401]
    assert refresh(several.instances[1], third).error == (401, "invalid_token")


def test_guesses_count_over_all_instances(several: Cluster) -> None:
    wrong = {"email": "nobody@example.com", "password": "a guess"}
    guesses = [
        at(instance, "POST", "/auth/login", wrong, X_Forwarded_For="203.0.113.7").status
        for instance in [*several.instances * 7, several.instances[0]]
    ]
    assert guesses == [401] * 20 + [429] * 2
    elsewhere = [
        at(instance, "POST", "/auth/login", wrong, X_Forwarded_For="198.51.100.9").status
        for instance in several.instances
    ]
    assert elsewhere == [401] * 3


def test_hops_that_a_client_makes_up_are_gone_behind_nginx(several: Cluster) -> None:
    wrong = {"email": "nobody-else@example.com", "password": "a guess"}
    with contextlib.closing(several.front.connect()) as connection:
        guesses = [
            ask(connection, "POST", "/api/v1/auth/login", wrong, headers={"X-Forwarded-For": f"203.0.{number}.7"})
            for number in range(22)
        ]
    assert [guess.status for guess in guesses] == [401] * 20 + [429] * 2


# Consent of a command-line client.


def approve(several: Cluster, number: int, token: str) -> str:
    """A code: the page of one instance, answered at the next."""
    question = {
        "client_id": "service-cli",
        "response_type": "code",
        "code_challenge": CHALLENGE,
        "code_challenge_method": "S256",
        "redirect_uri": CALLBACK,
        "state": "s",
        "install_id": f"install-{number}",
    }
    page = at(several.instances[number % 3], "GET", f"/auth/cli/authorize?{urlencode(question)}", token=token)
    ticket = page.raw.decode().partition('name="ticket" value="')[2].partition('"')[0]
    form = urlencode({"ticket": ticket, "answer": "approve"}).encode()
    kind = {"Content_Type": "application/x-www-form-urlencoded"}
    done = at(several.instances[(number + 1) % 3], "POST", "/auth/cli/authorize", form, token, **kind)
    assert done.status == 200, done.raw
    target = done.raw.decode().partition(CALLBACK)[2].partition('"')[0].replace("&amp;", "&")
    return parse_qs(urlsplit(target).query)["code"][0]


def exchange(instance: Served, code: str) -> Reply:
    told = {"grant_type": "authorization_code", "client_id": "service-cli", "code": code}
    form = urlencode({**told, "code_verifier": VERIFIER, "redirect_uri": CALLBACK}).encode()
    return at(instance, "POST", "/auth/cli/token", form, Content_Type="application/x-www-form-urlencoded")


def exchange_at_once(several: Cluster, code: str) -> list[Reply]:
    """What six get who come with one code, two at each instance."""
    return at_once(6, lambda index: exchange(several.instances[index % 3], code))


def test_a_page_of_one_is_answered_at_another_and_its_code_traded_at_the_third(several: Cluster) -> None:
    token = log_in(several.instances[0])["access_token"]
    for number in range(3):
        traded = exchange(several.instances[(number + 2) % 3], approve(several, number, token))
        assert traded.status == 200
        assert statuses(several, traded.json["access_token"]) == [200, 200, 200]


def test_a_code_that_comes_to_several_at_once_is_good_for_one(several: Cluster) -> None:
    token = log_in(several.instances[0])["access_token"]
    for number in range(5):
        answers = exchange_at_once(several, approve(several, 10 + number, token))
        assert sorted(answer.status for answer in answers) == [200] + [400] * 5
        (winner,) = [answer.json["access_token"] for answer in answers if answer.status == 200]
        assert statuses(several, winner) == [401] * 3  # the second use of a code ends what the first gave


# Once.


@pytest.mark.parametrize(
    ("path", "told", "stored"),
    [
        ("/feedback", {"description": "once"}, "feedback WHERE description = 'once'"),
        ("/data-shares", {"mcp_server_id": "once", "allowed_tools": ["*"]}, "data_share WHERE mcp_server_id = 'once'"),
    ],
)
def test_a_key_that_comes_to_several_at_once_acts_once(
    path: str, told: dict[str, Any], stored: str, several: Cluster
) -> None:
    token = log_in(several.instances[0])["access_token"]

    def ask_for(number: int, more: dict[str, str]) -> Reply:
        return at(several.instances[number % 3], "POST", path, told | more, token, Idempotency_Key="a key")

    answers: list[Reply] = at_once(9, lambda number: ask_for(number, {}))
    assert {(answer.status, answer.raw) for answer in answers} == {(201, answers[0].raw)}
    assert sum("Idempotency-Replayed" in answer.headers for answer in answers) == 8
    for number in range(3):
        assert ask_for(number, {"app_id": APP}).error == (400, "idempotency_key_reused")
    assert several.rows(f"SELECT count(*) FROM {stored}") == [(1,)]


# Keys.


def test_what_one_signs_with_a_new_key_the_others_understand(several: Cluster) -> None:
    old = log_in(several.instances[0])["access_token"]
    assert statuses(several, old) == [200, 200, 200]
    with psycopg.connect(several.direct) as connection:
        connection.execute(
            "INSERT INTO signing_key SELECT '7' || substr(max(id), 2), max(created_at) + 1, %s FROM signing_key",
            (secrets.token_hex(32),),
        )
    several.start_again(1)  # it has read both keys now, the others still know the old one alone
    new = log_in(several.instances[1])["access_token"]
    others = [several.instances[0], several.instances[2]]
    cluster.until(lambda: all(at(other, "GET", "/users/me", token=new).status == 200 for other in others), 3)
    assert statuses(several, old) == statuses(several, new) == [200, 200, 200]


# Under load.


def test_load_loses_nothing_and_doubles_nothing(fresh: Cluster) -> None:
    load = Load(fresh.front)
    with load.running(LOAD):
        pass
    assert load.faults == [] and load.refused == []
    load.expect_all_stored(fresh.rows)
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
        load = Load(fresh.front)
        with load.running(LOAD):
            pass
        assert load.faults == [] and load.refused == []
        load.expect_all_stored(fresh.rows)
        assert fresh.rows("SELECT count(*) <= 5 FROM pg_stat_activity WHERE datname = current_database()") == [(True,)]


def test_an_instance_is_killed_under_load(fresh: Cluster) -> None:
    load = Load(fresh.front)
    with load.running(LOAD):
        time.sleep(LOAD / 3)
        fresh.kill(0)
    assert load.faults == []
    assert len(load.refused) <= cluster.WRITERS  # those that were under way there, and may have been done
    assert load.longest < BOUND
    load.expect_all_stored(fresh.rows)


def test_instances_are_restarted_one_after_the_other_under_load(fresh: Cluster) -> None:
    load = Load(fresh.front)
    with load.running(LOAD):
        for number, instance in enumerate(list(fresh.instances)):
            assert instance.stop() == 0
            fresh.start_again(number)
            time.sleep(2.5)  # until nginx asks it again
    assert load.faults == []
    assert len(load.refused) <= 1  # a POST on a connection that was closed as it was sent
    load.expect_all_stored(fresh.rows)


@pytest.mark.parametrize("mode", ["fast", "immediate"])
def test_the_database_is_restarted_under_load(mode: str, fresh: Cluster, server: postgres.Server) -> None:
    load = Load(fresh.front)
    with load.running(LOAD):
        time.sleep(LOAD / 3)
        server.stop(mode)
        server.start()
        back = time.monotonic()
        time.sleep(LOAD / 3)
    assert load.faults == []
    assert load.refused
    assert all(writer.written[-1] > back for writer in load.writers)
    assert load.longest < BOUND
    load.expect_all_stored(fresh.rows)
    assert [instance.process.poll() for instance in fresh.instances] == [None] * 3
    assert [at(instance, "GET", "/chats", token="").status for instance in fresh.instances] == [401] * 3


def test_a_request_that_waits_for_an_operator_is_refused_in_time(tmp_path: Path, server: postgres.Server) -> None:
    """The operator's lock is that of VACUUM FULL; the role's timeout is what docs/topologies.md advises."""
    url = new_database(server)
    with psycopg.connect(url, autocommit=True) as operator:
        for statement in cluster.shown("sql", "lock_timeout").splitlines():
            operator.execute(statement.replace("DATABASE cx", f"DATABASE {urlsplit(url).path[1:]}").encode())
        with serving(tmp_path / "instance", "--database", url) as instance:
            cluster.take_in(url, cluster.household())
            token = log_in(instance)["access_token"]
            path = f"/chats/{SESSION}/messages"
            with operator.transaction():
                operator.execute("LOCK TABLE message")
                assert at(instance, "GET", path, token=token).error == (503, "storage_unavailable")
            assert at(instance, "GET", path, token=token).status == 200


def test_without_any_instance_the_envelope_says_to_come_again(fresh: Cluster) -> None:
    for number in range(3):
        fresh.kill(number)
    with contextlib.closing(fresh.front.connect()) as connection:
        for method in ("GET", "POST", "DELETE"):
            refusal = ask(connection, method, "/api/v1/feedback")
            assert refusal.error == (503, "storage_unavailable")
            assert refusal.headers["Retry-After"] == "2"
        fresh.start_again(2)
        cluster.until(lambda: ask(connection, "GET", "/readyz").status == 200)

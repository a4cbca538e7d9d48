"""The demo of `serve --demo`: its times are moved to the present, its users sign in, and all printed lines work."""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from service import clock
from service import demo as demo_package
from service.commands import Stop
from service.commands.demo import (
    PASSWORD,
    PEOPLE,
    QUARTER,
    QUIZ,
    TIMESTAMP,
    ULIDS,
    invitation,
    move,
    present,
    tour,
)
from service.demo import make as corpus
from service.operate import import_export
from service.routes import operations
from tests.support import demo_tour
from tests.support.client import Client, text_of, walk
from tests.support.demo_tour import Done, execute_lines, printed_lines
from tests.support.executable import PYTHON, clean_environment
from tests.support.executable import executable_fixture as executable_fixture
from tests.support.host_clock import Clock
from tests.support.paths import ROOT
from tests.support.server_process import APP, Served, chat, command, environment, fill, json_lines, serving

pytestmark = [pytest.mark.slow, pytest.mark.database]

CURL = pytest.mark.skipif(
    not shutil.which("curl") and not os.environ.get("CI"),
    reason="NOT TESTED: curl is missing; on Debian: apt-get install curl",
)
MIB = 2**20
SIGN_INS = re.findall(r"^(\S+) +(\w+) +\S", PEOPLE, re.MULTILINE)


@pytest.fixture(scope="module")
def written() -> list[str]:
    """The demo as JSON Lines."""
    return json_lines(corpus.demo()).decode().splitlines(keepends=True)


def read(lines: list[str]) -> dict[str, list[dict[str, Any]]]:
    """The records by kind."""
    found: dict[str, list[dict[str, Any]]] = {}
    for line in lines:
        ((kind, members),) = json.loads(line).items()
        found.setdefault(kind, []).append(members)
    return found


def instants(lines: list[str]) -> list[int]:
    """All timestamps in some lines, in order."""
    return [clock.milliseconds(stamp) for line in lines for stamp in TIMESTAMP.findall(line)]


@pytest.fixture(scope="module")
def newest(written: list[str]) -> int:
    """The time of the newest message of the demo."""
    return max(clock.ulid_time(message["id"]) for message in read(written)["message"])


def test_records_in_the_package_are_up_to_date() -> None:
    lines = [json.dumps(record, ensure_ascii=False, separators=(",", ":")) + "\n" for record in corpus.demo()]
    assert demo_package.RECORDS.read_text(encoding="utf-8") == "".join(lines), "run `make demo-records`"
    notice = demo_package.RECORDS.with_name("records.jsonl.NOTICE.txt")
    assert notice.read_text(encoding="utf-8") == corpus.notice()


AGES = [0, QUARTER - 1, QUARTER, clock.DAY, clock.DAY + 1, 400 * clock.DAY + 12_345_678]


@pytest.fixture(params=AGES)
def now(newest: int, request: pytest.FixtureRequest) -> int:
    """A time at which the demo is started."""
    return newest + int(request.param)


class TestTimes:
    def test_newest_message_is_at_most_15_minutes_old(self, written: list[str], now: int) -> None:
        moved = read(list(move(written, now)))
        latest = max(clock.ulid_time(message["id"]) for message in moved["message"])
        assert now - QUARTER < latest <= now

    def test_in_the_past_keep_their_intervals(self, written: list[str], now: int, newest: int) -> None:
        pairs = list(zip(instants(written), instants(list(move(written, now))), strict=True))
        assert len({after - before for before, after in pairs if before <= newest}) == 1
        assert all(after <= now for before, after in pairs if before <= newest)

    def test_of_future_events_keep_the_time_of_day(self, written: list[str], now: int, newest: int) -> None:
        planned = [event for event in read(written)["event"] if clock.milliseconds(event["starts_at"]) > newest]
        moved = {event["id"]: event for event in read(list(move(written, now)))["event"]}
        starts = [(event["starts_at"], moved[event["id"]]["starts_at"]) for event in planned]
        assert all(now < clock.milliseconds(after) < now + 8 * clock.DAY for _, after in starts)
        later = [(before, after) for before, after in starts if clock.milliseconds(before) > newest + clock.HOUR]
        assert len(later) >= 5
        assert all(before[10:] == after[10:] for before, after in later)

    def test_of_an_event_keep_their_intervals(self, written: list[str], now: int) -> None:
        def spans(lines: list[str]) -> list[list[int]]:
            names = ("starts_at", "ends_at", "reminder_at")
            found = [[clock.milliseconds(one[name]) for name in names if name in one] for one in read(lines)["event"]]
            return [[moment - start for moment in (start, *others)] for start, *others in found]

        assert spans(list(move(written, now))) == spans(written)

    def test_remind_alice_within_the_next_half_hour(self, written: list[str], now: int) -> None:
        events = read(list(move(written, now)))["event"]
        reminders = [clock.milliseconds(event["reminder_at"]) for event in events if event.get("reminder_at")]
        assert any(now < moment < now + 30 * clock.MINUTE for moment in reminders)

    def test_in_ulids_move_with_the_references(self, written: list[str], now: int) -> None:
        moved = read(list(move(written, now)))
        messages = {message["id"]: message for message in moved["message"]}
        for id, message in messages.items():
            assert clock.timestamp(clock.ulid_time(id)) == message["created_at"]
            assert message.get("reply_to_message_id", id) in messages
        announced = [note["payload"]["message_id"] for note in moved["notification"] if "payload" in note]
        assert announced
        assert set(announced) <= set(messages)

    def test_are_the_only_change(self, written: list[str], newest: int) -> None:
        def without(lines: list[str]) -> list[str]:
            bare = [TIMESTAMP.sub('""', line) for line in lines]
            return [ULIDS.sub(lambda found: f'"{found[1][10:]}"', line) for line in bare]

        moved = list(move(written, newest + 99 * clock.DAY))
        assert moved != written
        assert without(moved) == without(written)

    def test_in_settings_move_too(self, written: list[str], newest: int) -> None:
        def muted(lines: list[str]) -> str:
            found = [user["settings"] for user in read(lines)["user"] if "settings" in user]
            return str(next(one["notifications"]["muted_until"] for one in found if "notifications" in one))

        ten_days = newest + 10 * clock.DAY
        assert clock.milliseconds(muted(list(move(written, ten_days)))) == clock.milliseconds(muted(written)) + (
            10 * clock.DAY
        )

    def test_move_deterministically(self, written: list[str], newest: int) -> None:
        now = newest + 1_234_567_890
        assert list(move(written, now)) == list(move(iter(written), now))

    @pytest.mark.parametrize("behind", [0, 1, 56 * 366 * clock.DAY])
    def test_do_not_move_if_the_clock_is_behind(self, written: list[str], newest: int, behind: int) -> None:
        assert list(move(written, newest - behind)) == written

    def test_do_not_appear_in_texts(self, written: list[str]) -> None:
        records = read(written)
        texts = [message["text"] for message in records["message"]]
        texts += [answer[name] for answer in records["bot_answer"] for name in ("question", "answer")]
        quoted = [f'"{text}"' for text in texts]
        assert not [text for text in quoted if TIMESTAMP.search(text) or ULIDS.search(text)]


@pytest.fixture
def demo_file(written: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the demo's records that is used in their place."""
    file = tmp_path / "records.jsonl"
    file.write_text("".join(written), encoding="utf-8")
    monkeypatch.setattr(demo_package, "RECORDS", file)
    return file


@pytest.fixture
def printed(demo_file: Path, application: Any, host_clock: Clock) -> str:
    """The text that is printed after the import, on a day in 2031."""
    host_clock.now = clock.milliseconds("2031-05-05T12:34:56.789Z")
    return present("http://127.0.0.1:8080", documented_only=False)


class TestImportedDemo:
    """The demo in the database, with an application in this process."""

    @pytest.fixture
    def clients(self, printed: str, application: Any, anyone: Client) -> dict[str, Client]:
        found = {}
        for email, role in SIGN_INS:
            login = anyone.post("/auth/login", {"email": email, "password": PASSWORD}).data
            assert login["user"]["role"] == role
            found[email.partition("@")[0]] = Client(application, login["tokens"]["access_token"], login["user"])
        return found

    def test_all_users_sign_in_and_have_pictures(self, clients: dict[str, Client], anyone: Client) -> None:
        assert {client.user["role"] for client in clients.values()} == {"user", "agent", "admin"}
        for client in clients.values():
            picture = anyone.get(f"/{client.user['profile_image']}")
            assert (picture.status, picture.headers["Content-Type"]) == (200, "image/webp")
        self.check_customers_see_own_chats_only(clients)
        self.check_agents_see_one_app_each(clients)
        self.check_alice_has_every_kind_of_data(clients["alice"])

    def check_customers_see_own_chats_only(self, clients: dict[str, Client]) -> None:
        own = {name: walk(clients[name], "/chats") for name in ("alice", "bob", "yuki")}
        for name, chats in own.items():
            assert {one["user_id"] for one in chats} == {clients[name].user["id"]}
        assert clients["bob"].get(f"/chats/{QUIZ}").error == (403, "forbidden")

    def check_agents_see_one_app_each(self, clients: dict[str, Client]) -> None:
        apps = {name: {one["app_id"] for one in walk(clients[name], "/chats")} for name in ("agent", "tomas", "admin")}
        assert len(apps["agent"]) == len(apps["tomas"]) == 1
        assert apps["agent"] | apps["tomas"] == apps["admin"]
        assert len(apps["admin"]) == 2
        assert clients["tomas"].get(f"/chats/{QUIZ}").error == (403, "forbidden")

    def check_alice_has_every_kind_of_data(self, alice: Client) -> None:
        assert {one["status"] for one in walk(alice, "/chats")} >= {"open", "archived", "resolved", "pending"}
        chat = alice.get("/chats?limit=1").data[0]
        assert chat["last_message"]["created_at"] > "2031-05-05T12:19:56.789Z"
        messages = walk(alice, f"/chats/{chat['id']}/messages")
        assert any(message["reply_snapshot"] for message in messages)
        assert not any("van that broke down near Swindon" in text_of(message) for message in messages)
        assert len(alice.get("/data-shares").data) == 2
        assert len(alice.get("/events?from=2031-05-05").data) >= 4
        assert alice.get("/notifications").meta["unread_count"] > 0
        assert {one["status"] for one in alice.get("/feedback").data} == {"new", "declined"}

    def test_second_import_adds_nothing(self, printed: str, host_clock: Clock) -> None:
        before: list[bytes] = []
        import_export.export(before.append)
        host_clock.forward(days=3)
        assert present("http://127.0.0.1:8080", documented_only=False) == printed
        after: list[bytes] = []
        import_export.export(after.append)
        assert after == before

    def test_invalid_demo_is_not_imported(self, demo_file: Path, application: Any) -> None:
        with demo_file.open("a") as file:
            file.write('{"event": {"title": "No owner"}}\n')
        with pytest.raises(Stop, match="the demo cannot be imported"):
            present("http://127.0.0.1:8080", documented_only=False)
        assert import_export.count_rows() == 0


class TestPrintedText:
    TEXT = invitation("http://127.0.0.1:8080", documented_only=False)

    def test_is_ascii(self) -> None:
        assert self.TEXT.isascii()
        assert not re.search(r"@[A-Z]+@|#\+|\\$", self.TEXT, re.MULTILINE)

    def test_has_the_addresses_of_the_pages(self) -> None:
        assert re.search(r"^  http://127\.0\.0\.1:8080/ +the console$", self.TEXT, re.MULTILINE)
        assert re.search(r"^  http://127\.0\.0\.1:8080/docs ", self.TEXT, re.MULTILINE)

    def test_with_documented_only_uses_documented_operations(self) -> None:
        known = {(one.method, re.sub(r"{\w+}", "X", one.path)) for one in operations(documented_only=True)}
        lines = "\n".join(tour("http://h", documented_only=True)).splitlines()
        requested = {
            ("".join(re.findall(r"-X (\w+)", line)) or ("POST" if " -d " in line else "GET"), path)
            for line in lines
            for path in re.findall(r'"\$API(/[^"?]+)', line)
        }
        assert len(requested) >= 10
        assert {(method, re.sub(r"\$\w+", "X", path)) for method, path in requested} <= known


# As a process, over HTTP.


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder outside the checkout."""
    return tmp_path_factory.mktemp("demo")


@pytest.fixture(scope="module")
def demo(folder: Path) -> Iterator[Served]:
    with serving(folder / "data", "--demo", "--share-folder") as running:
        yield running


def outputs_of(done: list[Done]) -> dict[str, str]:
    """The output of the lines, all of which must succeed."""
    assert [one for one in done if one.status] == []
    for one in done:
        if one.output.startswith("{"):
            assert json.loads(one.output)["success"] is True
    assert len([one for one in done if one.output]) > 10
    return {one.line.strip(): one.output for one in done}


def after(outputs: dict[str, str], *words: str) -> str:
    """The output of the one line that contains some words."""
    (found,) = (output for line, output in outputs.items() if all(word in line for word in words))
    return found


@pytest.mark.slow
@CURL
def test_every_printed_line_works(demo: Served) -> None:
    outputs = outputs_of(execute_lines(printed_lines(demo.output)))
    assert json.loads(after(outputs, 'users/me"'))["data"]["email"] == "alice@demo.example"
    assert len(json.loads(after(outputs, "$ALICE", "chats?limit=3"))["data"]) == 3
    first, last = (after(outputs, f'limit=4{how}"') for how in ("", "&direction=backward"))
    assert first.count("\n") == last.count("\n") == 4
    assert first != last
    latest = after(outputs, "limit=2&direction=backward")
    assert latest == "bot: The sperm whale\nuser: What is the loudest animal on Earth?\n"
    assert "whale" in after(outputs, "search?q=whale")
    assert after(outputs, "pinned-messages").startswith("bot: The sperm whale\n")
    apps = {one["app_id"] for one in json.loads(after(outputs, "$TOMAS", '/chats"'))["data"]}
    assert len(apps) == 1
    newest = json.loads(after(outputs, "notifications?limit=2"))["data"][0]
    assert newest["body"] == "The driver will ring twice."
    assert len(json.loads(after(outputs, "events?from"))["data"]) == 3
    assert "SUMMARY:Pub quiz at The Globe" in after(outputs, "$FEED")
    assert json.loads(after(outputs, "check", "forecast"))["data"]["reason"] == "granted"
    assert json.loads(after(outputs, "check", "make_rain"))["data"]["reason"] == "tool_not_allowed"
    assert json.loads(after(outputs, "bots?"))["data"]
    assert json.loads(after(outputs, "dark"))["data"]["appearance"]["theme"] == "dark"
    assert json.loads(after(outputs, "in_progress"))["data"]["status"] == "in_progress"
    outputs_of(execute_lines(printed_lines(demo.output)))  # a second time too


@pytest.mark.slow
@CURL
def test_every_printed_line_works_with_documented_only(folder: Path) -> None:
    with serving(folder / "documented", "--demo", "--documented-only") as server:
        outputs_of(execute_lines(printed_lines(server.output)))
        assert "/docs" not in server.output


@pytest.mark.slow
@CURL
def test_first_steps_work_as_documented(demo: Served) -> None:
    script = (
        (ROOT / "docs" / "first-steps.md")
        .read_text()
        .split("## A tour of the demo")[1]
        .split("```sh\n")[1]
        .split("```")[0]
    )
    printed = "\n".join(printed_lines(demo.output))
    script = script.replace("http://127.0.0.1:8080", demo.url)
    for line in script.replace(" \\\n  ", " ").splitlines():
        assert line in printed, "docs/first-steps.md must show lines of the printed tour"
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script], capture_output=True, env=environment(), timeout=60
    )
    assert (done.returncode, done.stderr) == (0, b"")
    lines = done.stdout.decode().splitlines()
    assert any(line.startswith("user: ") for line in lines)
    assert lines[-2:] == ["bot: The sperm whale", "user: What is the loudest animal on Earth?"]


@pytest.mark.slow
def test_second_start_with_the_demo_imports_nothing(demo: Served, folder: Path) -> None:
    before = command("export", "--data", folder / "data").stdout
    with serving(folder / "data", "--demo", "--share-folder") as again:
        assert again.output.replace(again.url, "") == demo.output.replace(demo.url, "")
    assert command("export", "--data", folder / "data").stdout.count(b"\n") == before.count(b"\n") > 100


@pytest.mark.slow
@pytest.mark.parametrize("records", [chat(), [{"app": {"id": APP, "name": "Mine"}}]], ids=["a chat", "an app alone"])
def test_database_with_data_is_not_changed(tmp_path: Path, records: Any) -> None:
    own = tmp_path / "data"
    fill(own, records)
    before = command("export", "--data", own).stdout
    with serving(own, "--demo") as server:
        assert server.output == "The database is not empty; the demo was not imported.\n"
    assert command("export", "--data", own).stdout == before


@pytest.mark.slow
def test_executable_with_the_demo_is_small(executable: Path) -> None:
    assert executable.stat().st_size <= 12 * MIB


@pytest.mark.slow
@CURL
def test_demo_needs_no_network_but_loopback(executable: Path, tmp_path: Path) -> None:
    isolated = ["unshare", "--map-root-user", "--net", "--"]
    if not shutil.which("unshare"):
        reason = "NOT TESTED: unshare is missing; on Debian: apt-get install util-linux"
        pytest.fail(reason) if os.environ.get("CI") else pytest.skip(reason)
    if subprocess.run([*isolated, "true"], capture_output=True).returncode:
        pytest.skip("NOT TESTED: network namespaces are not allowed here")
    variables = clean_environment(SHIV_ROOT=tmp_path / "unpacked")
    line = [*isolated, str(PYTHON), demo_tour.__file__, str(executable), str(tmp_path)]
    run = subprocess.run(line, capture_output=True, env=variables, timeout=180)
    assert run.returncode == 0, run.stderr.decode()
    results = json.loads(run.stdout)
    assert results["interfaces"] == ["lo"]
    outputs_of([Done(*one) for one in results["done"]])
    assert set(results["before"].values()) == {0}, "a process tried to reach another network"
    # The accesses of the test itself are counted.
    assert results["after"]["IpOutNoRoutes"] > 0 and results["after"]["Ip6OutNoRoutes"] > 0

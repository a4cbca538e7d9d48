"""The demo of `serve --demo`: its times are moved to now, its people sign in, and every line that it prints works."""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from service import clock, transfer
from service import demo as demo_package
from service.commands import Stop
from service.commands.demo import (
    PASSWORD,
    PEOPLE,
    QUARTER,
    QUIZ,
    SORTABLE,
    STAMP,
    invitation,
    move,
    present,
    tour,
)
from service.demo import make as corpus
from service.routes import operations
from tests import touring
from tests.conftest import Client, Clock, text_of, walk
from tests.executable import PYTHON, clean_environment
from tests.executable import executable_fixture as executable_fixture
from tests.serving import APP, ROOT, Served, chat, command, environment, fill, json_lines, serving
from tests.touring import Done, follow, printed_lines

pytestmark = pytest.mark.slow

CURL = pytest.mark.skipif(
    not shutil.which("curl") and not os.environ.get("CI"),
    reason="NOT TESTED: curl is missing; on Debian: apt-get install curl",
)
MIB = 2**20
SIGN_INS = re.findall(r"^(\S+) +(\w+) +\S", PEOPLE, re.MULTILINE)


@pytest.fixture(scope="module")
def written() -> list[str]:
    """The demo's lines as they travel."""
    return json_lines(corpus.demo()).decode().splitlines(keepends=True)


def read(lines: list[str]) -> dict[str, list[dict[str, Any]]]:
    """Records by kind."""
    found: dict[str, list[dict[str, Any]]] = {}
    for line in lines:
        ((kind, members),) = json.loads(line).items()
        found.setdefault(kind, []).append(members)
    return found


def instants(lines: list[str]) -> list[int]:
    """Every instant in some lines, in their order."""
    return [clock.milliseconds(stamp) for line in lines for stamp in STAMP.findall(line)]


@pytest.fixture(scope="module")
def newest(written: list[str]) -> int:
    """When the newest message of the demo was written."""
    return max(clock.ulid_time(message["id"]) for message in read(written)["message"])


def test_the_records_in_the_package_are_what_their_sources_make() -> None:
    lines = [json.dumps(record, ensure_ascii=False, separators=(",", ":")) + "\n" for record in corpus.demo()]
    assert demo_package.RECORDS.read_text(encoding="utf-8") == "".join(lines), "run `make demo-records`"
    notice = demo_package.RECORDS.with_name("records.jsonl.NOTICE.txt")
    assert notice.read_text(encoding="utf-8") == corpus.notice()


AGES = [0, QUARTER - 1, QUARTER, clock.DAY, clock.DAY + 1, 400 * clock.DAY + 12_345_678]


@pytest.fixture(params=AGES)
def now(newest: int, request: pytest.FixtureRequest) -> int:
    """A moment at which somebody starts the demo."""
    return newest + int(request.param)


class TestTheTimes:
    def test_make_the_newest_message_one_of_the_last_quarter_of_an_hour(self, written: list[str], now: int) -> None:
        moved = read(list(move(written, now)))
        latest = max(clock.ulid_time(message["id"]) for message in moved["message"])
        assert now - QUARTER < latest <= now

    def test_that_have_passed_keep_their_distances(self, written: list[str], now: int, newest: int) -> None:
        pairs = list(zip(instants(written), instants(list(move(written, now))), strict=True))
        assert len({after - before for before, after in pairs if before <= newest}) == 1
        assert all(after <= now for before, after in pairs if before <= newest)

    def test_of_plans_keep_the_hour_of_the_day_and_lie_ahead(self, written: list[str], now: int, newest: int) -> None:
        planned = [event for event in read(written)["event"] if clock.milliseconds(event["starts_at"]) > newest]
        moved = {event["id"]: event for event in read(list(move(written, now)))["event"]}
        starts = [(event["starts_at"], moved[event["id"]]["starts_at"]) for event in planned]
        assert all(now < clock.milliseconds(after) < now + 8 * clock.DAY for _, after in starts)
        later = [(before, after) for before, after in starts if clock.milliseconds(before) > newest + clock.HOUR]
        assert len(later) >= 5
        assert all(before[10:] == after[10:] for before, after in later)

    def test_of_an_event_keep_their_distances(self, written: list[str], now: int) -> None:
        def spans(lines: list[str]) -> list[list[int]]:
            names = ("starts_at", "ends_at", "reminder_at")
            found = [[clock.milliseconds(one[name]) for name in names if name in one] for one in read(lines)["event"]]
            return [[moment - start for moment in (start, *others)] for start, *others in found]

        assert spans(list(move(written, now))) == spans(written)

    def test_remind_alice_within_the_next_half_hour(self, written: list[str], now: int) -> None:
        events = read(list(move(written, now)))["event"]
        reminders = [clock.milliseconds(event["reminder_at"]) for event in events if event.get("reminder_at")]
        assert any(now < moment < now + 30 * clock.MINUTE for moment in reminders)

    def test_of_ulids_move_with_what_refers_to_them(self, written: list[str], now: int) -> None:
        moved = read(list(move(written, now)))
        messages = {message["id"]: message for message in moved["message"]}
        for id, message in messages.items():
            assert clock.timestamp(clock.ulid_time(id)) == message["created_at"]
            assert message.get("reply_to_message_id", id) in messages
        announced = [note["payload"]["message_id"] for note in moved["notification"] if "payload" in note]
        assert announced
        assert set(announced) <= set(messages)

    def test_are_all_that_changes(self, written: list[str], newest: int) -> None:
        def without(lines: list[str]) -> list[str]:
            bare = [STAMP.sub('""', line) for line in lines]
            return [SORTABLE.sub(lambda found: f'"{found[1][10:]}"', line) for line in bare]

        moved = list(move(written, newest + 99 * clock.DAY))
        assert moved != written
        assert without(moved) == without(written)

    def test_inside_of_settings_move_too(self, written: list[str], newest: int) -> None:
        def muted(lines: list[str]) -> str:
            found = [user["settings"] for user in read(lines)["user"] if "settings" in user]
            return str(next(one["notifications"]["muted_until"] for one in found if "notifications" in one))

        ten_days = newest + 10 * clock.DAY
        assert clock.milliseconds(muted(list(move(written, ten_days)))) == clock.milliseconds(muted(written)) + (
            10 * clock.DAY
        )

    def test_are_the_same_at_the_same_time(self, written: list[str], newest: int) -> None:
        now = newest + 1_234_567_890
        assert list(move(written, now)) == list(move(iter(written), now))

    @pytest.mark.parametrize("behind", [0, 1, 56 * 366 * clock.DAY])
    def test_stay_on_a_host_whose_clock_is_behind(self, written: list[str], newest: int, behind: int) -> None:
        assert list(move(written, newest - behind)) == written

    def test_stand_in_no_text(self, written: list[str]) -> None:
        told = read(written)
        texts = [message["text"] for message in told["message"]]
        texts += [answer[name] for answer in told["bot_answer"] for name in ("question", "answer")]
        quoted = [f'"{text}"' for text in texts]
        assert not [text for text in quoted if STAMP.search(text) or SORTABLE.search(text)]


@pytest.fixture
def demo_file(written: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the demo's records in place of them."""
    file = tmp_path / "records.jsonl"
    file.write_text("".join(written), encoding="utf-8")
    monkeypatch.setattr(demo_package, "RECORDS", file)
    return file


@pytest.fixture
def told(demo_file: Path, application: Any, host_clock: Clock) -> str:
    """What is printed after an empty database has been filled, on a day in the year 2031."""
    host_clock.now = clock.milliseconds("2031-05-05T12:34:56.789Z")
    return present("http://127.0.0.1:8080", documented_only=False)


class TestFilled:
    """The people of the demo, in process."""

    @pytest.fixture
    def people(self, told: str, application: Any, anyone: Client) -> dict[str, Client]:
        found = {}
        for email, role in SIGN_INS:
            login = anyone.post("/auth/login", {"email": email, "password": PASSWORD}).data
            assert login["user"]["role"] == role
            found[email.partition("@")[0]] = Client(application, login["tokens"]["access_token"], login["user"])
        return found

    def test_everybody_signs_in_and_has_a_picture(self, people: dict[str, Client], anyone: Client) -> None:
        assert {client.user["role"] for client in people.values()} == {"user", "agent", "admin"}
        for client in people.values():
            picture = anyone.get(f"/{client.user['profile_image']}")
            assert (picture.status, picture.headers["Content-Type"]) == (200, "image/webp")
        self.and_customers_keep_to_themselves(people)
        self.and_agents_serve_one_app_each(people)
        self.and_alice_has_something_of_everything(people["alice"])

    def and_customers_keep_to_themselves(self, people: dict[str, Client]) -> None:
        own = {name: walk(people[name], "/chats") for name in ("alice", "bob", "yuki")}
        for name, chats in own.items():
            assert {one["user_id"] for one in chats} == {people[name].user["id"]}
        assert people["bob"].get(f"/chats/{QUIZ}").error == (403, "forbidden")

    def and_agents_serve_one_app_each(self, people: dict[str, Client]) -> None:
        apps = {name: {one["app_id"] for one in walk(people[name], "/chats")} for name in ("agent", "tomas", "admin")}
        assert len(apps["agent"]) == len(apps["tomas"]) == 1
        assert apps["agent"] | apps["tomas"] == apps["admin"]
        assert len(apps["admin"]) == 2
        assert people["tomas"].get(f"/chats/{QUIZ}").error == (403, "forbidden")

    def and_alice_has_something_of_everything(self, alice: Client) -> None:
        assert {one["status"] for one in walk(alice, "/chats")} >= {"open", "archived", "resolved", "pending"}
        chat = alice.get("/chats?limit=1").data[0]
        assert chat["last_message"]["created_at"] > "2031-05-05T12:19:56.789Z"
        said = walk(alice, f"/chats/{chat['id']}/messages")
        assert any(message["reply_snapshot"] for message in said)
        assert not any("van that broke down near Swindon" in text_of(message) for message in said)
        assert len(alice.get("/data-shares").data) == 2
        assert len(alice.get("/events?from=2031-05-05").data) >= 4
        assert alice.get("/notifications").meta["unread_count"] > 0
        assert {one["status"] for one in alice.get("/feedback").data} == {"new", "declined"}

    def test_a_second_time_adds_nothing(self, told: str, host_clock: Clock) -> None:
        before: list[bytes] = []
        transfer.give_out(before.append)
        host_clock.forward(days=3)
        assert present("http://127.0.0.1:8080", documented_only=False) == told
        after: list[bytes] = []
        transfer.give_out(after.append)
        assert after == before

    def test_faults_in_the_demo_stop_it(self, demo_file: Path, application: Any) -> None:
        with demo_file.open("a") as file:
            file.write('{"event": {"title": "Nobody\'s"}}\n')
        with pytest.raises(Stop, match="the demo cannot be imported"):
            present("http://127.0.0.1:8080", documented_only=False)
        assert transfer.count_rows() == 0


class TestTheWords:
    WORDS = invitation("http://127.0.0.1:8080", documented_only=False)

    def test_are_for_every_terminal(self) -> None:
        assert self.WORDS.isascii()
        assert not re.search(r"@[A-Z]+@|#\+|\\$", self.WORDS, re.MULTILINE)

    def test_name_the_pages(self) -> None:
        assert re.search(r"^  http://127\.0\.0\.1:8080/ +the console$", self.WORDS, re.MULTILINE)
        assert re.search(r"^  http://127\.0\.0\.1:8080/docs ", self.WORDS, re.MULTILINE)

    def test_of_the_documented_operations_only_ask_for_nothing_else(self) -> None:
        known = {(one.method, re.sub(r"{\w+}", "X", one.path)) for one in operations(documented_only=True)}
        lines = "\n".join(tour("http://h", documented_only=True)).splitlines()
        asked = {
            ("".join(re.findall(r"-X (\w+)", line)) or ("POST" if " -d " in line else "GET"), path)
            for line in lines
            for path in re.findall(r'"\$API(/[^"?]+)', line)
        }
        assert len(asked) >= 10
        assert {(method, re.sub(r"\$\w+", "X", path)) for method, path in asked} <= known


# As a process, over HTTP.


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder outside of the checkout."""
    return tmp_path_factory.mktemp("demo")


@pytest.fixture(scope="module")
def demo(folder: Path) -> Iterator[Served]:
    with serving(folder / "data", "--demo") as running:
        yield running


def answers(done: list[Done]) -> dict[str, str]:
    """What lines answered, each with success."""
    assert [one for one in done if one.status] == []
    for one in done:
        if one.output.startswith("{"):
            assert json.loads(one.output)["success"] is True
    assert len([one for one in done if one.output]) > 10
    return {one.line.strip(): one.output for one in done}


def after(answered: dict[str, str], *words: str) -> str:
    """The answer to the one line in which words stand."""
    (found,) = (output for line, output in answered.items() if all(word in line for word in words))
    return found


@pytest.mark.slow
@CURL
def test_every_line_that_is_printed_works_as_it_stands(demo: Served) -> None:
    answered = answers(follow(printed_lines(demo.output)))
    assert json.loads(after(answered, 'users/me"'))["data"]["email"] == "alice@demo.example"
    assert len(json.loads(after(answered, "$ALICE", "chats?limit=3"))["data"]) == 3
    first, last = (after(answered, f'limit=4{how}"') for how in ("", "&direction=backward"))
    assert first.count("\n") == last.count("\n") == 4
    assert first != last
    asked = after(answered, "limit=2&direction=backward")
    assert asked == "bot: The sperm whale\nuser: What is the loudest animal on Earth?\n"
    assert "whale" in after(answered, "search?q=whale")
    assert after(answered, "pinned-messages").startswith("bot: The sperm whale\n")
    apps = {one["app_id"] for one in json.loads(after(answered, "$TOMAS", '/chats"'))["data"]}
    assert len(apps) == 1
    newest = json.loads(after(answered, "notifications?limit=2"))["data"][0]
    assert newest["body"] == "The driver will ring twice."
    assert len(json.loads(after(answered, "events?from"))["data"]) == 3
    assert "SUMMARY:Pub quiz at The Globe" in after(answered, "$FEED")
    assert json.loads(after(answered, "check", "forecast"))["data"]["reason"] == "granted"
    assert json.loads(after(answered, "check", "make_rain"))["data"]["reason"] == "tool_not_allowed"
    assert json.loads(after(answered, "bots?"))["data"]
    assert json.loads(after(answered, "dark"))["data"]["appearance"]["theme"] == "dark"
    assert json.loads(after(answered, "in_progress"))["data"]["status"] == "in_progress"
    answers(follow(printed_lines(demo.output)))  # whoever repeats them is answered too


@pytest.mark.slow
@CURL
def test_lines_are_printed_that_work_with_the_documented_operations_alone(folder: Path) -> None:
    with serving(folder / "documented", "--demo", "--documented-only") as server:
        answers(follow(printed_lines(server.output)))
        assert "/docs" not in server.output


@pytest.mark.slow
@CURL
def test_the_first_session_of_the_readme_works_as_it_stands(demo: Served) -> None:
    script = (ROOT / "README.md").read_text().split("## A first session")[1].split("```sh\n")[1].split("```")[0]
    printed = "\n".join(printed_lines(demo.output))
    script = script.replace("http://127.0.0.1:8080", demo.url)
    for line in script.replace(" \\\n  ", " ").splitlines():
        assert line in printed, "the README shows some of what is printed"
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script], capture_output=True, env=environment(), timeout=60
    )
    assert (done.returncode, done.stderr) == (0, b"")
    lines = done.stdout.decode().splitlines()
    assert any(line.startswith("user: ") for line in lines)
    assert lines[-2:] == ["bot: The sperm whale", "user: What is the loudest animal on Earth?"]


@pytest.mark.slow
def test_a_second_start_with_the_demo_imports_nothing_twice(demo: Served, folder: Path) -> None:
    before = command("export", "--data", folder / "data").stdout
    with serving(folder / "data", "--demo") as again:
        assert again.output.replace(again.url, "") == demo.output.replace(demo.url, "")
    assert command("export", "--data", folder / "data").stdout.count(b"\n") == before.count(b"\n") > 100


@pytest.mark.slow
@pytest.mark.parametrize("records", [chat(), [{"app": {"id": APP, "name": "Mine"}}]], ids=["a chat", "an app alone"])
def test_a_database_with_data_of_its_own_is_left_alone(tmp_path: Path, records: Any) -> None:
    own = tmp_path / "data"
    fill(own, records)
    before = command("export", "--data", own).stdout
    with serving(own, "--demo") as server:
        assert server.output == "The database holds data of its own; the demo was not added.\n"
    assert command("export", "--data", own).stdout == before


@pytest.mark.slow
def test_the_executable_stays_small_with_it(executable: Path) -> None:
    assert executable.stat().st_size <= 14 * MIB


@pytest.mark.slow
@CURL
def test_the_demo_runs_where_there_is_only_loopback_and_never_tries_to_leave(executable: Path, tmp_path: Path) -> None:
    alone = ["unshare", "--map-root-user", "--net", "--"]
    if not shutil.which("unshare"):
        reason = "NOT TESTED: there is no unshare here; apt-get install util-linux"
        pytest.fail(reason) if os.environ.get("CI") else pytest.skip(reason)
    if subprocess.run([*alone, "true"], capture_output=True).returncode:
        pytest.skip("NOT TESTED: this kernel lets us make no network namespace")
    told = clean_environment(SHIV_ROOT=tmp_path / "unpacked")
    line = [*alone, str(PYTHON), touring.__file__, str(executable), str(tmp_path)]
    run = subprocess.run(line, capture_output=True, env=told, timeout=180)
    assert run.returncode == 0, run.stderr.decode()
    seen = json.loads(run.stdout)
    assert seen["interfaces"] == ["lo"]
    answers([Done(*one) for one in seen["done"]])
    assert set(seen["before"].values()) == {0}, "somebody tried to leave"
    assert (
        seen["after"]["IpOutNoRoutes"] > 0 and seen["after"]["Ip6OutNoRoutes"] > 0
    )  # such as these would have counted

"""The command `answer`."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from service import db
from service.models import AuditLog, Bot, CannedAnswer, CannedAnswerWord, ChatSession
from tests.support.bot_replies import reply_text
from tests.support.command_line import Outcome, error_line
from tests.support.installation import settings_at

pytestmark = pytest.mark.database

Command = Callable[..., Outcome]
UNKNOWN = "00000000-0000-4000-8000-000000000000"
ENGLISH = {"question": "When are you open?", "answer": "From nine\nto five.", "language": "en", "actions": []}
GERMAN = {"question": "Wann habt ihr geöffnet?", "answer": "Von neun bis fünf.", "language": "de", "actions": []}
HEADER = "FILE:1: expected a header with the columns question, answer, language, buttons"
CSV = Path(__file__).with_name("answers.csv").read_text("utf-8")
MENU = 'question,answer,buttons\nHello?,Choose.,"Where?\n When? \n"\nWhere?,Here.,\n'


@pytest.fixture
def bot(cx: Command) -> str:
    """The identifier of a bot."""
    shop = cx("app", "add", "Shop").output.strip()
    return cx("bot", "add", "Hilda", "--app", shop, "--kind", "bot", "--status", "published").output.strip()


@pytest.fixture
def imported(cx: Command, bot: str, tmp_path: Path) -> Callable[[str | bytes], Outcome]:
    """Import a file into the bot."""

    def run(content: str | bytes) -> Outcome:
        file = tmp_path / "answers"
        file.write_bytes(content.encode() if isinstance(content, str) else content)
        outcome = cx("answer", "import", "--bot", bot, str(file))
        return outcome._replace(errors=outcome.errors.replace(f"{file}:", "FILE:"))

    return run


def listed(cx: Command, bot: str) -> list[dict[str, str]]:
    """The canned answers of a bot as the command prints them, without identifiers."""
    rows = [json.loads(line) for line in cx("answer", "list", "--bot", bot, "--json").output.splitlines()]
    assert {row.pop("bot_id") for row in rows} <= {bot}
    assert len({row.pop("id") for row in rows}) == len(rows)
    return rows


JSON_LINES = "".join(json.dumps(row) + "\r\n" for row in (ENGLISH, GERMAN))


@pytest.mark.parametrize(
    "content",
    [
        CSV,
        CSV.replace("\n", "\r\n").replace("nine\r\n", "nine\n"),
        "\ufeff" + CSV,
        CSV.replace(",", ";"),
        CSV.replace(",", "\t"),
        CSV.replace("question,answer,language", " Question ,ANSWER,Language"),
        JSON_LINES,
        "\ufeff\n" + JSON_LINES,
    ],
    ids=("CSV", "CRLF", "BOM", "semicolons", "tabs", "header in capitals", "JSON Lines", "JSON Lines with BOM"),
)
def test_files_in_every_format_are_imported(content: str, cx: Command, bot: str, imported) -> None:
    assert imported(content) == Outcome(0, "2 canned answers added, 0 replaced\n", "")
    assert listed(cx, bot) == [GERMAN, ENGLISH]


def test_imported_answers_are_replies_of_the_bot(bot: str, imported, data: Path) -> None:
    imported(CSV)
    db.open_database(data, settings_at(data).database)
    session = ChatSession(bot_id=bot, app_id=Bot.get_by_id(bot).app_id)
    assert reply_text(session, "when are you OPEN", ["en"]) == ENGLISH["answer"]
    assert reply_text(session, "Wann habt ihr geoffnet", ["en"]) == GERMAN["answer"]


def test_repeated_import_replaces_answers(cx: Command, bot: str, imported, data: Path) -> None:
    imported(CSV)
    changed = CSV.replace("bis fünf", "bis sechs") + "Where are you?,Here.,en\nWhere are you?,There.,en\n"
    assert imported(changed) == Outcome(0, "1 canned answers added, 2 replaced\n", "")
    answers = [row["answer"] for row in listed(cx, bot)]
    assert answers == ["Von neun bis sechs.", ENGLISH["answer"], "There."]
    db.open_database(data, settings_at(data).database)
    assert {row.answer_id for row in CannedAnswerWord.select()} == {row.id for row in CannedAnswer.select()}


def test_buttons_are_imported(cx: Command, bot: str, imported) -> None:
    imported(MENU)
    where, when = ({"id": id, "label": label, "payload": None} for id, label in (("1", "Where?"), ("2", "When?")))
    assert [row["actions"] for row in listed(cx, bot)] == [[where, when], []]
    row = {"question": "Where?", "answer": "There.", "actions": [{"id": "go", "label": "Go", "payload": {"x": 1}}]}
    imported(json.dumps(row))
    assert [row["actions"] for row in listed(cx, bot)] == [[where, when], row["actions"]]


def test_file_without_buttons_keeps_them(cx: Command, bot: str, imported) -> None:
    imported(MENU)
    before = [row["actions"] for row in listed(cx, bot)]
    assert imported("question,answer\nHello?,Look:\n").output == "0 canned answers added, 1 replaced\n"
    assert [(row["answer"], row["actions"]) for row in listed(cx, bot)] == [("Look:", before[0]), ("Here.", [])]
    imported("question,answer,buttons\nHello?,Look:,\n")
    assert [row["actions"] for row in listed(cx, bot)] == [[], []]


def test_another_language_is_another_answer(cx: Command, bot: str, imported) -> None:
    imported(CSV)
    assert imported(CSV.replace(",en", ",en-gb")).output == "1 canned answers added, 1 replaced\n"
    assert len(listed(cx, bot)) == 3


@pytest.mark.parametrize(
    ("content", "error"),
    [
        ("", HEADER),
        ("question\nWhy?", HEADER),
        (
            "question,answer,question\na,b,c",
            HEADER,
        ),
        ("question,answer,x\na,b,c", HEADER),
        (CSV + "Why?\n", "FILE:5: expected 3 values, got 1"),
        (CSV + "Why?,a,b,c\n", "FILE:5: expected 3 values, got 4"),
        (CSV + '"Why?', "FILE:5: unexpected end of data"),
        (CSV + "Why?,,en\n", "FILE:5: answer: expected str of length >= 1"),
        (CSV + "W" * 501 + ",a,en\n", "FILE:5: question: expected str of length <= 500"),
        (CSV + "Why?,Because,x y\n", "FILE:5: language: expected a language tag such as en or pt-BR"),
        (MENU + f"Why?,Because,{'x' * 81}\n", "FILE:6: buttons: a label has 1 to 80 characters"),
        (MENU + 'Why?,Because,"' + "x\n" * 9 + '"\n', "FILE:15: buttons: at most eight are possible"),
        (MENU + "Why?,Because,\a\n", "FILE:6: buttons: a label has no control characters"),
        (JSON_LINES + "[]", "FILE:3: $: expected object"),
        (JSON_LINES + "{", "FILE:3: The body is not JSON: Expecting property name enclosed in double quotes at line 1"),
        (JSON_LINES + '{"question": "Why?"}', "FILE:3: $: object missing required field answer"),
    ],
)
def test_invalid_file_is_reported_and_nothing_imported(
    content: str, error: str, cx: Command, bot: str, imported
) -> None:
    outcome = imported(content)
    assert outcome.status == 1
    assert error in outcome.errors
    assert outcome.errors.endswith("cx-service: nothing was imported\n")
    assert listed(cx, bot) == []


def test_first_twenty_errors_are_reported_in_one_run(imported) -> None:
    lines = imported("question,answer\n" + "a,\n" * 30).errors.splitlines()
    assert len(lines) == 22
    assert lines[19:] == [
        "FILE:21: answer: expected str of length >= 1",
        "and 10 more errors",
        "cx-service: nothing was imported",
    ]


def test_unreadable_file_is_reported(cx: Command, bot: str, imported, tmp_path: Path) -> None:
    missing = tmp_path / "missing"
    outcome = cx("answer", "import", "--bot", bot, str(missing))
    assert error_line(outcome) == f"cannot read {missing}: No such file or directory"
    assert "is not UTF-8: byte 9" in error_line(imported(b"question,\xff"))


def test_standard_input_is_imported(cx: Command, bot: str) -> None:
    outcome = cx("answer", "import", "--bot", bot, "-", typed=CSV.encode())
    assert outcome.output == "2 canned answers added, 0 replaced\n"


def test_thousands_of_answers_are_imported(cx: Command, bot: str, imported) -> None:
    content = "question,answer\n" + "".join(f"Question {number}?,Answer {number}.\n" for number in range(1_234))
    assert imported(content).output == "1,234 canned answers added, 0 replaced\n"
    assert imported(content).output == "0 canned answers added, 1,234 replaced\n"
    assert len(listed(cx, bot)) == 1_234


def test_answers_can_be_added_and_deleted(cx: Command, bot: str) -> None:
    added = cx("answer", "add", "--bot", bot, "Why?", "Because.", "--language", "en").output.strip()
    assert cx("answer", "list", "--bot", bot).output == f"{added}  en     Why?\n"
    assert cx("answer", "delete", added) == Outcome(0, "", "")
    assert cx("answer", "list", "--bot", bot) == Outcome(0, "", "")
    assert error_line(cx("answer", "delete", added)) == f"no such bot answer: {added}"


def test_answer_is_added_with_buttons(cx: Command, bot: str) -> None:
    added = cx("answer", "add", "--bot", bot, "Hello?", "Choose.", "--button", "Where?", "--button", "When?")
    id = added.output.strip()
    assert cx("answer", "list", "--bot", bot).output == f"{id}         Hello?  [Where?]  [When?]\n"
    assert [action["label"] for action in listed(cx, bot)[0]["actions"]] == ["Where?", "When?"]


@pytest.mark.parametrize(
    ("buttons", "error"),
    [
        (["x"] * 9, "buttons: at most eight are possible"),
        (["x" * 81], "buttons: a label has 1 to 80 characters"),
        (["x\ny"], "buttons: a label has no control characters"),
        ([""], "buttons: a label has 1 to 80 characters"),
    ],
)
def test_invalid_buttons_are_refused(buttons: list[str], error: str, cx: Command, bot: str) -> None:
    flags = [word for label in buttons for word in ("--button", label)]
    assert error_line(cx("answer", "add", "--bot", bot, "Hello?", "Choose.", *flags)) == error
    assert listed(cx, bot) == []


@pytest.mark.parametrize("arguments", [("list",), ("add", "Why?", "Because."), ("import", "-")], ids=" ".join)
def test_bot_must_exist(arguments: tuple[str, ...], cx: Command, bot: str) -> None:
    outcome = cx("answer", arguments[0], "--bot", UNKNOWN, *arguments[1:], typed=CSV.encode())
    assert error_line(outcome) == f"no such bot: {UNKNOWN}"


def test_import_is_recorded_in_the_audit_log(bot: str, imported, data: Path) -> None:
    imported(CSV)
    imported("question,answer\n")
    db.open_database(data, settings_at(data).database)
    (entry,) = AuditLog.select().where(AuditLog.kind == "answers_imported")
    assert (entry.actor_id, entry.subject_id, entry.details) == ("operator", bot, '{"added":2,"replaced":0}')

"""`answer`: add, list, import and delete canned answers of bots."""

import argparse
import sys
from pathlib import Path

import msgspec

from service.commands import Stop, add_actions
from service.commands.rows import existing, id_of, open_database, print_row, read_columns
from service.errors import InvalidBody
from service.escape import clean
from service.models import Bot, CannedAnswer
from service.models.actions import labelled
from service.models.audit_log import OPERATOR
from service.models.canned_answers import words_in
from service.operate.answer_import import AnswerErrors, read_answers
from service.routes.canned_answers import NEW_ANSWER
from service.settings import Settings


def add_arguments(_: str, parser: argparse.ArgumentParser) -> None:
    add_action = add_actions(parser, "data", "database")
    add = add_action("add", "add a canned answer to a bot, and print its identifier", add_answer)
    listing = add_action("list", "list the canned answers of a bot", list_answers)
    importing = add_action("import", "import canned answers; with any error, nothing is imported", import_answers)
    for action in (add, listing, importing):
        action.add_argument("--bot", metavar="ID", required=True, help="identifier of the bot")
    add.add_argument("question")
    add.add_argument("answer")
    add.add_argument("--language", metavar="TAG", default="", help="language of question and answer, such as en")
    button = "button that the bot offers with the answer; repeatable, up to eight"
    add.add_argument("--button", metavar="LABEL", action="append", default=[], help=button)
    listing.add_argument("--json", action="store_true", help="print one JSON object per line")
    columns = "CSV with the columns question, answer, language and buttons (labels, one a line)"
    importing.add_argument("file", metavar="FILE", help=f"{columns}, or JSON Lines; - is standard input")
    add_action("delete", "delete a canned answer", delete_answer).add_argument("id")


def add_answer(flags: argparse.Namespace, settings: Settings) -> None:
    """Add a canned answer, and print its identifier."""
    try:
        flags.actions = msgspec.to_builtins(labelled(flags.button))
    except InvalidBody as error:
        raise Stop(str(error).removeprefix("$.")) from None
    columns = read_columns(flags, NEW_ANSWER)
    open_database(settings)
    print(id_of(CannedAnswer.add(existing(Bot, flags.bot).id, columns, OPERATOR)))


def list_answers(flags: argparse.Namespace, settings: Settings) -> None:
    """Print one line per canned answer."""
    open_database(settings)
    own = CannedAnswer.select().where(CannedAnswer.bot_id == existing(Bot, flags.bot).id)
    for answer in own.order_by(CannedAnswer.question, CannedAnswer.id).iterator():
        row = {name: getattr(answer, name) for name in ("id", "bot_id", "language", "question", "answer")}
        buttons = "".join(f"  [{action.label}]" for action in answer.offered)
        print_row(flags, row | {"actions": answer.offered}, f"{answer.language:<5}  {answer.question}{buttons}")


def import_answers(flags: argparse.Namespace, settings: Settings) -> None:
    """Import a file. Prints the number of canned answers."""
    try:
        raw = sys.stdin.buffer.read() if flags.file == "-" else Path(flags.file).read_bytes()
        answers = read_answers(raw.decode(), NEW_ANSWER)
    except OSError as error:
        raise Stop(f"cannot read {flags.file}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise Stop(f"{flags.file} is not UTF-8: byte {error.start}") from None
    except AnswerErrors as errors:
        for line in str(errors).splitlines():
            print(clean(f"{flags.file}:{line}" if line[0].isdigit() else line), file=sys.stderr)
        raise Stop("nothing was imported") from None
    complete = [{"language": ""} | row | {"words": words_in(str(row["question"]))} for row in answers]
    open_database(settings)
    added, replaced = CannedAnswer.add_all(existing(Bot, flags.bot).id, complete, OPERATOR)
    print(f"{added:,} canned answers added, {replaced:,} replaced")


def delete_answer(flags: argparse.Namespace, settings: Settings) -> None:
    """Delete a canned answer."""
    open_database(settings)
    existing(CannedAnswer, flags.id).remove(OPERATOR)

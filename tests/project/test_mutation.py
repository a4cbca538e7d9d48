"""Mutation testing makes the changes that it names, and leaves annotations, f-strings and log lines alone."""

import ast

from tests.mutation import Module, mutants

SOURCE = '''
def first(rows: list[int], limit: int = 3) -> int | None:
    """Größe."""
    log.info("reading %s", 1 < 2)
    if rows and limit > 0:  # a comment
        forget(rows)
        return f"{rows[0]}"
    raise ValueError
'''


def test_mutants_are_modules_with_one_change() -> None:
    found = list(mutants(SOURCE))
    sources = {mutant.source(SOURCE) for mutant in found}
    assert len(sources) == len(found) and SOURCE not in sources
    assert all(ast.parse(source) for source in sources)
    assert all("# a comment" in source and "Größe" in source for source in sources)


def test_conditions_numbers_returns_calls_and_errors_are_changed() -> None:
    changes = [mutant.change for mutant in mutants(SOURCE)]
    expected = ["condition negated", "raises another error", "returns None", "call removed", "And → Or", "Gt → GtE"]
    assert sorted(changes) == sorted([*expected, "Lt → LtE", "0 → 1", "1 → 2", "2 → 3", "3 → 4"])


def test_mutant_is_at_the_line_of_its_expression() -> None:
    lines = SOURCE.splitlines()
    placed = {mutant.change: lines[mutant.line - 1].strip() for mutant in mutants(SOURCE)}
    assert (
        placed.items()
        >= {
            "call removed": "forget(rows)",
            "And → Or": "if rows and limit > 0:  # a comment",
        }.items()
    )


def test_line_that_no_test_executes_is_tried_against_the_tests_of_its_module() -> None:
    module = Module("service/example.py", {3: {"a", "b"}, 5: {"b", "c"}})
    assert module.tests_of(5) == {"b", "c"}
    assert module.tests_of(1) == {"a", "b", "c"}
    assert Module("service/example.py", {}).tests_of(1) == set()


def test_tests_with_the_name_of_the_module_come_first() -> None:
    module = Module("service/models/chats.py", {})
    named = "tests/routes/test_chat_list.py::test_order"
    assert sorted(["tests/db/test_pages.py::test_size", named], key=module.order)[0] == named

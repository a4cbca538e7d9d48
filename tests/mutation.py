"""Mutation testing: small faults are put into a copy of the service, and the fast tests have to find them.

    python -m tests.mutation [--count 20] [--seed 1] [service/db/list_pages.py …]

First, the fast tests run once while coverage.py records the lines that each of them executes. Then, for each module,
`count` random mutants are tried (all, if it has fewer), each against the tests that execute its line, or, if it runs
at import, against those that execute any line of the module: first the tests with the module's name, then the fastest
others, up to MOST. A mutant that no test finds survives, and is listed. The checkout is not changed. The exit status is
1 if a mutant survives.

The record of lines is kept in `build/mutation`, and is made again if a source file or a test has changed.
"""

import argparse
import ast
import copy
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[1]
RECORD = ROOT / "build" / "mutation"
FAST = ("-m", "not slow and not extended")
FIRST, MOST = 15, 600  # tests of the first run, which finds most mutants, and of both
TIMEOUT = 240  # seconds for a run of tests: a mutant that makes them hang is found
LIBRARIES = (
    "argon2",
    "bottle",
    "itsdangerous",
    "msgspec",
    "multipart",
    "passlib.hash",
    "peewee",
    "PIL.Image",
    "pytest",
)

OPERATORS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.And: ast.Or,
    ast.Or: ast.And,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
}


class Mutant(NamedTuple):
    """A change of a module: a range of its source, in bytes, is replaced."""

    line: int
    change: str
    start: int
    end: int
    replacement: str

    def source(self, original: str) -> str:
        """The changed module."""
        encoded = original.encode()
        return (encoded[: self.start] + self.replacement.encode() + encoded[self.end :]).decode()


class Module(NamedTuple):
    """A module of the service, and the tests that execute its lines."""

    path: str  # relative to the checkout
    tests: dict[int, set[str]]  # by line

    def tests_of(self, line: int) -> set[str]:
        """The tests that execute a line; of a line that runs at import, those that execute any line."""
        return self.tests.get(line) or set().union(*self.tests.values())

    def order(self, test: str) -> tuple[bool, float]:
        """Sort tests: first those that are named after the module, then the fastest."""
        name = Path(self.path).stem
        return name.rstrip("s") not in Path(test.partition("::")[0]).stem, seconds.get(test, 0.0)


def changes(node: ast.AST) -> Iterator[tuple[str, ast.expr, ast.expr]]:
    """The possible changes of a node: a description, the expression to replace, and the new one."""
    for name in ("op", "ops"):
        value = getattr(node, name, None)
        first = value[0] if isinstance(value, list) else value
        other = OPERATORS.get(type(first))  # type: ignore[arg-type]
        if other and isinstance(node, ast.expr):
            changed = copy.deepcopy(node)
            setattr(changed, name, [other(), *value[1:]] if isinstance(value, list) else other())
            yield f"{type(first).__name__} → {other.__name__}", node, changed
    if isinstance(node, ast.Constant) and type(node.value) is bool:
        yield f"{node.value} → {not node.value}", node, ast.Constant(not node.value)
    elif isinstance(node, ast.Constant) and type(node.value) is int:
        yield f"{node.value} → {node.value + 1}", node, ast.Constant(node.value + 1)
    elif isinstance(node, ast.If | ast.While | ast.IfExp):
        yield "condition negated", node.test, ast.UnaryOp(ast.Not(), node.test)
    elif isinstance(node, ast.Return) and node.value is not None and not is_constant(node.value, None):
        yield "returns None", node.value, ast.Constant(None)
    elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and not is_logging(node.value):
        yield "call removed", node.value, ast.Constant(None)
    elif isinstance(node, ast.Raise) and node.exc is not None:
        yield "raises another error", node.exc, ast.Name("LookupError", ast.Load())


def is_constant(node: ast.expr, value: object) -> bool:
    return isinstance(node, ast.Constant) and node.value is value


def is_logging(call: ast.Call) -> bool:
    function = call.func
    return isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name) and function.value.id == "log"


def without_runtime_effect(node: ast.AST) -> Iterator[ast.AST]:
    """The parts of a node that are not tried: annotations, and the contents of f-strings, which have no positions."""
    for name in ("annotation", "returns"):
        if (annotation := getattr(node, name, None)) is not None:
            yield annotation
    if isinstance(node, ast.JoinedStr):
        yield node


def mutants(source: str) -> Iterator[Mutant]:
    """All mutants of a module."""
    tree = ast.parse(source)
    starts = [0]
    for text in source.encode().splitlines(keepends=True):
        starts.append(starts[-1] + len(text))
    left_out = {id(part) for node in ast.walk(tree) for left in without_runtime_effect(node) for part in ast.walk(left)}
    for node in ast.walk(tree):
        if id(node) in left_out:
            continue
        for change, old, new in changes(node):
            start = starts[old.lineno - 1] + old.col_offset
            end = starts[(old.end_lineno or 0) - 1] + (old.end_col_offset or 0)
            yield Mutant(old.lineno, change, start, end, f"({ast.unparse(ast.fix_missing_locations(new))})")


def fingerprint() -> str:
    """Change with any source file or test."""
    digest = hashlib.sha256()
    for folder in ("service", "tests"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()


def record_lines() -> None:
    """Run the fast tests, and record which lines each executes; see tests/support/line_record.py."""
    shutil.rmtree(RECORD, ignore_errors=True)
    RECORD.mkdir(parents=True)
    line = [sys.executable, "-m", "pytest", "-q", "-p", "tests.support.line_record", "-n", "auto", *FAST]
    subprocess.run(line, cwd=ROOT, env={**os.environ, "LINE_RECORD": str(RECORD)}, check=True)
    (RECORD / "fingerprint").write_text(fingerprint())


def read_record() -> dict[str, dict[int, set[str]]]:
    """The tests of each line of each file. Also fills `seconds`."""
    from coverage import CoverageData

    for path in RECORD.glob("*.json"):
        seconds.update(json.loads(path.read_text()))
    files: dict[str, dict[int, set[str]]] = {}
    for path in RECORD.glob("lines.*"):
        data = CoverageData(str(path))
        data.read()
        for file in data.measured_files():
            lines = files.setdefault(str(Path(file).relative_to(ROOT)), {})
            for number, tests in data.contexts_by_lineno(file).items():
                lines.setdefault(number, set()).update(test for test in tests if test)
    return files


seconds: dict[str, float] = {}  # of each test
tree = Path()  # of this process: its copy of the checkout


def prepare(folder: str) -> None:
    """Make this process a worker: copy the checkout, and import the libraries that all runs of tests need."""
    global tree
    tree = Path(folder, str(os.getpid()))
    left = shutil.ignore_patterns(".git", "build", "cx-data", ".venv*", ".hypothesis", "node_modules")
    shutil.copytree(ROOT, tree, symlinks=True, ignore=left)
    for name in LIBRARIES:
        __import__(name)
    os.nice(10)
    assert passes(["tests/test_validators.py"]), "the tests fail without a mutant"


def passes(tests: list[str]) -> bool:
    """Whether tests pass in this process's copy of the checkout. They run in a fork, so that libraries are there."""
    process = os.fork()
    if not process:
        try:
            os.setpgid(0, 0)
            sys.dont_write_bytecode = True
            os.chdir(tree)
            sys.path[:] = [str(tree), *(path for path in sys.path if path not in ("", str(ROOT)))]
            for name in [name for name in sys.modules if name.split(".")[0] in ("tests", "service")]:
                del sys.modules[name]
            os.environ.pop("CI", None)
            silent = os.open(os.devnull, os.O_RDWR)
            for descriptor in range(3):
                os.dup2(silent, descriptor)
            import pytest

            status = pytest.main(["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", *FAST, *tests])
            os._exit(int(status))
        finally:
            os._exit(99)
    deadline = time.monotonic() + TIMEOUT
    while time.monotonic() < deadline:
        ended, status = os.waitpid(process, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status) in (0, 5)  # 5: no test was chosen
        time.sleep(0.02)
    os.killpg(process, signal.SIGKILL)
    os.waitpid(process, 0)
    return False


def survives(module: Module, mutant: Mutant) -> bool:
    path, original = tree / module.path, (ROOT / module.path).read_text("utf-8")
    for compiled in path.parent.glob(f"__pycache__/{path.stem}.*.pyc"):
        compiled.unlink()
    path.write_text(mutant.source(original), "utf-8")
    try:
        tests = sorted(module.tests_of(mutant.line), key=module.order)
        return not tests or (passes(tests[:FIRST]) and (not tests[FIRST:] or passes(tests[FIRST:MOST])))
    finally:
        path.write_text(original, "utf-8")


def main() -> int:
    """Try the mutants of the modules that the arguments name, or of all."""
    parser = argparse.ArgumentParser(description="Put small faults into the service, and see whether tests find them.")
    parser.add_argument("modules", nargs="*", type=Path)
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    flags = parser.parse_args()
    recorded = RECORD / "fingerprint"
    if not recorded.exists() or recorded.read_text() != fingerprint():
        record_lines()
    files = read_record()
    tried: dict[str, int] = {}
    survivors: dict[str, int] = {}
    with (
        tempfile.TemporaryDirectory() as folder,
        ProcessPoolExecutor(os.cpu_count(), get_context("fork"), prepare, (folder,)) as workers,
    ):
        runs: dict[Any, tuple[Module, Mutant]] = {}
        for path in flags.modules or sorted((ROOT / "service").rglob("*.py")):
            name = str(path.resolve().relative_to(ROOT))
            module = Module(name, files.get(name, {}))
            possible = list(mutants(path.read_text("utf-8")))
            random.Random(f"{flags.seed} {module.path}").shuffle(possible)
            chosen = sorted(possible[: flags.count])
            runs |= {workers.submit(survives, module, mutant): (module, mutant) for mutant in chosen}
        for run in as_completed(runs):
            module, mutant = runs[run]
            tried[module.path] = tried.get(module.path, 0) + 1
            if run.result():
                survivors[module.path] = survivors.get(module.path, 0) + 1
                covered = "" if any(module.tests.values()) else " (no fast test executes the module)"
                print(f"{module.path}:{mutant.line}: {mutant.change}{covered}", flush=True)
    for path in sorted(survivors):
        print(f"{path}: {survivors[path]} of {tried[path]} survived")
    total, lost = sum(tried.values()), sum(survivors.values())
    print(f"{total - lost} of {total} mutants were found, {lost} survived")
    return int(bool(survivors))


if __name__ == "__main__":
    sys.exit(main())

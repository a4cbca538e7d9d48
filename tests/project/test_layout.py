"""The layout: imports, the length of modules, packaging, and the schema."""

import ast
import configparser
import functools
import io
import re
import statistics
import tokenize

import peewee
import pytest

import service
from service import clock, db
from service.db import migrations
from service.db.migrations import step_2
from service.fields import Text
from service.models import TABLES, Bot
from tests.support import postgres
from tests.support.paths import ROOT
from tests.support.rules import for_each

MODULES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted((ROOT / "service").rglob("*.py"))
}
ORDER = re.findall(r"^    (\w+)/?  ", service.__doc__, re.MULTILINE)
MEDIAN = 120
CORE = ("api.operations", "http.application", "http.endpoints", "api.openapi", "errors.base")


def package_of(module):
    """Return the package of a module: `models` for `service.models.chats`."""
    return module.split(".")[1] if module.startswith("service.") else module


@functools.cache
def parsed(module):
    return ast.parse(MODULES[module].read_text())


def imports(module):
    """Yield the imports of a module: the imported module, and whether the import is inside a function."""
    tree = parsed(module)
    at_top = set(map(id, tree.body))
    for node in ast.walk(tree):
        inside = id(node) not in at_top
        if isinstance(node, ast.Import):
            yield from ((alias.name, inside) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{module} imports relatively"
            for alias in node.names:
                submodule = f"{node.module}.{alias.name}"
                yield (submodule if submodule in MODULES else node.module), inside


def code_lines(path):
    """Return the number of lines with code, without empty lines, comments and docstrings."""
    text = path.read_text()
    ignored = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING}
    lines = {
        line
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type not in ignored | {tokenize.ENDMARKER}
        for line in range(token.start[0], token.end[0] + 1)
    }
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            lines -= set(range(node.lineno, node.end_lineno + 1))
    return len(lines)


def modules(condition=lambda module: True):
    """Run a test with a parameter `module` for all modules that meet a condition (see `for_each`)."""
    return for_each("module", {module: module for module in MODULES if condition(module)})


class TestImports:
    def test_package_docstring_lists_every_package(self):
        assert {package_of(module) for module in MODULES if module != "service"} == set(ORDER)

    @modules(lambda module: module != "service")
    def test_are_of_packages_listed_above_only(self, module):
        above = set(ORDER[: ORDER.index(package_of(module)) + 1])
        for imported, _ in imports(module):
            if imported == "service" or imported.startswith("service."):
                assert package_of(imported) in above, f"{module} imports {imported}"

    @modules(lambda module: module not in ("service.http.application", "service.http.html_pages"))
    def test_of_bottle_are_in_the_application_and_its_pages_only(self, module):
        assert "bottle" not in {imported.partition(".")[0] for imported, _ in imports(module)}

    @modules(lambda module: package_of(module) == "routes" and module != "service.routes")
    def test_of_routes_are_not_in_other_routes(self, module):
        assert "routes" not in {package_of(imported) for imported, _ in imports(module)}

    @modules(lambda module: package_of(module) not in ("routes", "commands"))
    def test_of_routes_and_app_are_in_commands_only(self, module):
        assert not {"service.routes", "app"} & {".".join(name.split(".")[:2]) for name, _ in imports(module)}

    @modules(lambda module: package_of(module) != "commands")
    def test_inside_functions_are_in_commands_or_of_large_libraries_only(self, module):
        assert not [name for name, inside in imports(module) if inside and name.partition(".")[0] in ("service", "app")]

    def test_of_sqlite_are_those_of_peewee(self):
        assert not [module for module in MODULES for name, _ in imports(module) if "sqlite3" in name.split(".")]


class TestModules:
    def test_have_a_short_median_length(self):
        lengths = [len(path.read_text().splitlines()) for path in MODULES.values()]
        assert statistics.median(lengths) < MEDIAN

    @modules()
    def test_have_a_docstring(self, module):
        assert re.match(r"\S.*[.:]", ast.get_docstring(parsed(module)) or "")

    def test_of_the_core_have_few_lines_in_total(self):
        assert sum(code_lines(MODULES[f"service.{name}"]) for name in CORE) < 600

    def test_are_packaged(self):
        setup = configparser.ConfigParser()
        setup.read(ROOT / "setup.cfg")
        packages = set(setup["options"]["packages"].split())
        folders = {module for module, path in MODULES.items() if path.name == "__init__.py"}
        assert packages == folders | {"service.static", "service.templates"}
        assert all((ROOT / folder).is_dir() for folder in ("static", "templates"))


def outline(database):
    """Return tables, columns, keys and indexes of a database, independent of its DDL statements."""
    found = {}
    for table in sorted(set(database.get_tables()) - {"schema_version"}):
        columns = {column.name: (column.null, column.primary_key) for column in database.get_columns(table)}
        references = {key.column: (key.dest_table, key.dest_column) for key in database.get_foreign_keys(table)}
        found[table] = columns, references, indexes(database, table)
    return found


def indexes(database, table):
    """Return the declared indexes of a table: unique or not, columns and condition.

    PostgreSQL returns normalized statements with all of this; SQLite stores the original statements.
    """
    if postgres.is_chosen():
        return {index.name: index.sql for index in database.get_indexes(table)}
    return {
        index.name: (index.unique, index.columns, condition(index.sql))
        for index in database.get_indexes(table)
        if index.sql
    }


def condition(sql):
    """Return the WHERE clause of an index without quotes, spaces, outer parentheses and table name."""
    _, _, where = sql.partition(" WHERE ")
    return re.sub(r'["()\s]|\w+"?\.(?=")', "", where).lower()


class TestTheTests:
    def test_import_helpers_from_support_only(self):
        """No test file imports from another, nor from a conftest.py; test_runs.py tests that file."""
        found = [
            (path.name, line.strip())
            for path in (ROOT / "tests").rglob("*.py")
            for line in path.read_text().splitlines()
            if re.match(r"\s*(from|import) tests\b.*\b(test_\w+|conftest)\b", line)
        ]
        assert found == [("test_runs.py", "from tests import conftest")]


@pytest.mark.database
class TestTheSchema:
    @pytest.fixture
    def declared_database(self, tmp_path):
        """A database created from the models."""
        url = postgres.database_of(tmp_path)
        database = peewee.PostgresqlDatabase(url, prefer_psycopg3=True) if url else peewee.SqliteDatabase(":memory:")
        with database.bind_ctx(TABLES):
            for table in TABLES:
                table.create_table()
            yield database
        database.close()

    def test_of_the_migrations_equals_the_models(self, application, declared_database):
        migrated, declared = outline(db.database), outline(declared_database)
        if postgres.is_chosen():  # its index rows cannot hold long texts; see step 2
            _, _, found = migrated["bot"]
            assert "gin (search_text gin_trgm_ops)" in found.pop("bot_search")
            _, _, expected_indexes = declared["bot"]
            assert f", {step_2.FILTERED})" in expected_indexes["bot_feed"]
            expected_indexes["bot_feed"] = expected_indexes["bot_feed"].replace(f", {step_2.FILTERED})", ")")
            for _, _, found in migrated.values():  # some lists need an index with nulls first; see step 1
                found |= {name: sql.replace(" NULLS FIRST", "") for name, sql in found.items()}
        else:  # the trigram index is stored in tables; see step 5
            trigram_tables = {name for name in migrated if name.startswith(("bot_number", "bot_trigrams"))}
            assert "bot_trigrams" in trigram_tables
            migrated = {name: table for name, table in migrated.items() if name not in trigram_tables}
        assert set(migrated) == set(declared)
        for table, expected in declared.items():
            assert migrated[table] == expected, table

    def test_sorts_texts_by_bytes_on_both_databases(self, application):
        if postgres.is_chosen():
            sql = """SELECT table_name, column_name, collation_name FROM information_schema.columns
                WHERE table_schema = current_schema() AND data_type IN ('text', 'character varying')"""
        else:
            sql = """SELECT tables.name, columns.name, 'C' FROM sqlite_schema AS tables
                JOIN pragma_table_info(tables.name) AS columns
                WHERE columns.type = 'TEXT' AND tables.sql NOT LIKE '%COLLATE%'"""
        found = db.database.execute_sql(sql).fetchall()
        texts = {
            (t._meta.table_name, c.column_name) for t in TABLES for c in t._meta.sorted_fields if isinstance(c, Text)
        }
        assert texts <= {(table, column) for table, column, _ in found}
        assert {collation for *_, collation in found} == {"C"}

    def test_contains_every_model(self):
        assert set(db.Table.__subclasses__()) - set(TABLES) == set()

    def test_is_created_once(self, application):
        before = outline(db.database)
        assert migrations.migrate() == 0
        assert outline(db.database) == before
        assert migrations.version() == len(migrations.STEPS)

    def test_enforces_foreign_keys(self, application):
        with pytest.raises(peewee.IntegrityError):
            Bot.create(app_id=clock.uuid())
        assert Bot.select().count() == 0
        for table in TABLES:
            for column in table._meta.sorted_fields:
                assert not column.refers_to or column.refers_to in db.database.get_tables()

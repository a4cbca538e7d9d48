"""The lay of the land: who imports whom, how long modules are, and that schema and packaging agree with the code."""

import ast
import configparser
import io
import re
import statistics
import tokenize
from pathlib import Path

import peewee
import pytest

import service
from service import clock, db, migrations
from service.fields import Text
from service.migrations import step_2
from service.models import TABLES, Bot
from tests import postgres

ROOT = Path(__file__).parent.parent
MODULES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted((ROOT / "service").rglob("*.py"))
}
ORDER = re.findall(r"^    (\w+)/?  ", service.__doc__, re.MULTILINE)
MEDIAN = 120
CORE = ("operations", "web", "openapi", "errors.general")


def room(module):
    """The part of the package that a module belongs to: `chats` of `service.models.chats` lives in `models`."""
    return module.split(".")[1] if module.startswith("service.") else module


def imports(module):
    """What a module imports, wherever in it: the module's name, and whether it is imported inside a function."""
    tree = ast.parse(MODULES[module].read_text())
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
    """How many lines hold code: no blank ones, comments or docstrings."""
    text = path.read_text()
    silent = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING}
    lines = {
        line
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type not in silent | {tokenize.ENDMARKER}
        for line in range(token.start[0], token.end[0] + 1)
    }
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            lines -= set(range(node.lineno, node.end_lineno + 1))
    return len(lines)


def modules(condition=lambda module: True):
    return pytest.mark.parametrize("module", [module for module in MODULES if condition(module)])


class TestImports:
    def test_the_map_of_the_package_names_every_room(self):
        assert {room(module) for module in MODULES if module != "service"} == set(ORDER)

    @modules(lambda module: module != "service")
    def test_go_upwards_in_the_map_only(self, module):
        above = set(ORDER[: ORDER.index(room(module)) + 1])
        for imported, _ in imports(module):
            if imported == "service" or imported.startswith("service."):
                assert room(imported) in above, f"{module} imports {imported}"

    @modules(lambda module: room(module) != "web")
    def test_of_bottle_stand_in_web_only(self, module):
        assert "bottle" not in {imported.partition(".")[0] for imported, _ in imports(module)}

    @modules(lambda module: room(module) == "routes" and module != "service.routes")
    def test_of_routes_stand_in_no_other_routes(self, module):
        assert "routes" not in {room(imported) for imported, _ in imports(module)}

    @modules(lambda module: room(module) not in ("routes", "commands"))
    def test_of_routes_and_the_door_stand_in_commands_only(self, module):
        assert not {"service.routes", "app"} & {".".join(name.split(".")[:2]) for name, _ in imports(module)}

    @modules(lambda module: room(module) != "commands")
    def test_inside_functions_stand_in_commands_and_for_heavy_libraries_only(self, module):
        assert not [name for name, inside in imports(module) if inside and name.partition(".")[0] in ("service", "app")]

    def test_of_sqlite_go_through_peewee(self):
        assert not [module for module in MODULES for name, _ in imports(module) if "sqlite3" in name.split(".")]


class TestModules:
    def test_are_short_in_the_middle(self):
        lengths = [len(path.read_text().splitlines()) for path in MODULES.values()]
        assert statistics.median(lengths) < MEDIAN

    @modules()
    def test_say_what_lives_in_them(self, module):
        assert re.match(r"\S.*[.:]", ast.get_docstring(ast.parse(MODULES[module].read_text())) or "")

    def test_of_the_core_are_small_together(self):
        assert sum(code_lines(MODULES[f"service.{name}"]) for name in CORE) < 600

    def test_are_packaged(self):
        setup = configparser.ConfigParser()
        setup.read(ROOT / "setup.cfg")
        packages = set(setup["options"]["packages"].split())
        folders = {module for module, path in MODULES.items() if path.name == "__init__.py"}
        assert packages == folders | {"service.static", "service.templates"}
        assert all((ROOT / folder).is_dir() for folder in ("static", "templates"))


def outline(database):
    """Tables, columns, keys and indexes of a database, whatever its statements look like."""
    found = {}
    for table in sorted(set(database.get_tables()) - {"schema_version"}):
        columns = {column.name: (column.null, column.primary_key) for column in database.get_columns(table)}
        references = {key.column: (key.dest_table, key.dest_column) for key in database.get_foreign_keys(table)}
        found[table] = columns, references, indexes(database, table)
    return found


def indexes(database, table):
    """The indexes of a table that were asked for: unique or not, their columns and their condition.

    PostgreSQL tells all of that in statements of its own making; SQLite remembers those that it was given.
    """
    if postgres.is_chosen():
        return {index.name: index.sql for index in database.get_indexes(table)}
    return {
        index.name: (index.unique, index.columns, condition(index.sql))
        for index in database.get_indexes(table)
        if index.sql
    }


def condition(sql):
    """The WHERE of an index without quotes, blanks, outer parentheses or the name of the table."""
    _, _, where = sql.partition(" WHERE ")
    return re.sub(r'["()\s]|\w+"?\.(?=")', "", where).lower()


class TestTheSchema:
    @pytest.fixture
    def modelled(self, tmp_path):
        """A database that has what the models say."""
        url = postgres.database_of(tmp_path)
        database = peewee.PostgresqlDatabase(url, prefer_psycopg3=True) if url else peewee.SqliteDatabase(":memory:")
        with database.bind_ctx(TABLES):
            for table in TABLES:
                table.create_table()
            yield database
        database.close()

    def test_that_migrations_make_is_what_the_models_say(self, application, modelled):
        migrated, declared = outline(db.database), outline(modelled)
        if postgres.is_chosen():  # where a row of an index holds no long texts; see step 2
            _, _, found = migrated["bot"]
            assert "gin (search_text gin_trgm_ops)" in found.pop("bot_search")
            _, _, said = declared["bot"]
            assert f", {step_2.FILTERED})" in said["bot_feed"]
            said["bot_feed"] = said["bot_feed"].replace(f", {step_2.FILTERED})", ")")
            for _, _, found in migrated.values():  # where nulls come first, some lists read no other index; see step 1
                found |= {name: sql.replace(" NULLS FIRST", "") for name, sql in found.items()}
        else:  # where an index of trigrams is kept in tables; see step 5
            beside = {name for name in migrated if name.startswith(("bot_number", "bot_trigrams"))}
            assert "bot_trigrams" in beside
            migrated = {name: made for name, made in migrated.items() if name not in beside}
        assert set(migrated) == set(declared)
        for table, expected in declared.items():
            assert migrated[table] == expected, table

    def test_sorts_texts_by_their_bytes_on_postgresql_as_on_sqlite(self, application):
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

    def test_of_every_model_is_among_the_tables(self):
        assert set(db.Table.__subclasses__()) - set(TABLES) == set()

    def test_is_made_once(self, application):
        before = outline(db.database)
        assert migrations.migrate() == 0
        assert outline(db.database) == before
        assert migrations.version() == len(migrations.STEPS)

    def test_keeps_references_whole(self, application):
        with pytest.raises(peewee.IntegrityError):
            Bot.create(app_id=clock.uuid())
        assert Bot.select().count() == 0
        for table in TABLES:
            for column in table._meta.sorted_fields:
                assert not column.refers_to or column.refers_to in db.database.get_tables()

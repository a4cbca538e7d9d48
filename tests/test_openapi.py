"""The OpenAPI document: well-formed, complete, and true to what the operations declare."""

import json
import re
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from service import openapi
from service.declared_errors import declared_errors
from service.errors import ANYWHERE
from service.fields import members
from service.models import Message, User
from service.routes import operations
from service.shapes import may_be_left_out
from service.signature import Html, Media, Moved
from tests.samples import routes as samples

METHODS = {"get", "put", "post", "delete", "options", "head", "patch", "trace"}
# Identifiers whose form others decide: clients, servers and the systems that records are imported from.
FREE = {
    *("identity_id", "sender_id", "action_id", "action_source_id", "source_event_id", "client_message_id"),
    *("mcp_server_id", "client_id", "install_id"),
}
FAILURE = "#/components/schemas/Failure"
TYPES = {"string", "integer", "number", "boolean", "array", "object", "null"}


@pytest.fixture(scope="module", params=["the service", "the samples"])
def declared(request):
    return list(operations()) if request.param == "the service" else list(samples)


@pytest.fixture(scope="module")
def document(declared):
    """The document as clients read it."""
    return json.loads(msgspec.json.encode(openapi.document(declared, "https://chat.example", pages=True)))


@pytest.fixture(scope="module")
def schemas(document):
    return document["components"]["schemas"]


def walk(part, place="#"):
    """Every object and array of the document with its place."""
    yield place, part
    items = part.items() if isinstance(part, dict) else enumerate(part) if isinstance(part, list) else ()
    for name, member in items:
        yield from walk(member, f"{place}/{name}")


def references(document):
    """Every reference of the document with its place."""
    return ((place, part["$ref"]) for place, part in walk(document) if isinstance(part, dict) and "$ref" in part)


def described(document):
    """Every operation of the document with its path."""
    for path, item in document["paths"].items():
        for method, operation in item.items():
            yield path, method, operation


def answers(operation):
    """The responses of an operation by status, without the one for all others."""
    return {status: answer for status, answer in operation["responses"].items() if status != "default"}


def all_schemas(document):
    """Every schema of the document, at whatever depth."""

    def under(schema, place):
        yield place, schema
        for name in ("properties", "$defs"):
            for member, child in schema.get(name, {}).items():
                yield from under(child, f"{place}.{member}")
        for name in ("anyOf", "allOf", "oneOf", "prefixItems"):
            for number, child in enumerate(schema.get(name, [])):
                yield from under(child, f"{place}/{number}")
        for name in ("items", "additionalProperties"):
            if isinstance(schema.get(name), dict):
                yield from under(schema[name], f"{place}[]")

    for name, schema in document["components"]["schemas"].items():
        yield from under(schema, name)
    for path, method, operation in described(document):
        for parameter in operation["parameters"]:
            yield from under(parameter["schema"], f"{method} {path} {parameter['name']}")
        for part in [*answers(operation).values(), operation.get("requestBody", {})]:
            for content in part.get("content", {}).values():
                yield from under(content["schema"], f"{method} {path}")


class TestTheDocument:
    def test_is_openapi_3_1_by_its_own_schema(self, document):
        import schemathesis  # half a second, for nobody else

        schemathesis.openapi.from_dict(document).validate()

    def test_has_the_members_of_openapi_3_1(self, document):
        assert document["openapi"] == "3.1.0"
        assert set(document) == {"openapi", "info", "servers", "paths", "components"}
        assert document["info"]["title"]
        assert re.fullmatch(r"\d+\.\d+\.\d+", document["info"]["version"])
        assert document["servers"] == [{"url": "https://chat.example"}]

    def test_holds_every_operation_once(self, document, declared):
        shown = {(method.upper(), path) for path, method, _ in described(document)}
        assert shown == {(operation.method, operation.full_path) for operation in declared}
        identifiers = [operation["operationId"] for *_, operation in described(document)]
        assert len(set(identifiers)) == len(identifiers) == len(declared)

    def test_describes_each_operation_with_known_members_only(self, document):
        known = {"operationId", "summary", "tags", "parameters", "responses", "security", "requestBody", "description"}
        for path, method, operation in described(document):
            assert path.startswith("/")
            assert method in METHODS
            assert {name for name in operation if not name.startswith("x-")} <= known
            assert operation["responses"]
            for status, response in answers(operation).items():
                assert re.fullmatch(r"[1-5]\d\d", status)
                assert response["description"]
                assert set(response) <= {"description", "content", "headers", "links"}

    def test_names_every_identifier_of_a_path_as_a_parameter(self, document):
        for path, _, operation in described(document):
            named = [parameter["name"] for parameter in operation["parameters"] if parameter["in"] == "path"]
            assert named == re.findall(r"{(\w+)}", path)

    def test_describes_parameters_completely(self, document):
        for *_, operation in described(document):
            places = [(parameter["in"], parameter["name"]) for parameter in operation["parameters"]]
            assert len(set(places)) == len(places)
            for parameter in operation["parameters"]:
                assert parameter["in"] in ("path", "query", "header")
                assert parameter["in"] != "path" or parameter["required"] is True
                assert parameter["schema"]
                assert {"type": "null"} not in parameter["schema"].get("anyOf", [])
                assert parameter["schema"].get("default") != ""

    def test_resolves_every_reference(self, document):
        found = list(references(document))
        assert found
        for place, reference in found:
            target = document
            for name in reference.removeprefix("#/").split("/"):
                assert name in target, f"{place} leads nowhere: {reference}"
                target = target[name]

    def test_names_components_plainly(self, schemas):
        for name in schemas:
            assert re.fullmatch(r"[A-Za-z]\w*", name)

    def test_leaves_no_component_unused(self, document, schemas):
        used = {reference.rpartition("/")[2] for _, reference in references(document)}
        assert used == {*schemas, *document["components"]["responses"]}

    def test_uses_schemas_that_json_schema_knows(self, document):
        for place, schema in all_schemas(document):
            assert isinstance(schema, dict), place
            assert schema.get("type", "null") in TYPES, place
            for name, expected in {"properties": dict, "required": list, "enum": list, "anyOf": list}.items():
                assert isinstance(schema.get(name, expected()), expected), place
            assert set(schema.get("required", [])) <= set(schema.get("properties", {})), place
            re.compile(schema.get("pattern", ""))

    def test_gives_every_closed_list_of_words_a_type(self, document):
        for place, schema in all_schemas(document):
            if "enum" in schema or "const" in schema:
                words = schema.get("enum", [schema.get("const")])
                assert schema["type"] == {str: "string", bool: "boolean"}[type(words[0])], place

    def test_tells_of_defaults_in_bodies_in_words(self, schemas):
        """Generators for TypeScript take a member with a default for a required one."""
        for name, schema in schemas.items():
            assert "default" not in json.dumps(schema.get("properties", {})), name

    def test_holds_no_number_that_javascript_rounds(self, document):
        for place, part in walk(document):
            assert not isinstance(part, int | float) or abs(part) < 2**53, place

    def test_leaves_no_answer_unspecified(self, document, declared):
        for path, method, operation in described(document):
            [one] = [o for o in declared if (o.method.lower(), o.full_path) == (method, path)]
            content = operation["responses"][str(one.status)]["content"]
            if one.data in (Html, Media, Moved):
                assert content == {one.produces: {"schema": {} if one.data is Media else {"type": "string"}}}
                continue
            if one.is_bare:
                assert content["application/json"]["schema"]["$ref"]
                continue
            envelope = content["application/json"]["schema"]
            assert envelope["properties"]["success"] == {"type": "boolean", "const": True}
            assert envelope["properties"]["data"]
            assert set(envelope["required"]) == set(envelope["properties"])
            assert tuple(envelope["properties"].get("meta", {}).get("properties", ())) == one.meta

    def test_gives_every_error_the_envelope_of_failure_and_the_codes_of_its_operation(self, document, declared):
        by_name = {operation.name: operation for operation in declared}
        for *_, operation in described(document):
            one = by_name[operation["operationId"]]
            for status, response in answers(operation).items():
                if status >= "400" and one.is_bare:
                    [content] = response["content"].values()
                    assert set(content["schema"]["properties"]) == {"error", "error_description"}
                elif status >= "400":
                    is_page = one.is_page and status == "400"
                    [content] = response["content"].values()
                    assert content["schema"] == ({"type": "string"} if is_page else {"$ref": FAILURE})
                    listed = re.findall(r"^- `(\w+)`: [A-Z].+\.$", response["description"], re.MULTILINE)
                    assert listed == sorted(kind.code for kind in declared_errors(one).get(int(status), ()))

    def test_tells_of_limits_and_faults_once_for_all_operations(self, document):
        otherwise = document["components"]["responses"]["Otherwise"]
        assert otherwise["content"]["application/json"]["schema"] == {"$ref": "#/components/schemas/Failure"}
        for kind in ANYWHERE:
            assert kind.code in otherwise["description"]
        for *_, operation in described(document):
            assert operation["responses"]["default"] == {"$ref": "#/components/responses/Otherwise"}

    def test_names_the_headers_that_a_client_may_act_upon(self, document, declared):
        always = {"401": {"WWW-Authenticate"}, "503": {"Retry-After"}}
        for one in declared:
            shown = answers(document["paths"][one.full_path][one.method.lower()])
            sometimes = {"Idempotency-Replayed"} if one.status == 201 else set()
            sometimes |= {"X-Request-Warning"} if one.is_lenient and (one.query or one.body) else set()
            sometimes |= {"ETag"} if 304 in one.statuses else set()
            for status, answer in shown.items():
                named = {name: header["required"] for name, header in answer.get("headers", {}).items()}
                expected = sometimes if status == str(one.status) else always.get(status, set())
                assert named == dict.fromkeys(expected, status in always)

    def test_tells_what_a_body_may_be(self, document, declared):
        for one in declared:
            if one.body:
                body = document["paths"][one.full_path][one.method.lower()]["requestBody"]
                [(kind, content)] = body["content"].items()
                assert kind == one.accepts
                assert content["schema"]
                assert body["required"] is not may_be_left_out(one.body)


class TestTheServicesDocument:
    @pytest.fixture
    def shown(self):
        return openapi.document(operations())

    @pytest.mark.parametrize("table", [Message, User])
    def test_describes_a_resource_as_its_table_does(self, shown, table):
        schema = shown["components"]["schemas"][table.__name__]
        assert list(schema["properties"]) == list(members(table))
        assert set(schema["required"]) == set(members(table))
        assert schema["additionalProperties"] is False
        assert not {"password_hash", "is_disabled", "settings"} & set(schema["properties"])

    def test_shows_defaults_and_limits_of_parameters(self, shown):
        listed = shown["paths"]["/api/v1/chats/{id}/messages"]["get"]["parameters"]
        by_name = {parameter["name"]: parameter for parameter in listed}
        assert by_name["limit"]["schema"] == {"type": "integer", "minimum": 1, "maximum": 200, "default": 50}
        words = {"type": "string", "enum": ["backward", "forward"]}
        assert by_name["direction"]["schema"] == {**words, "default": "forward"}
        assert by_name["cursor"]["schema"] == {"type": "string"}

    def test_offers_idempotency_keys_where_something_is_created(self):
        shown = openapi.document(samples)["paths"]
        names = {parameter["name"] for parameter in shown["/api/v1/apps"]["post"]["parameters"]}
        assert "Idempotency-Key" in names
        assert not shown["/api/v1/everything"]["put"]["parameters"]

    def test_says_which_texts_are_moments_and_identifiers(self, shown):
        found = 0
        for place, schema in all_schemas(shown):
            kinds = [part for part in [schema, *schema.get("anyOf", [])] if part.get("type") == "string"]
            name = re.split(r"[. ]", place)[-1]
            for kind in kinds:
                if name.endswith("_at") or name in ("muted_until", "before"):
                    formats = {kind.get("format"), *(part.get("format") for part in kind.get("anyOf", []))}
                    assert "date-time" in formats, place
                    found += 1
                if (name == "id" or name.endswith("_id")) and name not in FREE:
                    assert kind.get("format") == "uuid" or "0-9A-HJKMNP-TV-Z" in kind.get("pattern", ""), place
                    found += 1
        assert found

    def test_tells_of_the_defaults_of_a_message(self, shown):
        members = shown["components"]["schemas"]["NewMessage"]["properties"]
        assert members["is_private"] == {"type": "boolean", "description": "Default: false."}

    def test_leaves_pages_for_people_out(self, shown):
        paths = {path for path, *_ in described(shown)}
        assert not [path for path in paths if path.startswith("/console") or path in ("/", "/sign-in", "/docs")]
        assert {"/api/v1/auth/cli/authorize", "/docs/openapi.json", "/avatars/{name}"} <= paths
        names = {operation["operationId"] for *_, operation in described(shown)}
        assert names == {one.name for one in operations() if not one.is_page or not one.extension}

    def test_is_what_the_command_prints(self, tmp_path):
        asked = [sys.executable, "app.py", "openapi", "--data", str(tmp_path)]
        root = Path(__file__).parent.parent
        printed = subprocess.run(asked, cwd=root, check=True, capture_output=True).stdout
        assert json.loads(printed) == json.loads(msgspec.json.encode(openapi.document(operations())))
        assert not list(tmp_path.iterdir())

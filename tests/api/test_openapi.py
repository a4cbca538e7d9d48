"""The OpenAPI document: it is valid, complete, and equal to the declarations of the operations."""

import json
import re
import subprocess
import sys

import msgspec
import pytest

from service.api import openapi
from service.api.declared_errors import declared_errors
from service.api.event_stream import EventStream
from service.api.parameter_types import Download, HtmlPage, Media, Redirect
from service.api.schemas import may_be_left_out
from service.errors import COMMON_ERRORS
from service.fields import members
from service.models import Message, User
from service.routes import operations
from tests.support.paths import ROOT
from tests.support.sample_operations import routes as samples

METHODS = {"get", "put", "post", "delete", "options", "head", "patch", "trace"}
# Identifiers whose format is chosen by clients, servers, and the systems that records are imported from.
FOREIGN_IDENTIFIERS = {
    *("Action.id", "identity_id", "sender_id", "action_id", "action_source_id", "source_event_id", "client_message_id"),
    *("mcp_server_id", "client_id", "install_id", "RpcMessage.id", "RpcReply.id"),
}
FAILURE = "#/components/schemas/Failure"
TYPES = {"string", "integer", "number", "boolean", "array", "object", "null"}


@pytest.fixture(scope="module", params=["the service", "the samples"])
def declared(request):
    return list(operations()) if request.param == "the service" else list(samples)


@pytest.fixture(scope="module")
def document(declared):
    """The document as clients receive it."""
    return json.loads(msgspec.json.encode(openapi.document(declared, "https://chat.example", pages=True)))


@pytest.fixture(scope="module")
def schemas(document):
    return document["components"]["schemas"]


def walk(part, place="#"):
    """Yield every value of the document with its JSON pointer."""
    yield place, part
    items = part.items() if isinstance(part, dict) else enumerate(part) if isinstance(part, list) else ()
    for name, member in items:
        yield from walk(member, f"{place}/{name}")


def references(document):
    """Yield every reference of the document with its JSON pointer."""
    return ((place, part["$ref"]) for place, part in walk(document) if isinstance(part, dict) and "$ref" in part)


def document_operations(document):
    """Yield the path, method and object of every operation of the document."""
    for path, item in document["paths"].items():
        for method, operation in item.items():
            yield path, method, operation


def responses_by_status(operation):
    """Return the responses of an operation by status, without `default`."""
    return {status: response for status, response in operation["responses"].items() if status != "default"}


def all_schemas(document):
    """Yield every schema of the document, at any depth."""

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
    for path, method, operation in document_operations(document):
        for parameter in operation["parameters"]:
            yield from under(parameter["schema"], f"{method} {path} {parameter['name']}")
        for part in [*responses_by_status(operation).values(), operation.get("requestBody", {})]:
            for content in part.get("content", {}).values():
                yield from under(content["schema"], f"{method} {path}")


class TestTheDocument:
    @pytest.mark.slow
    def test_is_valid_openapi_3_1(self, document):
        import schemathesis  # takes half a second to import

        schemathesis.openapi.from_dict(document).validate()

    def test_has_the_members_of_openapi_3_1(self, document):
        assert document["openapi"] == "3.1.0"
        assert set(document) == {"openapi", "info", "servers", "paths", "components"}
        assert document["info"]["title"]
        assert re.fullmatch(r"\d+\.\d+\.\d+", document["info"]["version"])
        assert document["servers"] == [{"url": "https://chat.example"}]

    def test_contains_every_operation_once(self, document, declared):
        shown = {(method.upper(), path) for path, method, _ in document_operations(document)}
        assert shown == {(operation.method, operation.full_path) for operation in declared}
        identifiers = [operation["operationId"] for *_, operation in document_operations(document)]
        assert len(set(identifiers)) == len(identifiers) == len(declared)

    def test_operations_have_standard_members_only(self, document):
        known = {"operationId", "summary", "tags", "parameters", "responses", "security", "requestBody", "description"}
        for path, method, operation in document_operations(document):
            assert path.startswith("/")
            assert method in METHODS
            assert {name for name in operation if not name.startswith("x-")} <= known
            assert operation["responses"]
            for status, response in responses_by_status(operation).items():
                assert re.fullmatch(r"[1-5]\d\d", status)
                assert response["description"]
                assert set(response) <= {"description", "content", "headers", "links"}

    def test_declares_every_identifier_of_a_path_as_a_parameter(self, document):
        for path, _, operation in document_operations(document):
            named = [parameter["name"] for parameter in operation["parameters"] if parameter["in"] == "path"]
            assert named == re.findall(r"{(\w+)}", path)

    def test_describes_parameters_completely(self, document):
        for *_, operation in document_operations(document):
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
                assert name in target, f"{place} does not resolve: {reference}"
                target = target[name]

    def test_component_names_are_identifiers(self, schemas):
        for name in schemas:
            assert re.fullmatch(r"[A-Za-z]\w*", name)

    def test_has_no_unused_components(self, document, schemas):
        used = {reference.rpartition("/")[2] for _, reference in references(document)}
        assert used == {*schemas, *document["components"]["responses"]}

    def test_schemas_are_valid_json_schema(self, document):
        for place, schema in all_schemas(document):
            assert isinstance(schema, dict), place
            assert schema.get("type", "null") in TYPES, place
            for name, expected in {"properties": dict, "required": list, "enum": list, "anyOf": list}.items():
                assert isinstance(schema.get(name, expected()), expected), place
            assert set(schema.get("required", [])) <= set(schema.get("properties", {})), place
            re.compile(schema.get("pattern", ""))

    def test_every_enum_has_a_type(self, document):
        for place, schema in all_schemas(document):
            if "enum" in schema or "const" in schema:
                words = schema.get("enum", [schema.get("const")])
                assert schema["type"] == {str: "string", bool: "boolean"}[type(words[0])], place

    def test_defaults_in_bodies_are_in_descriptions_only(self, schemas):
        """TypeScript generators make a member with a default required."""
        for name, schema in schemas.items():
            assert "default" not in json.dumps(schema.get("properties", {})), name

    def test_has_no_number_that_javascript_rounds(self, document):
        for place, part in walk(document):
            assert not isinstance(part, int | float) or abs(part) < 2**53, place

    def test_every_response_has_a_schema(self, document, declared):
        for path, method, operation in document_operations(document):
            [one] = [o for o in declared if (o.method.lower(), o.full_path) == (method, path)]
            content = operation["responses"][str(one.status)]["content"]
            if one.data in (Download, EventStream, HtmlPage, Media, Redirect):
                assert content == {
                    one.produces: {"schema": {} if one.data in (Download, Media) else {"type": "string"}}
                }
                continue
            if one.is_bare:
                assert content["application/json"]["schema"]["$ref"]
                continue
            envelope = content["application/json"]["schema"]
            assert envelope["properties"]["success"] == {"type": "boolean", "const": True}
            assert envelope["properties"]["data"]
            assert set(envelope["required"]) == set(envelope["properties"])
            assert tuple(envelope["properties"].get("meta", {}).get("properties", ())) == one.meta

    def test_errors_have_the_envelope_and_list_the_codes_of_the_operation(self, document, declared):
        by_name = {operation.name: operation for operation in declared}
        for *_, operation in document_operations(document):
            one = by_name[operation["operationId"]]
            for status, response in responses_by_status(operation).items():
                if status >= "400" and one.is_oauth:
                    [content] = response["content"].values()
                    assert set(content["schema"]["properties"]) == {"error", "error_description"}
                elif status in ("400", "404") and one.is_bare:  # errors of JSON-RPC
                    assert response["content"] == operation["responses"][str(one.status)]["content"]
                elif status >= "400":
                    is_page = one.is_page and status == "400"
                    [content] = response["content"].values()
                    assert content["schema"] == ({"type": "string"} if is_page else {"$ref": FAILURE})
                    listed = re.findall(r"^- `(\w+)`: [A-Z].+\.$", response["description"], re.MULTILINE)
                    assert listed == sorted(kind.code for kind in declared_errors(one).get(int(status), ()))

    def test_common_errors_are_in_one_shared_response(self, document):
        otherwise = document["components"]["responses"]["Otherwise"]
        assert otherwise["content"]["application/json"]["schema"] == {"$ref": "#/components/schemas/Failure"}
        for kind in COMMON_ERRORS:
            assert kind.code in otherwise["description"]
        for *_, operation in document_operations(document):
            assert operation["responses"]["default"] == {"$ref": "#/components/responses/Otherwise"}

    def test_response_headers_for_clients_are_declared(self, document, declared):
        always = {"401": {"WWW-Authenticate"}, "503": {"Retry-After"}}
        for one in declared:
            shown = responses_by_status(document["paths"][one.full_path][one.method.lower()])
            sometimes = {"Idempotency-Replayed"} if one.is_repeatable else set()
            sometimes |= {"X-Request-Warning"} if one.is_lenient and (one.query or one.body) else set()
            sometimes |= {"ETag"} if 304 in one.all_statuses else set()
            for status, response in shown.items():
                named = {name: header["required"] for name, header in response.get("headers", {}).items()}
                expected = sometimes if status == str(one.status) else always.get(status, set())
                assert named == dict.fromkeys(expected, status in always)

    def test_request_bodies_have_a_content_type_and_a_schema(self, document, declared):
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
    def test_resource_schema_equals_its_table(self, shown, table):
        schema = shown["components"]["schemas"][table.__name__]
        assert list(schema["properties"]) == list(members(table))
        assert set(schema["required"]) == set(members(table))
        assert schema["additionalProperties"] is False
        assert not {"password_hash", "is_disabled", "settings"} & set(schema["properties"])

    def test_parameters_have_defaults_and_limits(self, shown):
        listed = shown["paths"]["/api/v1/chats/{id}/messages"]["get"]["parameters"]
        schemas = {parameter["name"]: parameter["schema"] for parameter in listed}
        assert all(schema.pop("description") for schema in schemas.values())
        assert schemas["limit"] == {"type": "integer", "minimum": 1, "maximum": 200, "default": 50}
        assert schemas["direction"] == {"type": "string", "enum": ["backward", "forward"], "default": "forward"}
        assert schemas["cursor"] == {"type": "string"}

    def test_operations_that_create_rows_accept_an_idempotency_key(self):
        shown = openapi.document(samples)["paths"]
        names = {parameter["name"] for parameter in shown["/api/v1/sample-apps"]["post"]["parameters"]}
        assert "Idempotency-Key" in names
        assert not shown["/api/v1/everything"]["put"]["parameters"]

    def test_timestamps_and_identifiers_have_a_format(self, shown):
        found = 0
        for place, schema in all_schemas(shown):
            kinds = [part for part in [schema, *schema.get("anyOf", [])] if part.get("type") == "string"]
            name = re.split(r"[. ]", place)[-1]
            for kind in kinds:
                if name.endswith("_at") or name in ("muted_until", "before"):
                    formats = {kind.get("format"), *(part.get("format") for part in kind.get("anyOf", []))}
                    assert "date-time" in formats, place
                    found += 1
                if (name == "id" or name.endswith("_id")) and not {name, place} & FOREIGN_IDENTIFIERS:
                    assert kind.get("format") == "uuid" or "0-9A-HJKMNP-TV-Z" in kind.get("pattern", ""), place
                    found += 1
        assert found

    def test_defaults_of_a_message_are_in_descriptions(self, shown):
        members = shown["components"]["schemas"]["NewMessage"]["properties"]
        assert members["is_private"] == {"type": "boolean", "description": "Default: false."}

    def test_does_not_contain_html_pages(self, shown):
        paths = {path for path, *_ in document_operations(shown)}
        assert not [path for path in paths if path.startswith("/console") or path in ("/", "/sign-in", "/docs")]
        assert {"/api/v1/auth/cli/authorize", "/docs/openapi.json", "/avatars/{name}"} <= paths
        names = {operation["operationId"] for *_, operation in document_operations(shown)}
        assert names == {one.name for one in operations() if not one.accepts_cookie or not one.extension}

    def test_contains_html_pages_on_request(self, anyone):
        described = anyone.get("//docs/openapi.json?pages=true").json
        names = {operation["operationId"] for *_, operation in document_operations(described)}
        assert names == {one.name for one in operations()}

    def test_equals_the_output_of_the_command(self, tmp_path):
        command = [sys.executable, "app.py", "openapi", "--data", str(tmp_path)]
        printed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True).stdout
        assert json.loads(printed) == json.loads(msgspec.json.encode(openapi.document(operations())))
        assert not list(tmp_path.iterdir())

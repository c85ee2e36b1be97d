"""Whether a call's arguments fit their schema."""

import warnings
from typing import Any

import pytest
from msgspec import json

from edge_api.resume.arguments import fits, schemas
from edge_api.resume.demand import read

POINT = {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"], "additionalProperties": False}


def tool(name: str, parameters: Any, **more: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "parameters": parameters, **more}}


def found(*tools: Any, choice: Any = "auto") -> dict[str, Any]:
    return schemas(read(json.encode({"messages": [], "tools": list(tools), "tool_choice": choice})))


def test_strict_tools_are_checked() -> None:
    assert found(tool("f", POINT, strict=True), tool("g", POINT)) == {"f": POINT}


def test_all_are_checked_where_a_call_must_come() -> None:
    assert found(tool("f", POINT), choice="required") == {"f": POINT}


@pytest.mark.parametrize("odd", [
    tool("f", None, strict=True), {"type": "web_search"}, "f", tool("f", {"patternProperties": {"(a+)+$": {}}}),
    tool("f", {"$defs": {"a": {}}, "allOf": [{"$ref": "#/$defs/a"}]}), tool("f", {"title": "x" * 40_000}),
])
def test_a_tool_that_cannot_be_checked_is_not(odd: Any) -> None:
    assert found(odd, choice="required") == {}


@pytest.mark.parametrize(("arguments", "good"), [
    ('{"x": 1}', True), ('{"x": "1"}', False), ("{}", False), ('{"x": 1, "y": 2}', False), ('{"x": 1', False),
    ("", False), ("5", False),
])
def test_arguments_fit_or_do_not(arguments: str, good: bool) -> None:
    assert fits(POINT, arguments) is good


def test_an_escaped_reference_is_not_overlooked() -> None:
    body = json.encode({"messages": [], "tools": [tool("f", {"$ref": "#"})], "tool_choice": "required"})
    assert schemas(read(body.replace(b"$ref", b"\\u0024ref"))) == {}


def test_a_reference_within_the_schema_is_followed() -> None:
    schema = {"$defs": {"p": POINT}, "type": "object", "properties": {"p": {"$ref": "#/$defs/p"}}}
    assert fits(schema, '{"p": {"x": 1}}')
    assert not fits(schema, '{"p": {}}')


@pytest.mark.parametrize("schema", [
    {"$ref": "http://127.0.0.1:1/never"}, {"$ref": "#/nowhere"}, {"type": "odd"}, {"type": 5},
    {"$ref": "#"}, {"properties": 5}, {"required": 5}, True,
])
def test_a_schema_that_cannot_be_understood_fits_all_and_asks_nobody(schema: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert fits(schema, '{"x": 1}')


def test_a_clients_pattern_is_never_run() -> None:
    assert fits({"properties": {"x": {"pattern": "^(a+)+$"}}}, json.encode({"x": "a" * 64 + "b"}).decode())

"""OpenRouter's definition of a wrong tool call, case by case, and schemas that are made to hurt."""

from typing import Any

import pytest
from msgspec import Raw, json

from edge_api.tool_calls.verdict import Called, Case, Verdict, judge

CITY: dict[str, Any] = {
    "type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer", "minimum": 1}},
    "required": ["city"], "additionalProperties": False}
FINE, WRONG = Verdict.FINE, Verdict.WRONG
NO_SCHEMA = object()


def tool(name: str, schema: Any = NO_SCHEMA) -> dict[str, Any]:
    function = {"name": name} if schema is NO_SCHEMA else {"name": name, "parameters": schema}
    return {"type": "function", "function": function}


def verdict(tools: list[dict[str, Any]], *calls: tuple[str, str]) -> Verdict:
    return judge(Case([Raw(json.encode(one)) for one in tools], [Called(*call) for call in calls]))


def of_schema(schema: Any, arguments: str = "{}") -> Verdict:
    return verdict([tool("f", schema)], ("f", arguments))


WEATHER = [tool("weather", CITY), tool("ping")]
TABLE = {
    "arguments that fit": (FINE, [("weather", '{"city": "Paris", "days": 2}')]),
    "arguments that are cut off": (WRONG, [("weather", '{"city": "Par')]),
    "no arguments at all, which is not JSON": (WRONG, [("ping", "")]),
    "a tool that was not offered": (WRONG, [("Weather", '{"city": "Paris"}')]),
    "a required property that is missing": (WRONG, [("weather", '{"days": 2}')]),
    "a property of another type": (WRONG, [("weather", '{"city": ["Paris"]}')]),
    "a property that is not allowed": (WRONG, [("weather", '{"city": "Paris", "unit": "C"}')]),
    "a tool without a schema, which any JSON fits": (FINE, [("ping", "[1]")]),
    "one wrong call among good ones": (WRONG, [("ping", "{}"), ("weather", "{}"), ("ping", "{}")]),
    "markup, quotes, newlines and emoji in a string": (FINE, [("weather", json.encode(
        {"city": 'a<b> & "q" \\ \n\t 😀 é  </tool_call>'}).decode())]),
}


@pytest.mark.parametrize("case", TABLE)
def test_the_definition_case_by_case(case: str) -> None:
    expected, calls = TABLE[case]
    assert verdict(WEATHER, *calls) is expected


def test_an_answer_without_a_call_has_no_wrong_one() -> None:
    assert verdict(WEATHER) is FINE


@pytest.mark.parametrize("arguments", ["NaN", '{"x": Infinity}', '{"x": 1,}', "{'x': 1}", '{"x": "a\nb"}', "{} {}"])
def test_what_python_or_javascript_would_take_is_not_json(arguments: str) -> None:
    assert of_schema(NO_SCHEMA, arguments) is WRONG


@pytest.mark.parametrize("arguments", [' {"x": 1}\n', '{"x": "\\ud83d"}', '{"x": 1, "x": 2}', '"text"', "null"])
def test_json_is_json_however_odd(arguments: str) -> None:
    assert of_schema(NO_SCHEMA, arguments) is FINE


@pytest.mark.parametrize(("schema", "arguments"), [
    ({"type": "integer"}, "1.0"),  # a whole number, since Draft 6
    ({"exclusiveMinimum": 1}, "2"),  # a number, since Draft 6
    ({"if": {"required": ["a"]}, "then": {"required": ["b"]}}, '{"a": 1, "b": 1}'),
    ({"items": [{"type": "string"}, {"type": "number"}]}, '["a", 1]'),
    ({"definitions": {"s": {"type": "string"}}, "$ref": "#/definitions/s", "type": "null"}, '"beside a $ref"'),
    ({"dependentRequired": {"a": ["b"]}}, '{"a": 1}'),  # unknown before 2019-09
    ({"$schema": "https://json-schema.org/draft/2020-12/schema", "prefixItems": [{"type": "string"}]}, "[1]"),
])
def test_schemas_are_read_as_draft_7(schema: Any, arguments: str) -> None:
    assert of_schema(schema, arguments) is FINE


@pytest.mark.parametrize(("schema", "arguments"), [
    ({"exclusiveMinimum": 1}, "1"), ({"if": {"required": ["a"]}, "then": {"required": ["b"]}}, '{"a": 1}'),
    ({"items": [{"type": "string"}]}, "[1]"), ({"const": 1}, "2"), (False, "{}"), ({"pattern": "^a+$"}, '"b"'),
    ({"definitions": {"s": {"type": "string"}}, "$ref": "#/definitions/s"}, "1"),
])
def test_what_draft_7_forbids_is_wrong(schema: Any, arguments: str) -> None:
    assert of_schema(schema, arguments) is WRONG


@pytest.mark.parametrize("schema", [
    None, [], "object", 3, {"type": "nonsense"}, {"properties": 3}, {"pattern": "("}, {"multipleOf": 0},
    {"required": "city"}, {"properties": {"a": {"$ref": 3}}},
])
def test_a_schema_that_cannot_be_compiled_fits_everything(schema: Any) -> None:
    assert of_schema(schema, '{"a": 1}') is FINE


@pytest.mark.parametrize("schema", [
    {"$ref": "#"}, {"$ref": "#/definitions/gone"}, {"$ref": "http://127.0.0.1:1/schema"}, {"$ref": "file:///etc/passwd"},
    {"$id": "http://127.0.0.1:1/", "$ref": "other"}, {"allOf": [{"$ref": "#/definitions/a"}],
                                                      "definitions": {"a": {"allOf": [{"$ref": "#/definitions/a"}]}}},
])
def test_references_into_nowhere_or_for_ever_fit_everything(schema: Any) -> None:
    assert of_schema(schema) is FINE


def test_a_schema_may_refer_to_the_standard_itself() -> None:
    schema = {"$ref": "http://json-schema.org/draft-07/schema#"}
    assert (of_schema(schema, '{"type": "object"}'), of_schema(schema, '{"type": "nonsense"}')) == (FINE, WRONG)


def test_a_schema_that_is_too_deep_fits_everything() -> None:
    schema: dict[str, Any] = {}
    for _ in range(400):
        schema = {"not": schema}
    assert of_schema(schema) is FINE


@pytest.mark.parametrize("arguments", ["[" * 100_000, "1" * 5_000])
def test_json_that_is_too_much_to_read_is_not_judged(arguments: str) -> None:
    assert of_schema(NO_SCHEMA, arguments) is Verdict.UNJUDGED


def test_a_wrong_name_needs_no_schema() -> None:
    assert verdict([], ("f", "{}")) is WRONG


@pytest.mark.parametrize("odd", [{"type": "custom", "custom": {"name": "f"}}, {"function": 3}, {}])
def test_a_tool_of_another_kind_offers_no_function(odd: dict[str, Any]) -> None:
    assert verdict([odd, tool("g")], ("f", "{}")) is WRONG
    assert verdict([odd, tool("g")], ("g", "{}")) is FINE


def test_tools_of_one_name_differ_by_request() -> None:
    """Compiled schemas are kept by what they say, not by name."""
    assert (of_schema({"type": "string"}, "1"), of_schema({"type": "integer"}, "1")) == (WRONG, FINE)


def test_a_large_schema_is_judged_as_well() -> None:
    large = {**CITY, "description": "x" * 100_000}
    assert (of_schema(large, '{"city": "a"}'), of_schema(large, "{}")) == (FINE, WRONG)

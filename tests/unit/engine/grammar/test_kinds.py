"""The grammars that are made of what requests ask for, and the tags that are made of their tools."""

import json
from typing import Any

import pytest
from pydantic import JsonValue

from engine.grammar.binding import GrammarRefused
from engine.grammar.kinds import Kind, ebnf_of
from engine.grammar.matcher import Matcher
from engine.grammar.tools import ToolUse, structural_tag

ARGUMENTS = {"type": "object", "properties": {"to": {"type": "integer"}}, "required": ["to"]}
TOOLS = [{"type": "function", "function": {"name": name, "description": "x", "parameters": ARGUMENTS}}
         for name in ("scale", "stop")]
NAMED = {"type": "function", "function": {"name": "scale"}}
SCHEMA: JsonValue = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}


def fits(kind: Kind, value: JsonValue, text: str) -> bool:
    matcher = Matcher(ebnf_of(kind, value))
    return matcher.take(text) and matcher.is_complete


@pytest.mark.parametrize(("kind", "value", "text", "other"), [
    (Kind.JSON_SCHEMA, SCHEMA, '{"a": 1}', '{"b": 1}'),
    (Kind.JSON_SCHEMA, json.dumps(SCHEMA), '{"a":1}', '{"a":"x"}'),
    (Kind.JSON_SCHEMA, True, "[1]", "x"),
    (Kind.JSON_OBJECT, None, '{"any": [1]}', "[1]"),
    (Kind.REGEX, "a+b?", "aab", "b"),
    (Kind.EBNF, 'root ::= "x"', "x", "y"),
    (Kind.CHOICE, ["yes", 'n"o', "é"], 'n"o', "no"),
    (Kind.STRUCTURAL_TAG, {"type": "structural_tag", "format": {"type": "const_string", "value": "x"}}, "x", "y"),
    (Kind.TOOLS, {"parser": "hermes", "tools": TOOLS, "tool_choice": "required"},
     '<tool_call>\n{"name": "stop", "arguments": {"to": 3}}\n</tool_call>', "no call"),
])
def test_each_kind_takes_its_texts(kind: Kind, value: JsonValue, text: str, other: str) -> None:
    assert fits(kind, value, text)
    assert not fits(kind, value, other)


@pytest.mark.parametrize(("kind", "value"), [
    (Kind.JSON_SCHEMA, None), (Kind.JSON_SCHEMA, "{"), (Kind.JSON_SCHEMA, {"type": "nonsense"}), (Kind.REGEX, "("),
    (Kind.REGEX, 3), (Kind.EBNF, "SECRETPROMPT"), (Kind.CHOICE, []), (Kind.CHOICE, [1]), (Kind.CHOICE, "yes"),
    (Kind.TOOLS, {"parser": "nobody", "tools": TOOLS}), (Kind.TOOLS, {"parser": "hermes", "tools": []}),
    (Kind.STRUCTURAL_TAG, {"type": "SECRETPROMPT"}),
])
def test_what_no_grammar_can_be_made_of_is_refused_without_quoting_it(kind: Kind, value: JsonValue) -> None:
    with pytest.raises(GrammarRefused) as caught:
        ebnf_of(kind, value)
    assert "SECRET" not in str(caught.value)


def tag(**fields: Any) -> Any:
    return structural_tag(ToolUse.model_validate({"tools": TOOLS, **fields}))["format"]


# As a worker got them from a Dynamo 1.6.1 frontend with `{"scope": "always", "schema": "strict"}`.
HERMES_TAGS = [
    {"type": "tag", "begin": f'<tool_call>\n{{"name": "{name}", "arguments": ', "end": "}\n</tool_call>",
     "content": {"type": "json_schema", "json_schema": ARGUMENTS, "style": "json"}} for name in ("scale", "stop")]
HERMES = {"type": "triggered_tags", "triggers": ["<tool_call>"], "tags": HERMES_TAGS, "at_least_one": False,
          "stop_after_first": False}
GLM_TAGS = [
    {"type": "tag", "begin": f"<tool_call>{name}", "end": "</tool_call>",
     "content": {"type": "json_schema", "json_schema": ARGUMENTS, "style": "glm_xml"}} for name in ("scale", "stop")]
GLM = {"type": "triggered_tags", "triggers": ["<tool_call>"], "tags": GLM_TAGS, "at_least_one": False,
       "stop_after_first": False, "excludes": [
           "<think>", "</think>", "</tool_call>", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"]}


def test_tools_of_either_format_become_the_frontends_tag() -> None:
    assert tag(parser="hermes") == HERMES
    assert tag(parser="glm47") == GLM


def test_a_required_call_comes_at_least_once_and_alone_if_not_parallel() -> None:
    assert tag(parser="hermes", tool_choice="required") == HERMES | {"at_least_one": True}
    assert tag(parser="glm47", tool_choice="required", parallel_tool_calls=False) == GLM | {
        "at_least_one": True, "stop_after_first": True}


def test_a_named_tool_is_the_only_one() -> None:
    assert tag(parser="hermes", tool_choice=NAMED) == HERMES | {"at_least_one": True, "tags": HERMES_TAGS[:1]}
    assert tag(parser="glm47", tool_choice=NAMED) == GLM_TAGS[0]


@pytest.mark.parametrize(("parser", "calls", "excludes"), [
    ("hermes", HERMES, []),
    ("glm47", GLM, ["<think>", "</think>", "<tool_call>", "</tool_call>", "<arg_key>", "</arg_key>", "<arg_value>",
                    "</arg_value>"])])
def test_a_thought_comes_first(parser: str, calls: Any, excludes: list[str]) -> None:
    assert tag(parser=parser, in_thought=True) == {"type": "sequence", "elements": [
        {"type": "tag", "begin": "", "content": {"type": "any_text", "excludes": excludes}, "end": "</think>"}, calls]}

"""What is left of a grammar, held against xgrammar's own matcher: after each beginning of a text, whatever follows, the
whole grammar and what is left of it say the same."""

import functools
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.grammar import binding
from engine.grammar.binding import GrammarRefused
from engine.grammar.matcher import Matcher
from engine.grammar.residual import NotInGrammar, Undivided, residual

TREE = {"$defs": {"tree": {"type": "object", "properties": {
    "v": {"type": "integer"}, "k": {"type": "array", "items": {"$ref": "#/$defs/tree"}}}, "required": ["v"],
    "additionalProperties": False}}, "$ref": "#/$defs/tree"}
SCHEMAS: list[tuple[dict[str, Any], str]] = [
    ({"type": "object", "properties": {"a": {"type": "string"}, "n": {"type": "number"}}, "required": ["a"]},
     '{"a": "xé\\u00e9\\n\\"", "n": -1.5e3}'),
    ({"enum": ["red", 're"d', "é🎉", 1, None, True]}, '"re\\"d"'),
    ({"enum": ["red", 're"d', "é🎉", 1, None, True]}, '"é🎉"'),
    ({"type": "array", "minItems": 1, "maxItems": 4, "items": {"anyOf": [
        {"type": "integer"}, {"type": "array", "items": {"type": "boolean"}}, {"type": "null"}]}},
     "[1, [true,false], null]"),
    (TREE, '{"v": 1, "k": [{"v":2,"k":[]},{"v":3}]}'),
    ({"type": "object", "required": ["t", "u"], "properties": {
        "t": {"type": "string", "pattern": "^[a-z]{2,5}(x|y)+$"},
        "u": {"type": "string", "minLength": 1, "maxLength": 3}}}, '{"t":"abcxy","u":"日本"}'),
    ({"type": "string", "pattern": "^(a|b)*c?$"}, '"ababc"'),
    ({"type": "string", "pattern": "^.[^a]\\d+\\s?\\w*$"}, '"é(42 x_"'),
    ({"type": "string", "format": "date-time"}, '"2026-11-30T18:00:00Z"'),
    ({"type": "object", "patternProperties": {"^x_[a-z]+$": {"type": "integer"}}, "additionalProperties": False},
     '{"x_ab": 3, "x_c":4}'),
    ({"type": "integer", "minimum": -3, "maximum": 120}, "117"),
    ({"type": "object"}, '{"any": [1, {"thing": "x"}], "b": null}'),
    ({"type": "object", "additionalProperties": {"type": "boolean"}, "properties": {
        "a": {"const": "x"}, "b": {"oneOf": [{"type": "string"}, {"type": "number"}]}}},
     '{"a": "x", "b": 2.5, "c": true}'),
]
CITY = {"type": "object", "properties": {"city": {"type": "string"}, "n": {"type": "integer"}}, "required": ["city"]}


def tagged(style: str, **changes: Any) -> dict[str, Any]:
    """Two tools of one format; `style` is how arguments are written."""
    begin, end = ("<tool_call>{}", "</tool_call>") if style == "glm_xml" else (
        '<tool_call>\n{{"name": "{}", "arguments": ', "}}\n</tool_call>".replace("}}", "}"))
    tags = [{"type": "tag", "begin": begin.format(name), "end": end,
             "content": {"type": "json_schema", "json_schema": CITY, "style": style}} for name in ("get", "scale")]
    return {"type": "structural_tag", "format": {
        "type": "triggered_tags", "triggers": ["<tool_call>"], "tags": tags, "at_least_one": False,
        "stop_after_first": False} | changes}


THOUGHT = {"type": "tag", "begin": "", "content": {"type": "any_text", "excludes": ["<tool_call>"]}, "end": "</think>"}
HERMES_CALL = '<tool_call>\n{"name": "scale", "arguments": {"city": "Paris", "n": 3}}\n</tool_call>'
GLM_CALL = "<tool_call>get<arg_key>city</arg_key><arg_value>Pa<ris</arg_value></tool_call>"
TAGS = [
    (tagged("json"), f"a <to {HERMES_CALL}\n<tool_ca"),
    (tagged("json", at_least_one=True), HERMES_CALL + " and"),
    (tagged("json", at_least_one=True, stop_after_first=True), HERMES_CALL),
    (tagged("glm_xml", excludes=["<think>", "</think>", "</tool_call>"]), f"so <thi {GLM_CALL} <<tool_call"),
    ({"type": "structural_tag", "format": {"type": "sequence", "elements": [THOUGHT, tagged("glm_xml")["format"]]}},
     f"hm </thin <tool </think>{GLM_CALL}"),
]
EBNF = [
    ('root ::= ("a" | "ab")* "c"?', "aababac"),
    ('root ::= x{2, 3} "."\nx ::= [a-c]{1, 2} | ""', "abca."),
    ('root ::= "(" root ")" root | ""', "(())()"),
    ('root ::= ("a"* "b"*)* "c"', "aabbaabc"),
    ('root ::= x | "c"\nx ::= "a"? y | "d"\ny ::= "b"? x | "e" x | "f"', "abaebbabf"),
]


@functools.cache
def grammar_of(kind: str, number: int) -> tuple[str, str]:
    """A grammar as xgrammar prints it, and a text of it."""
    if kind == "schema":
        return binding.of_json_schema(SCHEMAS[number][0]), SCHEMAS[number][1]
    if kind == "tag":
        return binding.of_structural_tag(TAGS[number][0]), TAGS[number][1]
    return binding.of_ebnf(EBNF[number][0]), EBNF[number][1]


CASES = [*(("schema", at) for at in range(len(SCHEMAS))), *(("tag", at) for at in range(len(TAGS))),
         *(("ebnf", at) for at in range(len(EBNF)))]


def left(ebnf: str, delivered: str) -> str:
    return residual(ebnf, delivered, binding.of_regex, lambda: None)


def verdict(ebnf: str, text: str) -> tuple[bool, bool]:
    """Whether the text begins one of the grammar, and whether it is one."""
    matcher = Matcher(ebnf)
    begins = not text or matcher.take(text)
    return begins, begins and matcher.is_complete


def mutated(text: str, luck: random.Random) -> str:
    for _ in range(luck.randint(1, 3)):
        at = luck.randint(0, len(text))
        piece = luck.choice(["", luck.choice('{}[]",:0129 aé\\\n-.e<>/x_'), "<tool_call>", "</think>"])
        text = luck.choice([text[:at] + piece + text[at:], text[:at] + piece + text[at + 1:], text[:at]])
    return text


@pytest.mark.parametrize(("kind", "number"), CASES)
def test_what_is_left_says_what_the_whole_says(kind: str, number: int) -> None:
    whole, text = grammar_of(kind, number)
    luck = random.Random(number)
    assert verdict(whole, text) == (True, True)
    for cut in range(len(text) + 1):
        rest = left(whole, text[:cut])
        for follows in (text[cut:], *(mutated(text[cut:], luck) for _ in range(4))):
            assert verdict(rest, follows) == verdict(whole, text[:cut] + follows), (text[:cut], follows)


@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_cutting_twice_is_cutting_once(data: st.DataObject) -> None:
    whole, text = grammar_of(*data.draw(st.sampled_from(CASES)))
    first = data.draw(st.integers(0, len(text)))
    second = data.draw(st.integers(first, len(text)))
    twice = left(binding.of_ebnf(left(whole, text[:first])), text[first:second])
    assert verdict(twice, text[second:]) == verdict(left(whole, text[:second]), text[second:]) == (True, True)


@pytest.mark.parametrize(("kind", "number"), CASES)
def test_a_text_outside_the_grammar_is_refused_where_the_matcher_refuses_it(kind: str, number: int) -> None:
    whole, text = grammar_of(kind, number)
    luck = random.Random(number)
    for _ in range(20):
        delivered = mutated(text, luck)
        if verdict(whole, delivered)[0]:
            left(whole, delivered)
        else:
            with pytest.raises(NotInGrammar):
                left(whole, delivered)


def test_after_a_whole_text_only_the_end_is_left() -> None:
    whole, text = grammar_of("schema", 0)
    assert left(whole, text) == 'root ::= ""\n'


def test_a_long_answer_leaves_a_small_grammar() -> None:
    items = ", ".join(f'{{"v": {at}, "k": []}}' for at in range(500))
    rest = left(binding.of_json_schema(TREE), f'{{"v": 1, "k": [{items}')
    assert len(rest) < 1500


def test_nesting_deeper_than_a_stack_is_left_too() -> None:
    whole = binding.of_json_schema({"type": "array", "items": {"$ref": "#"}})
    assert verdict(left(whole, "[" * 300), "]" * 300) == (True, True)


def test_left_recursion_is_refused() -> None:
    with pytest.raises(Undivided, match="left-recursive"):
        left('root ::= root "a" | "b"', "b")


def test_what_speaks_of_tokens_is_kept_and_not_cut() -> None:
    ebnf = 'root ::= "a" Token(3)'
    assert "Token(3)" in left(ebnf, "a")
    with pytest.raises(Undivided, match="tokens"):
        left(ebnf, "ab")


def test_a_grammar_that_grows_without_end_is_refused() -> None:
    ebnf = 'root ::= x x x x x x x x "z"\nx ::= "a" x "b" | "a" x "c" | "a" x x | "a" | ""'
    with pytest.raises((Undivided, TimeoutError)):
        residual(ebnf, "a" * 200, binding.of_regex, countdown(150))


def test_a_check_that_gives_up_is_heard() -> None:
    whole, text = grammar_of("schema", 0)
    with pytest.raises(TimeoutError):
        residual(whole, text, binding.of_regex, countdown(3))


def test_a_regular_expression_that_cannot_be_read_is_refused() -> None:
    with pytest.raises(GrammarRefused):
        left('root ::= Regex("(")', "a")


def countdown(checks: int) -> Any:
    """Raises after so many calls."""
    calls = iter(range(checks))

    def check() -> None:
        if next(calls, None) is None:
            raise TimeoutError

    return check

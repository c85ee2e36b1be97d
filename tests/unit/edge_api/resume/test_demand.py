"""What is read of a request whose stream has broken."""

from typing import Any

import pytest
from msgspec import Raw, json

from edge_api.hot.fields import ChatFields, PromptFields
from edge_api.resume.demand import Demand, Unreadable, read, watch_for
from edge_api.resume.journal import Watch

TOOL = {"type": "function", "function": {"name": "f", "parameters": {}}}


def demand(**fields: Any) -> Demand:
    return read(json.encode({"model": "m", "messages": [{"role": "user", "content": "hi"}], **fields}))


@pytest.mark.parametrize(("temperature", "sampled"), [(None, True), (0, False), (0.0, False), (0.1, True), (1, True)])
def test_only_temperature_zero_is_not_sampled(temperature: float | None, sampled: bool) -> None:
    assert demand(temperature=temperature).is_sampled is sampled


def test_the_newer_name_of_the_limit_wins() -> None:
    assert demand(max_tokens=5, max_completion_tokens=7).limit == 7
    assert demand(max_tokens=5).limit == 5
    assert demand().limit is None


@pytest.mark.parametrize(("stop", "stops"), [(None, []), ("a", ["a"]), (["a", "", "b"], ["a", "b"]), ("", [])])
def test_stop_strings_come_in_two_shapes(stop: Any, stops: list[str]) -> None:
    assert demand(stop=stop).stops == stops


@pytest.mark.parametrize(("choice", "has", "must"), [
    (None, True, False), ("auto", True, False), ("none", False, False),
    ("required", True, True), ({"type": "function", "function": {"name": "f"}}, True, True),
])
def test_the_tool_choice_says_whether_a_call_must_come(choice: Any, has: bool, must: bool) -> None:
    it = demand(tools=[TOOL], tool_choice=choice)
    assert (it.has_tools, it.must_call) == (has, must)


def test_without_tools_no_choice_counts() -> None:
    assert not demand(tools=[], tool_choice="required").must_call


@pytest.mark.parametrize(("fields", "kind"), [
    ({}, None), ({"response_format": None}, None), ({"response_format": {"type": "text"}}, None),
    ({"response_format": {"type": "json_object"}}, "json_object"),
    ({"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object"}}}},
     "json_schema"),
    ({"guided_json": {"type": "object"}}, "json_schema"), ({"guided_regex": "a+"}, "regex"),
    ({"guided_grammar": 'root ::= "a"'}, "ebnf"), ({"guided_choice": ["a", "b"]}, "choice"),
])
def test_every_constraint_is_found(fields: dict[str, Any], kind: str | None) -> None:
    found = demand(**fields).constraint()
    assert (found.kind if found else None) == kind


@pytest.mark.parametrize("form", [{"type": "json_schema"}, {"type": "odd"}, {"type": 1}, "text"])
def test_an_unknown_response_format_is_not_guessed_at(form: Any) -> None:
    with pytest.raises(Unreadable):
        demand(response_format=form).constraint()


@pytest.mark.parametrize(("content", "media"), [
    ("text", False), (None, False), ([{"type": "text", "text": "a"}], False),
    ([{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": "data:"}}], True),
    ([{"type": "input_audio"}], True),
])
def test_anything_but_text_in_a_message_is_media(content: Any, media: bool) -> None:
    messages = [{"role": "user", "content": "hi"}, {"role": "user", "content": content}]
    assert demand(messages=messages).has_media() is media


def test_a_message_that_is_none_is_not_guessed_at() -> None:
    with pytest.raises(Unreadable):
        demand(messages=[{"role": "user", "content": 5}]).has_media()


@pytest.mark.parametrize(("prompt", "several"), [
    ("text", False), ([1, 2, 3], False), ([[1, 2]], False), (["a"], False), (["a", "b"], True), ([[1], [2]], True),
    ([], False), (None, False),
])
def test_several_prompts_are_several_answers(prompt: Any, several: bool) -> None:
    assert read(json.encode({"model": "m", "prompt": prompt})).has_several_prompts() is several


@pytest.mark.parametrize("body", [b"", b"[]", b'{"n": "two"}', b'{"tools": {}}'])
def test_a_body_that_is_no_request_is_unreadable(body: bytes) -> None:
    with pytest.raises(Unreadable):
        read(body)


def test_only_what_is_needed_is_watched() -> None:
    said, form = [Raw(b"{}")], Raw(b'{"type":"json_object"}')
    assert watch_for(ChatFields(model="m", messages=said)) == Watch.NOTHING
    assert watch_for(ChatFields(model="m", messages=said, tools=[])) == Watch.NOTHING
    assert watch_for(ChatFields(model="m", messages=said, tools=said)) == Watch.CALLS
    assert watch_for(ChatFields(model="m", messages=said, tools=said, guided_json=form)) == Watch.CALLS | Watch.TEXT
    assert watch_for(ChatFields(model="m", messages=said, stop=form)) == Watch.STOPS


@pytest.mark.parametrize("name", ["response_format", "guided_json", "guided_regex", "guided_grammar", "guided_choice"])
def test_the_text_of_every_constrained_request_is_watched(name: str) -> None:
    constraint: dict[str, Any] = {name: Raw(b"{}")}
    assert watch_for(PromptFields(model="m", prompt=Raw(b'"p"'), **constraint)) == Watch.TEXT
    assert watch_for(PromptFields(model="m", prompt=Raw(b'"p"'))) == Watch.NOTHING

"""The request that continues a stream."""

from typing import Any

import pytest
from msgspec import json
from msgspec.structs import replace

from edge_api.dialects.base import Upstream
from edge_api.resume.demand import read
from edge_api.resume.eligibility import Verdict
from edge_api.resume.journal import Reasoning, Said, Seam
from edge_api.resume.plan import beginning_with, continuation

SEAM = Seam(ids=b"7,8,9", tokens=3, had_text=True, was_counted=True)
NVEXT = {"extra_fields": ["completion_token_ids"]}
MESSAGES = [{"role": "user", "content": "h\u00e9"}]
TOOL = {"type": "function", "function": {"name": "f", "parameters": {}}}


def planned(seam: Seam = SEAM, verdict: Verdict = Verdict.CONTINUE, upstream: Upstream = Upstream.CHAT,
            grammar: str = "", **fields: Any) -> dict[str, Any]:
    sent = json.encode({"model": "m", "messages": MESSAGES, "stream": True, "nvext": NVEXT, **fields})
    made: dict[str, Any] = json.decode(continuation(sent, upstream, read(sent), seam, verdict, b"1,2", grammar))
    return made


def test_the_ids_of_prompt_and_answer_take_the_prompts_place() -> None:
    assert planned()["nvext"] == {**NVEXT, "token_data": [1, 2, 7, 8, 9]}


def test_all_else_stays_as_it_was_sent() -> None:
    made = planned(top_p=0.5, cache_salt="s", user="u")
    assert made.pop("nvext")
    assert made == {"model": "m", "messages": MESSAGES, "stream": True, "top_p": 0.5, "cache_salt": "s", "user": "u"}


def test_a_completion_is_prompted_with_the_ids() -> None:
    made = planned(upstream=Upstream.COMPLETIONS, prompt="h\u00e9", messages=None)
    assert (made["prompt"], made["nvext"]) == ([1, 2, 7, 8, 9], NVEXT)


def test_before_the_first_id_the_prompt_goes_alone() -> None:
    assert planned(replace(SEAM, ids=b"", tokens=0))["nvext"]["token_data"] == [1, 2]


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens", "min_tokens"])
def test_what_counts_tokens_is_less_by_the_delivered(name: str) -> None:
    ten: dict[str, Any] = {name: 10}
    none: dict[str, Any] = {name: None}
    assert planned(**ten)[name] == 7
    assert planned(**none)[name] is None


def test_a_minimum_that_was_reached_is_none() -> None:
    assert planned(min_tokens=2)["min_tokens"] == 0


def test_a_budget_of_thinking_ends_with_the_thinking() -> None:
    inside, after = replace(SEAM, reasoning=Reasoning.INSIDE), replace(SEAM, reasoning=Reasoning.ENDED)
    assert planned(inside, thinking_token_budget=10)["thinking_token_budget"] == 7
    assert "thinking_token_budget" not in planned(after, thinking_token_budget=10)


@pytest.mark.parametrize("where", [Reasoning.NONE, Reasoning.INSIDE])
def test_inside_its_reasoning_the_template_stays(where: Reasoning) -> None:
    assert "chat_template_args" not in planned(replace(SEAM, reasoning=where))


@pytest.mark.parametrize("name", ["chat_template_args", "chat_template_kwargs"])
def test_after_its_reasoning_the_parser_is_told(name: str) -> None:
    asked: dict[str, Any] = {name: {"x": 1, "enable_thinking": True}}
    made = planned(replace(SEAM, reasoning=Reasoning.ENDED), **asked)
    assert made[name] == {"x": 1, "enable_thinking": False}


def test_after_its_reasoning_the_parser_is_told_even_without_arguments() -> None:
    ended = replace(SEAM, reasoning=Reasoning.ENDED)
    assert planned(ended)["chat_template_args"] == {"enable_thinking": False}
    assert planned(ended, chat_template_args=None)["chat_template_args"] == {"enable_thinking": False}


def test_after_its_reasoning_no_other_switch_turns_the_parser_back() -> None:
    ended = replace(SEAM, reasoning=Reasoning.ENDED)
    made = planned(ended, thinking={"type": "enabled"}, chat_template_args={"thinking": True, "enable_thinking": True})
    assert made["chat_template_args"] == {"thinking": False, "enable_thinking": False}
    assert "thinking" not in made


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "f"}}])
def test_a_call_that_came_need_not_come_again(choice: Any) -> None:
    assert planned(replace(SEAM, calls=1), tools=[TOOL], tool_choice=choice)["tool_choice"] == "auto"
    assert planned(tools=[TOOL], tool_choice=choice)["tool_choice"] == choice


def test_what_is_left_of_the_grammar_replaces_the_constraint() -> None:
    made = planned(verdict=Verdict.CONSTRAIN, grammar='root ::= "}"', response_format={"type": "json_object"},
                   tools=[TOOL], tool_choice="auto", parallel_tool_calls=True)
    assert made["guided_grammar"] == 'root ::= "}"'
    assert not {"response_format", "tools", "tool_choice", "parallel_tool_calls"} & made.keys()


def test_a_constraint_that_has_not_begun_stays() -> None:
    assert planned(response_format={"type": "json_object"})["response_format"] == {"type": "json_object"}


def test_text_is_forced_by_a_grammar() -> None:
    made = planned(replace(SEAM, repeat=Said('a"')), Verdict.FORCE, stop="x")
    assert made["guided_grammar"] == beginning_with('a"')


def test_a_literal_holds_any_text() -> None:
    assert beginning_with('"\\\n\U0001f642').splitlines()[0] == r'root ::= "\u0022\u005c\u000a\U0001f642" rest'


def test_another_datacenters_cache_is_not_named() -> None:
    assert "kv_transfer_params" not in planned(kv_transfer_params={"remote": "a"})

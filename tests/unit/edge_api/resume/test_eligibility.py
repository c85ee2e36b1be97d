"""The table of what may be resumed, a row a test."""

from typing import Any

import pytest
from msgspec import json
from msgspec.structs import replace

from control_plane.contracts.deployment import EngineFacts
from edge_api.resume.demand import read
from edge_api.resume.eligibility import GOES_ON, Verdict, judge
from edge_api.resume.journal import Call, Reasoning, Said, Seam
from tests.unit.edge_api.resume.events import FACTS

TOOL = {"type": "function", "function": {"name": "f", "parameters": {}}}
SEAM = Seam(ids=b"1,2,3", tokens=3, had_text=True, was_counted=True)
SCHEMA = {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object"}}}
HALF = replace(SEAM, half_call=Call(0, b"", "id", "f", '{"x"', 2))
NO_GRAMMAR = FACTS.model_copy(update={"grammar_url": None})
RAW = FACTS.model_copy(update={"tool_parser": ""})


def verdict(seam: Seam | None = SEAM, there: EngineFacts = FACTS, strict_seed: bool = False, **fields: Any) -> Verdict:
    body = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "temperature": 0, **fields}
    return judge(read(json.encode(body)), seam, FACTS, there, strict_seed)


def test_plain_text_goes_on_from_its_ids() -> None:
    assert verdict() is Verdict.CONTINUE


@pytest.mark.parametrize("where", [Reasoning.INSIDE, Reasoning.ENDED, Reasoning.NONE])
def test_reasoning_goes_on_inside_and_after(where: Reasoning) -> None:
    assert verdict(replace(SEAM, reasoning=where)) is Verdict.CONTINUE


def test_reasoning_that_the_model_opened_itself_does_not() -> None:
    assert verdict(replace(SEAM, reasoning=Reasoning.OPENED)) is Verdict.OWN_REASONING


@pytest.mark.parametrize("fields", [
    {"response_format": SCHEMA}, {"response_format": {"type": "json_object"}}, {"guided_json": {}},
    {"guided_regex": "a*"}, {"guided_grammar": "root ::= [a]*"}, {"guided_choice": ["a"]},
])
def test_constrained_text_needs_what_is_left_of_its_grammar(fields: dict[str, Any]) -> None:
    seam = replace(SEAM, text='{"a')
    assert verdict(seam, **fields) is Verdict.CONSTRAIN
    assert verdict(seam, NO_GRAMMAR, **fields) is Verdict.NO_GRAMMAR


def test_a_constraint_that_has_not_begun_needs_no_grammar() -> None:
    seam = replace(SEAM, reasoning=Reasoning.INSIDE)
    assert verdict(seam, NO_GRAMMAR, response_format=SCHEMA) is Verdict.CONTINUE


@pytest.mark.parametrize("choice", ["auto", "required", None])
@pytest.mark.parametrize("calls", [0, 2])
def test_tools_go_on_before_and_after_a_call(choice: str | None, calls: int) -> None:
    assert verdict(replace(SEAM, calls=calls), tools=[TOOL], tool_choice=choice) is Verdict.CONTINUE


def test_a_call_of_which_the_client_has_a_part_is_replayed() -> None:
    assert verdict(HALF, tools=[TOOL]) is Verdict.REPLAY


def test_a_sampled_engine_would_not_write_the_same_call_again() -> None:
    assert verdict(HALF, tools=[TOOL], temperature=0.7) is Verdict.SAMPLED_CALL


def test_without_a_parser_a_call_is_text_unless_it_must_come() -> None:
    assert verdict(there=RAW, tools=[TOOL]) is Verdict.CONTINUE
    assert verdict(there=RAW, tools=[TOOL], tool_choice="required") is Verdict.RAW_CALL


@pytest.mark.parametrize("fields", [{"n": 2}, {"best_of": 2}, {"messages": None, "prompt": ["a", "b"]}])
def test_several_answers_do_not_go_on(fields: dict[str, Any]) -> None:
    assert verdict(**fields) is Verdict.SEVERAL_CHOICES


def test_one_answer_may_be_asked_for_by_number() -> None:
    assert verdict(n=1, best_of=1) is Verdict.CONTINUE


@pytest.mark.parametrize(("fields", "why"), [
    ({"use_beam_search": True}, Verdict.BEAM_SEARCH), ({"echo": True}, Verdict.ECHO), ({"suffix": "x"}, Verdict.ECHO),
    ({"prompt_logprobs": 1}, Verdict.PROMPT_LOGPROBS), ({"prompt_logprobs": 0}, Verdict.PROMPT_LOGPROBS),
    ({"frequency_penalty": 0.1}, Verdict.PENALTY), ({"presence_penalty": -0.1}, Verdict.PENALTY),
    ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, Verdict.MEDIA),
    ({"prompt_embeds": "AA=="}, Verdict.MEDIA), ({"response_format": {"type": "odd"}}, Verdict.UNREADABLE),
])
def test_what_no_continuation_can_do_justice_to_is_refused(fields: dict[str, Any], why: Verdict) -> None:
    assert verdict(**fields) is why


@pytest.mark.parametrize("fields", [
    {"logprobs": True, "top_logprobs": 2}, {"frequency_penalty": 0, "presence_penalty": 0}, {"min_tokens": 9},
    {"repetition_penalty": 1.1}, {"thinking_token_budget": 50}, {"kv_transfer_params": {}},
])
def test_what_can_be_kept_or_subtracted_goes_on(fields: dict[str, Any]) -> None:
    assert verdict(**fields) is Verdict.CONTINUE


def test_a_sampled_stream_goes_on_as_a_valid_sample() -> None:
    assert verdict(temperature=0.7, seed=5) is Verdict.CONTINUE


def test_who_insists_on_the_seed_gets_no_other_sample() -> None:
    assert verdict(temperature=0.7, seed=5, strict_seed=True) is Verdict.STRICT_SEED
    assert verdict(temperature=0, seed=5, strict_seed=True) is Verdict.CONTINUE


REPEATED = replace(SEAM, repeat=Said("the"))


def test_with_stop_strings_the_last_text_is_said_again() -> None:
    assert verdict(REPEATED, stop="x") is Verdict.CONTINUE


def test_a_sampled_engine_is_forced_to_say_it_again() -> None:
    assert verdict(REPEATED, stop="x", temperature=1) is Verdict.FORCE
    assert verdict(REPEATED, NO_GRAMMAR, stop="x", temperature=1) is Verdict.NO_GRAMMAR


@pytest.mark.parametrize(("seam", "fields"), [
    (REPEATED, {"tools": [TOOL]}), (REPEATED, {"response_format": SCHEMA}),
    (replace(SEAM, repeat=Said("", "hm")), {}),
])
def test_where_forcing_would_lose_something_it_is_refused(seam: Seam, fields: dict[str, Any]) -> None:
    assert verdict(seam, stop="x", temperature=1, **fields) is Verdict.SAMPLED_STOP


@pytest.mark.parametrize("identity", ["", "other"])
def test_another_engine_does_not_go_on_with_it(identity: str) -> None:
    assert verdict(there=FACTS.model_copy(update={"identity": identity})) is Verdict.OTHER_ENGINE


def test_engines_that_say_nothing_of_themselves_are_not_equal() -> None:
    unknown = EngineFacts()
    assert judge(read(b'{"prompt":"a"}'), SEAM, unknown, unknown) is Verdict.OTHER_ENGINE


def test_without_output_the_request_is_sent_again_to_any_engine() -> None:
    nothing = Seam(ids=b"", tokens=0)
    assert verdict(nothing, EngineFacts(), n=2, frequency_penalty=1) is Verdict.RESEND


def test_without_ids_nothing_goes_on() -> None:
    assert verdict(replace(SEAM, ids=b"", tokens=0, was_counted=False)) is Verdict.NO_TOKEN_IDS


def test_text_held_back_for_long_is_not_guessed_at() -> None:
    assert verdict(None) is Verdict.TEXT_HELD_BACK


def test_an_answer_at_its_limit_is_complete() -> None:
    assert verdict(max_tokens=3) is Verdict.COMPLETE
    assert verdict(max_tokens=4) is Verdict.CONTINUE


def test_every_verdict_is_a_way_or_a_refusal() -> None:
    assert {Verdict.RESEND, Verdict.CONTINUE, Verdict.CONSTRAIN, Verdict.REPLAY, Verdict.FORCE,
            Verdict.COMPLETE} == GOES_ON

"""What `docs/protocols/resume-engine.md` says of the engine, and that answers go on in another cluster."""

from typing import Any

import httpx
import pytest

from tests.engine.cluster import Cluster
from tests.engine.scripted import (
    CHAT,
    COMPLETIONS,
    IDS,
    Said,
    body,
    go_on,
    prompt_ids,
    say,
    script,
    seams,
    settled_text,
)

THINKING: dict[str, Any] = {"chat_template_args": {"enable_thinking": True}}
NOT_THINKING: dict[str, Any] = {"chat_template_args": {"enable_thinking": False}}
CALL = "<tool_call>scale<arg_key>to</arg_key><arg_value>3</arg_value></tool_call>"
TOOLS = [{"type": "function", "function": {"name": "scale", "parameters": {
    "type": "object", "properties": {"to": {"type": "integer"}}, "required": ["to"]}}}]
CALLED = ("scale", '{"to":3}')

Clusters = tuple[Cluster, Cluster]


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
@pytest.mark.parametrize("answer", ["Hello there, it is a good day.", "日本語と 🎉 mixed, ok", "\n\n  space \t kept\n"])
def test_a_text_cut_anywhere_goes_on_elsewhere(datacenters: Clusters, path: str, answer: str) -> None:
    first, second = datacenters
    whole = say(first.url, script(answer), path)
    assert whole.text == answer
    prompt = prompt_ids(second.url, script(answer), path)
    for ids in seams(whole):
        rest = go_on(second.url, script(answer), ids, path, prompt_ids=prompt)
        assert ids + rest.ids == whole.ids
        assert settled_text(whole, ids) + rest.text == answer


def test_a_cut_within_a_character_would_lose_it(datacenters: Clusters) -> None:
    message = script("日本")
    whole = say(datacenters[0].url, message)
    assert go_on(datacenters[1].url, message, whole.ids[:1]).text == "本"


def test_reasoning_cut_inside_goes_on_as_reasoning(datacenters: Clusters) -> None:
    first, second = datacenters
    message = script("so it is</think>yes it is")
    whole = say(first.url, message, **THINKING)
    assert (whole.reasoning, whole.text) == ("so it is", "yes it is")
    rest = go_on(second.url, message, whole.ids[:4], **THINKING)
    assert (rest.reasoning, rest.text) == ("t is", "yes it is")


@pytest.mark.parametrize("settled", [9, 11])
def test_reasoning_cut_after_its_end_goes_on_as_text_without_thinking(datacenters: Clusters, settled: int) -> None:
    first, second = datacenters
    message = script("so it is</think>yes it is")
    whole = say(first.url, message, **THINKING)
    prompt = prompt_ids(second.url, message, **THINKING)
    rest = go_on(second.url, message, whole.ids[:settled], prompt_ids=prompt, **NOT_THINKING)
    assert (rest.reasoning, rest.text) == ("", "yes it is"[settled - 9:])
    astray = go_on(second.url, message, whole.ids[:settled], prompt_ids=prompt, **THINKING)
    assert (astray.reasoning, astray.text) == ("yes it is"[settled - 9:], "")


def test_the_end_of_reasoning_is_an_empty_event_with_its_id(datacenters: Clusters) -> None:
    whole = say(datacenters[0].url, script("a</think>b"), **THINKING)
    assert [delta.get("content") or delta.get("reasoning_content") for delta in whole.deltas] == ["a", None, "b", None]
    assert whole.usage["completion_tokens_details"] == {"reasoning_tokens": 2}


def test_a_call_comes_whole_with_all_its_ids(datacenters: Clusters) -> None:
    whole = say(datacenters[0].url, script(f"a {CALL} b"), tools=TOOLS)
    (event,) = [event for event in whole.events for choice in event["choices"] if choice["delta"].get("tool_calls")]
    assert len(event["nvext"]["completion_token_ids"]) == len(whole.ids) - len("a  b") - 1
    assert (whole.text, whole.calls, whole.finish_reason) == ("a  b", [CALLED], "tool_calls")


@pytest.mark.parametrize("choice", ["auto", "required", {"type": "function", "function": {"name": "scale"}}])
def test_a_call_that_was_not_delivered_is_made_elsewhere(datacenters: Clusters, choice: object) -> None:
    first, second = datacenters
    whole = say(first.url, script(CALL), tools=TOOLS, tool_choice=choice)
    rest = go_on(second.url, script(CALL), [], tools=TOOLS, tool_choice=choice)
    assert whole.calls == rest.calls == [CALLED]
    assert whole.ids == rest.ids


def test_an_answer_goes_on_before_between_and_after_calls(datacenters: Clusters) -> None:
    first, second = datacenters
    message = script(f"a {CALL}\n{CALL} b")
    whole = say(first.url, message, tools=TOOLS)
    assert whole.calls == [CALLED, CALLED]
    for ids in seams(whole):
        rest = go_on(second.url, message, ids, tools=TOOLS, tool_choice="auto")
        assert ids + rest.ids == whole.ids
        assert settled_text(whole, ids) + rest.text == whole.text


def test_the_rest_after_a_call_has_its_own_finish_reason_and_indexes(datacenters: Clusters) -> None:
    first, second = datacenters
    message = script(f"{CALL}\n{CALL} b")
    whole = say(first.url, message, tools=TOOLS)
    one_call = next(ids for ids in seams(whole) if ids)
    rest = go_on(second.url, message, one_call, tools=TOOLS)
    (call,) = [call for delta in rest.deltas for call in delta.get("tool_calls") or []]
    assert call["index"] == 0
    assert rest.finish_reason == "tool_calls"
    assert go_on(second.url, message, whole.ids[:-2], tools=TOOLS).finish_reason == "stop"


def test_a_call_cut_off_by_its_limit_is_dropped(datacenters: Clusters) -> None:
    read = say(datacenters[0].url, script(f"a {CALL}"), tools=TOOLS, max_tokens=6)
    assert (read.text, read.calls, read.finish_reason, len(read.ids)) == ("a ", [], "length", 6)


def test_a_stop_string_may_be_withheld_from_within_a_token(datacenters: Clusters) -> None:
    read = say(datacenters[0].url, script("go there, y"), stop=["re, x"])
    assert [delta.get("content") for delta in read.deltas] == ["go", " the", None, None, "re, y", None]
    assert [len(event["nvext"]["completion_token_ids"]) for event in read.events[:-1]] == [1] * 6


def test_a_stop_string_ends_the_answer_before_it(datacenters: Clusters) -> None:
    read = say(datacenters[0].url, script("abc STOP def"), stop=["STOP"])
    assert (read.text, read.finish_reason, len(read.ids)) == ("abc ", "stop", 8)


def test_usage_counts_what_was_repeated_as_prompt(datacenters: Clusters) -> None:
    message = script("Hello there")
    whole = say(datacenters[0].url, message)
    rest = go_on(datacenters[1].url, message, whole.ids[:5])
    assert whole.usage["completion_tokens"] == len(whole.ids) == 7
    assert rest.usage["prompt_tokens"] == whole.usage["prompt_tokens"] + 5
    assert rest.usage["completion_tokens"] == 2


def test_a_limit_counts_only_what_is_new(datacenters: Clusters) -> None:
    message = script("abcdef")
    whole = say(datacenters[0].url, message, max_tokens=4)
    rest = go_on(datacenters[1].url, message, whole.ids[:1], max_tokens=3)
    assert (whole.text, rest.text, rest.finish_reason) == ("abcd", "bcd", "length")


def test_headers_and_prompt_ids_come_before_the_first_token(datacenters: Clusters) -> None:
    asked = body(script("Hi", wait_s=20)) | {"nvext": {**IDS, "annotations": ["token_ids"]}}
    with httpx.stream("POST", datacenters[0].url + CHAT, json=asked, timeout=5) as response:
        lines = response.iter_lines()
        assert response.status_code == 200
        assert next(lines) == "event: token_ids"
        assert next(lines).startswith(': "[')


def test_the_answers_id_is_the_frontends_own(datacenters: Clusters) -> None:
    headers = {"x-request-id": "attempt-1.1"}
    answer = httpx.post(datacenters[0].url + CHAT, headers=headers, timeout=10, json={
        "model": "sim/test", "messages": [{"role": "user", "content": script("Hi")}]})
    assert answer.headers["x-request-id"] == "attempt-1.1"
    assert "attempt" not in answer.json()["id"]


def test_token_ids_of_several_choices_are_refused(datacenters: Clusters) -> None:
    assert say(datacenters[0].url, script("Hi"), n=2).status == 400


def test_what_the_worker_refuses_keeps_its_status(datacenters: Clusters) -> None:
    long = script("Hi") + " word" * 9000
    assert say(datacenters[0].url, long).events[0]["error"]["code"] == 400
    unary = httpx.post(datacenters[0].url + CHAT, timeout=10, json={
        "model": "sim/test", "messages": [{"role": "user", "content": long}]})
    assert (unary.status_code, unary.json()["message"]) == (
        400, "This model's maximum context length is 8192 tokens.")


def test_an_answer_that_is_resumed_with_other_text_is_refused(datacenters: Clusters) -> None:
    assert go_on(datacenters[1].url, script("Hello"), [1, 2, 3]).events[0]["error"]["code"] == 400


def test_values_of_logprobs_stay_those_of_their_tokens(datacenters: Clusters) -> None:
    first, second = datacenters
    whole = say(first.url, script("abc"), logprobs=True, top_logprobs=2)
    rest = go_on(second.url, script("abc"), whole.ids[:1], logprobs=True, top_logprobs=2)
    assert _logprobs(whole)[1:] == _logprobs(rest)


def _logprobs(read: Said) -> list[object]:
    return [choice["logprobs"] for event in read.events for choice in event["choices"]]


def test_the_simulated_engine_goes_on_from_ids_too(running: Cluster) -> None:
    first = say(running.url, "hello", max_tokens=8)
    rest = go_on(running.url, "hello", first.ids[:5], max_tokens=3)
    assert (len(first.ids), len(rest.ids), rest.finish_reason) == (8, 3, "length")
    assert rest.usage["prompt_tokens"] == first.usage["prompt_tokens"] + 5

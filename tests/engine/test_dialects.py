"""What the translated dialects ask, asked of a real frontend."""

import json
from typing import Any

import httpx
import pytest

from control_plane.contracts import ids
from edge_api.dialects.base import Asked, Dialect
from edge_api.dialects.messages import COUNT_TOKENS, MESSAGES
from edge_api.dialects.responses import INPUT_TOKENS, RESPONSES
from tests.engine.chat import METERED
from tests.engine.cluster import MODEL, Cluster
from tests.engine.scripted import script

SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}, "additionalProperties": False,
          "required": ["text"]}
TOOL = {"name": "write", "description": "Writes.", "input_schema": SCHEMA}
FUNCTION = {"type": "function", "name": "write", "description": "Writes.", "parameters": SCHEMA}
HI = {"role": "user", "content": "hi"}
PNG = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}}
TURNS: list[dict[str, Any]] = [HI, {"role": "assistant", "content": [
    {"type": "thinking", "thinking": "hm", "signature": ""}, {"type": "text", "text": "a"},
    {"type": "tool_use", "id": "t0", "name": "write", "input": {"text": '<&>"\n😀'}}]},
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t0", "content": "no", "is_error": True},
                                 {"type": "text", "text": "go on"}]}]
MESSAGE: dict[str, dict[str, Any]] = {
    "the least": {}, "a system prompt": {"system": [{"type": "text", "text": "s"}]},
    "sampling": {"temperature": 0.5, "top_p": 0.9, "top_k": 4, "ignore_eos": True, "min_tokens": 2,
                 "metadata": {"user_id": "u"}},
    "thinking": {"thinking": {"type": "enabled", "budget_tokens": 1024}},
    "no thinking": {"thinking": {"type": "disabled"}, "output_config": {"effort": "max"}},
    "a format": {"output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}},
    "a conversation": {"messages": TURNS, "tools": [TOOL]},
    "one call": {"messages": TURNS, "tools": [{**TOOL, "strict": True}], "tool_choice": {
        "type": "any", "disable_parallel_tool_use": True}},
    "a named call": {"tools": [TOOL], "tool_choice": {"type": "tool", "name": "write"}},
    "no calls": {"tools": [TOOL], "tool_choice": {"type": "none"}},
    "an image": {"messages": [{"role": "user", "content": [PNG]}]},
    "calls alone": {"messages": [HI, {"role": "assistant", "content": TURNS[1]["content"][2:]}, TURNS[2]]},
}
RESPONSE: dict[str, dict[str, Any]] = {
    "the least": {}, "instructions": {"instructions": "s", "input": [{"role": "developer", "content": "d"}, HI]},
    "sampling": {"temperature": 0.5, "top_p": 0.9, "top_logprobs": 1, "include": ["message.output_text.logprobs"],
                 "user": "u", "reasoning": {"effort": "high"}},
    "a format": {"text": {"format": {"type": "json_schema", "name": "x", "schema": SCHEMA, "strict": True}}},
    "an object": {"text": {"format": {"type": "json_object"}}},
    "a conversation": {"tools": [FUNCTION], "tool_choice": "required", "parallel_tool_calls": False, "input": [
        HI, {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]},
        {"type": "function_call", "call_id": "c", "name": "write", "arguments": '{"text":"x"}'},
        {"type": "function_call_output", "call_id": "c", "output": "ok"}]},
}
NASTY = 'if a < b && c > "d" {\n\tsay(\'é 😀 \\n &lt;\');\n}'
CALL = f"<tool_call>write<arg_key>text</arg_key><arg_value>{NASTY}</arg_value></tool_call>"
THINKING: dict[str, Any] = {"thinking": {"type": "enabled", "budget_tokens": 1024}}


def read(dialect: Dialect, **fields: Any) -> Asked:
    least: dict[str, Any] = {"input": "hi", "max_output_tokens": 8} if dialect in (RESPONSES, INPUT_TOKENS) else {
        "messages": [HI], "max_tokens": 8}
    return dialect.read(json.dumps({"model": MODEL, **least, **fields}).encode(), {}, ids.uuid7())


def ask(cluster: Cluster, asked: Asked) -> dict[str, Any]:
    """The answer to a unary request, told."""
    response = httpx.post(f"{cluster.url}/v1/chat/completions", content=asked.body, timeout=30,
                          headers={"content-type": "application/json"})
    assert response.status_code == 200, response.text
    assert asked.answer is not None
    told: dict[str, Any] = json.loads(asked.answer(response.content))
    return told


def stream(cluster: Cluster, asked: Asked) -> list[dict[str, Any]]:
    """The events of a streamed request, told. Its token ids stay in: a voice passes them over."""
    assert asked.voice is not None
    voice = asked.voice()
    response = httpx.post(f"{cluster.url}/v1/chat/completions", json={**json.loads(asked.body), **METERED}, timeout=30)
    events = [event + b"\n\n" for event in response.content.split(b"\n\n") if event and event != b"data: [DONE]"]
    said = voice.begin() + b"".join(map(voice.tell, events[:-1])) + voice.end(events[-1])
    return [json.loads(event.partition(b"data: ")[2]) for event in said.split(b"\n\n") if event]


def prompt_of(told: dict[str, Any]) -> int:
    """How long the prompt was, in tokens."""
    return int(told["usage"]["input_tokens"] + told["usage"]["cache_read_input_tokens"])


@pytest.mark.parametrize("name", MESSAGE)
def test_a_real_frontend_takes_what_a_message_asks(running: Cluster, name: str) -> None:
    told = ask(running, read(MESSAGES, **MESSAGE[name]))
    assert told["stop_reason"] in ("max_tokens", "end_turn")
    assert told["usage"]["output_tokens"] > 0
    events = stream(running, read(MESSAGES, stream=True, **MESSAGE[name]))
    assert events[-1] == {"type": "message_stop"}
    assert prompt_of(events[-2]) == prompt_of(told)
    if MESSAGE[name].get("tool_choice", {}).get("type") not in ("any", "tool"):  # these say it at the end only
        assert prompt_of(events[0]["message"]) == prompt_of(told)


@pytest.mark.parametrize("name", RESPONSE)
def test_a_real_frontend_takes_what_a_response_asks(running: Cluster, name: str) -> None:
    told = ask(running, read(RESPONSES, **RESPONSE[name]))
    assert told["usage"]["output_tokens"] > 0
    last = stream(running, read(RESPONSES, stream=True, **RESPONSE[name]))[-1]
    assert last["type"] == f"response.{told['status']}"
    assert last["response"]["usage"]["input_tokens"] == told["usage"]["input_tokens"]


def test_a_real_frontend_leaves_the_stop_string_for_the_edge_to_find(running: Cluster) -> None:
    asked = {"stop_sequences": ["nowhere", "e"], "max_tokens": 200}
    told = ask(running, read(MESSAGES, **asked))
    assert (told["stop_reason"], told["stop_sequence"]) == ("stop_sequence", "e")
    assert "e" not in told["content"][0]["text"]
    [last] = [event for event in stream(running, read(MESSAGES, stream=True, **asked))
              if event["type"] == "message_delta"]
    assert last["delta"] == {"stop_reason": "stop_sequence", "stop_sequence": "e"}


def test_thinking_reaches_the_chat_template(running: Cluster) -> None:
    on, off = (ask(running, read(MESSAGES, thinking=thinking))["usage"]["input_tokens"] for thinking in (
        {"type": "enabled", "budget_tokens": 1024}, {"type": "disabled"}))
    assert on == off + 1  # the simulated model's template opens a thought


def test_what_is_counted_is_the_prompt_of_the_answer(running: Cluster) -> None:
    """The request to count, sent as it is, has the prompt of the request to answer."""
    for dialect, counting, fields in ((MESSAGES, COUNT_TOKENS, MESSAGE["a conversation"]),
                                      (RESPONSES, INPUT_TOKENS, RESPONSE["a conversation"])):
        body = {**json.loads(read(counting, **fields).body), "stream": False}
        counted = httpx.post(f"{running.url}/v1/chat/completions", json=body, timeout=30).json()["usage"]
        usage = ask(running, read(dialect, **fields))["usage"]
        assert counted["completion_tokens"] == 1
        assert counted["prompt_tokens"] == usage["input_tokens"] + usage.get("cache_read_input_tokens", 0), dialect.name



def test_reasoning_text_and_two_calls_come_out_of_a_real_parser_byte_exact(
        datacenters: tuple[Cluster, Cluster]) -> None:
    said = script(f"so it is</think>I write.{CALL}\n{CALL}")
    asked: dict[str, Any] = {"messages": [{"role": "user", "content": said}], "tools": [TOOL], "max_tokens": 400,
                             **THINKING}
    unary = ask(datacenters[0], read(MESSAGES, **asked))
    blocks = [{key: value for key, value in block.items() if key != "id"} for block in unary["content"]]
    use = {"type": "tool_use", "name": "write", "input": {"text": NASTY}}
    assert blocks == [{"type": "thinking", "thinking": "so it is", "signature": ""},
                      {"type": "text", "text": "I write.\n"}, use, use]  # what the model wrote between the calls
    assert unary["stop_reason"] == "tool_use"
    assert len({block["id"] for block in unary["content"] if block["type"] == "tool_use"}) == 2
    events = stream(datacenters[0], read(MESSAGES, stream=True, **asked))
    assert [event["content_block"]["type"] for event in events if event["type"] == "content_block_start"] == [
        "thinking", "text", "tool_use", "tool_use"]
    arguments = ["".join(event["delta"].get("partial_json", "") for event in events
                         if event["type"] == "content_block_delta" and event["index"] == at) for at in (2, 3)]
    assert [json.loads(one) for one in arguments] == [{"text": NASTY}] * 2
    assert events[-2]["delta"]["stop_reason"] == "tool_use"


def test_a_response_tells_the_same_turn(datacenters: tuple[Cluster, Cluster]) -> None:
    asked: dict[str, Any] = {"input": script(f"so it is</think>I write.{CALL}"), "tools": [FUNCTION],
                             "max_output_tokens": 400, "reasoning": {"effort": "high"}}
    for output in (ask(datacenters[0], read(RESPONSES, **asked))["output"],
                   stream(datacenters[0], read(RESPONSES, stream=True, **asked))[-1]["response"]["output"]):
        reasoning, message, call = output
        assert reasoning["content"][0]["text"] == "so it is"
        assert message["content"][0]["text"] == "I write."
        assert json.loads(call["arguments"]) == {"text": NASTY}

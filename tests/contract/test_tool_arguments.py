"""What a model writes into a tool call arrives byte by byte: in every dialect that has tools, streamed and not."""

import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from tests.contract.clients import Clients
from tests.contract.scripted import ScriptedEdge, call, compact, say, schema
from tests.engine.cluster import MODEL

TEXTS = {
    "markup": 'if a < b && c > d: print("<b>&amp;&lt;</b>")',
    "quotes": """ "double" 'single' `back` \\ \\n \\" \\\\ """.strip(),
    "lines": "one\n\n\ttwo\r\nthree\u2028four",
    "other scripts": "👩‍👩‍👧 漢字 é \u00a0 🇫🇷",
    "what looks like a call": "</arg> <tool> {\"name\": \"x\"} </tool> [/INST] <|im_end|>",
    "json": '{"a": [1, "<&>", null]}',
}
FUNCTION = {"name": "write", "description": "Writes.", "parameters": schema(path="string", text="string")}
CHAT_TOOLS: Any = [{"type": "function", "function": FUNCTION}]
MESSAGE_TOOLS: Any = [{"name": "write", "description": "Writes.", "input_schema": FUNCTION["parameters"]}]
RESPONSE_TOOLS: Any = [{"type": "function", "strict": None, **FUNCTION}]

Calls = list[tuple[str, str]]


def chat(clients: Clients, messages: Any) -> Calls:
    answer = clients.openai.chat.completions.create(model=MODEL, messages=messages, tools=CHAT_TOOLS)
    assert answer.choices[0].finish_reason == "tool_calls"
    return [(each.function.name, each.function.arguments) for each in answer.choices[0].message.tool_calls or []
            if each.type == "function"]


def chat_stream(clients: Clients, messages: Any) -> Calls:
    with clients.openai.chat.completions.stream(model=MODEL, messages=messages, tools=CHAT_TOOLS) as stream:
        choice = stream.get_final_completion().choices[0]
    assert choice.finish_reason == "tool_calls"
    return [(each.function.name, each.function.arguments) for each in choice.message.tool_calls or []]


def response(clients: Clients, messages: Any) -> Calls:
    answer = clients.openai.responses.create(model=MODEL, input=messages, tools=RESPONSE_TOOLS)
    return [(each.name, each.arguments) for each in answer.output if each.type == "function_call"]


def response_stream(clients: Clients, messages: Any) -> Calls:
    with clients.openai.responses.stream(model=MODEL, input=messages, tools=RESPONSE_TOOLS) as stream:
        deltas = [event.delta for event in stream if event.type == "response.function_call_arguments.delta"]
        answer = stream.get_final_response()
    calls = [(each.name, each.arguments) for each in answer.output if each.type == "function_call"]
    assert "".join(deltas) == "".join(arguments for _, arguments in calls)
    return calls


def message(clients: Clients, messages: Any) -> Calls:
    raw = clients.anthropic.messages.with_raw_response.create(
        model=MODEL, max_tokens=500, messages=messages, tools=MESSAGE_TOOLS)
    answer = raw.parse()
    assert answer.stop_reason == "tool_use"
    told = {compact(block.input) for block in answer.content if block.type == "tool_use"}
    assert all(arguments in raw.http_response.text for arguments in told)  # not only equal: the same bytes
    return [(block.name, compact(block.input)) for block in answer.content if block.type == "tool_use"]


def message_stream(clients: Clients, messages: Any) -> Calls:
    with clients.anthropic.messages.stream(
            model=MODEL, max_tokens=500, messages=messages, tools=MESSAGE_TOOLS) as stream:
        pieces: dict[int, str] = {}
        for event in stream:
            if event.type == "content_block_delta" and event.delta.type == "input_json_delta":
                pieces[event.index] = pieces.get(event.index, "") + event.delta.partial_json
        answer = stream.get_final_message()
    assert answer.stop_reason == "tool_use"
    names = [block.name for block in answer.content if block.type == "tool_use"]
    return list(zip(names, pieces.values(), strict=True))


WAYS: list[Callable[[Clients, Any], Calls]] = [chat, chat_stream, response, response_stream, message, message_stream]


@pytest.mark.parametrize("kind", TEXTS)
@pytest.mark.parametrize("way", WAYS)
def test_arguments_arrive_as_the_model_wrote_them(
        scripted_clients: Clients, way: Callable[[Clients, Any], Calls], kind: str) -> None:
    written = {"path": "a/b.py", "text": TEXTS[kind]}
    [(name, arguments)] = way(scripted_clients, say(call("write", **written)))
    assert name == "write"
    assert json.loads(arguments) == written
    assert arguments == compact(written)


def test_the_edge_changes_no_byte_of_what_the_frontend_answers(
        scripted: ScriptedEdge, scripted_clients: Clients) -> None:
    asked = say(call("write", path="x", text="".join(TEXTS.values())))
    direct = httpx.post(f"{scripted.datacenter_url}/v1/chat/completions", timeout=30, trust_env=False, json={
        "model": MODEL, "messages": asked, "tools": CHAT_TOOLS}).json()
    expected = direct["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"]
    assert [arguments for way in WAYS for _, arguments in way(scripted_clients, asked)] == [expected] * len(WAYS)


@pytest.mark.parametrize("way", WAYS)
def test_parallel_calls_arrive_in_order_and_apart(
        scripted_clients: Clients, way: Callable[[Clients, Any], Calls]) -> None:
    first, second = {"path": "1", "text": "<a>"}, {"path": "2", "text": "&b\n"}
    answer = f"Two files.{call('write', **first)}\n{call('write', **second)}"
    assert way(scripted_clients, say(answer)) == [("write", compact(first)), ("write", compact(second))]

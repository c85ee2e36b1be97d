"""What a Responses request asks of a datacenter, and what of one is refused."""

import json
from typing import Any

import pytest

from edge_api.dialects.base import Upstream
from edge_api.dialects.responses import INPUT_TOKENS, RESPONSES
from edge_api.errors import Refusal
from tests.unit.edge_api.dialects.small_edge import NASTY, REQUEST_ID

HI = {"role": "user", "content": "hi"}
SCHEMA: dict[str, Any] = {"type": "object", "properties": {"text": {"type": "string"}}}
TOOL: dict[str, Any] = {"type": "function", "name": "write", "description": "Writes.", "parameters": SCHEMA}
FUNCTION = {"type": "function", "function": {"name": "write", "description": "Writes.", "parameters": SCHEMA}}
URL = "data:image/png;base64,aWNv"


def upstream(input: object = "hi", **fields: Any) -> dict[str, Any]:
    """The body that goes upstream."""
    body = {"model": "m", "input": input, **fields}
    sent: dict[str, Any] = json.loads(RESPONSES.read(json.dumps(body).encode(), {}, REQUEST_ID).body)
    return sent


def messages(*items: dict[str, Any], **fields: Any) -> list[dict[str, Any]]:
    told: list[dict[str, Any]] = upstream(list(items), **fields)["messages"]
    return told


def refused_field(**fields: Any) -> str | None:
    with pytest.raises(Refusal) as raised:
        RESPONSES.read(json.dumps({"model": "m", "input": "hi", **fields}).encode(), {}, REQUEST_ID)
    assert raised.value.status == 400
    assert raised.value.param is None or raised.value.param in raised.value.message
    return raised.value.param


def call(call_id: str, arguments: str = "{}") -> dict[str, Any]:
    return {"type": "function_call", "call_id": call_id, "name": "write", "arguments": arguments, "id": "fc_1",
            "status": "completed"}


def output(call_id: str, value: object = "ok") -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": call_id, "output": value}


def test_the_least_request_is_the_least_chat() -> None:
    assert upstream() == {"model": "m", "messages": [HI]}


def test_what_the_edge_reads_is_read_from_the_translated_body() -> None:
    body = {"model": "m", "input": "hi", "max_output_tokens": 9, "stream": True, "prompt_cache_key": "k", "user": "u",
            "session_id": "s", "service_tier": "fast", "provider": {"only": ["eu"]}}
    asked = RESPONSES.read(json.dumps(body).encode(), {}, REQUEST_ID)
    assert asked.upstream is Upstream.CHAT
    assert (asked.fields.max_tokens, asked.fields.prompt_cache_key, asked.fields.session_id) == (9, "k", "s")
    assert (asked.fields.user, asked.fields.service_tier) == ("u", "priority")
    assert json.loads(bytes(asked.fields.provider)) == {"only": ["eu"]}
    assert (asked.streamed, asked.wants_usage) == (True, True)


def test_what_means_the_same_in_chat_is_sent_by_its_name_there() -> None:
    assert upstream(temperature=0.5, top_p=0.9, top_k=40, max_output_tokens=9, ignore_eos=True, min_tokens=2,
                    safety_identifier="u", service_tier="flex", reasoning={"effort": "none", "summary": "auto"}) == {
        "model": "m", "messages": [HI], "max_tokens": 9, "min_tokens": 2, "ignore_eos": True, "temperature": 0.5,
        "top_p": 0.9, "top_k": 40, "user": "u", "service_tier": "flex", "reasoning_effort": "none"}


def test_what_is_harmless_is_passed_over() -> None:
    assert upstream(
        store=False, background=False, truncation="disabled", previous_response_id=None, conversation=None, prompt=None,
        include=["reasoning.encrypted_content"], metadata={"a": "b"}, stream_options={"include_obfuscation": False},
        text={"verbosity": "medium", "format": {"type": "text"}}, max_tool_calls=3, prompt_cache_retention="24h",
        parallel_tool_calls=True, tool_choice="auto", tools=[], client_metadata={"x": "y"}) == upstream()


def test_instructions_come_first_with_what_the_developer_says_first() -> None:
    assert messages({"role": "developer", "content": "b"}, {"role": "system", "content": "c"}, HI,
                    {"type": "message", "role": "developer", "content": "d"}, instructions="a") == [
        {"role": "system", "content": "a\nb\nc"}, HI, {"role": "system", "content": "d"}]


def test_texts_are_one_text_and_images_are_parts() -> None:
    assert messages({"role": "user", "content": [{"type": "input_text", "text": "a"},
                                                 {"type": "input_text", "text": "b"}]}) == [
        {"role": "user", "content": "a\nb"}]
    assert messages({"type": "message", "role": "user", "content": [
        {"type": "input_text", "text": "a"}, {"type": "input_image", "image_url": URL, "detail": "low"}]}) == [
        {"role": "user", "content": [
            {"type": "text", "text": "a"},
            {"type": "image_url", "image_url": {"url": URL, "detail": "low"}}]}]


def test_what_an_assistant_did_in_a_row_is_one_message() -> None:
    assert messages(
        HI, {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}],
             "encrypted_content": None},
        {"type": "message", "role": "assistant", "id": "msg_1", "status": "completed", "content": [
            {"type": "output_text", "text": "a", "annotations": [], "logprobs": []}]},
        call("c0", json.dumps({"text": NASTY})), call("c1"), output("c0"), output("c1", [
            {"type": "input_text", "text": "see"}, {"type": "input_image", "image_url": URL}]),
        {"role": "assistant", "content": "done"}, HI) == [
        HI,
        {"role": "assistant", "content": "a", "reasoning_content": "hm", "tool_calls": [
            {"id": "c0", "type": "function",
             "function": {"name": "write", "arguments": json.dumps({"text": NASTY})}},
            {"id": "c1", "type": "function", "function": {"name": "write", "arguments": "{}"}}]},
        {"role": "tool", "content": "ok", "tool_call_id": "c0"},
        {"role": "tool", "content": "see", "tool_call_id": "c1"},
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": URL}}]},
        {"role": "assistant", "content": "done"}, HI]


def test_calls_alone_have_no_content() -> None:
    assert messages(HI, call("c0"), output("c0"))[1]["content"] is None


def test_an_image_in_a_result_is_shown_with_what_the_user_says_next() -> None:
    told = messages(HI, call("c0"), output("c0", [{"type": "input_image", "image_url": URL}]), HI)
    assert told[2:] == [
        {"role": "tool", "content": "", "tool_call_id": "c0"},
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": URL}},
                                     {"type": "text", "text": "hi"}]}]


def test_reasoning_that_has_only_a_summary_is_its_summary() -> None:
    told = messages(HI, {"type": "reasoning", "id": "rs", "summary": [{"type": "summary_text", "text": "s"}]},
                    {"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]}, HI)
    assert told[1] == {"role": "assistant", "content": "no", "reasoning_content": "s"}


def test_tools_are_functions() -> None:
    sent = upstream(tools=[TOOL, {"type": "function", "name": "f", "parameters": None, "strict": True}],
                    parallel_tool_calls=False)
    assert sent["tools"] == [FUNCTION, {"type": "function", "function": {"name": "f", "strict": True}}]
    assert sent["parallel_tool_calls"] is False


@pytest.mark.parametrize(("choice", "told"), [
    ("auto", "auto"), ("required", "required"), ("none", "none"),
    ({"type": "function", "name": "write"}, {"type": "function", "function": {"name": "write"}})])
def test_a_choice_of_tools_is_chats(choice: object, told: object) -> None:
    assert upstream(tools=[TOOL], tool_choice=choice)["tool_choice"] == told


def test_only_allowed_tools_are_offered() -> None:
    sent = upstream(tools=[TOOL, {**TOOL, "name": "f"}], tool_choice={
        "type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "write"}]})
    assert (sent["tools"], sent["tool_choice"]) == ([FUNCTION], "required")


def test_a_format_is_a_response_format() -> None:
    assert upstream(text={"format": {"type": "json_object"}})["response_format"] == {"type": "json_object"}
    sent = upstream(text={"format": {"type": "json_schema", "name": "n", "schema": SCHEMA, "strict": True,
                                     "description": "d"}})
    assert sent["response_format"] == {"type": "json_schema", "json_schema": {
        "name": "n", "schema": SCHEMA, "description": "d", "strict": True}}


@pytest.mark.parametrize(("fields", "param"), [
    ({"store": True}, "store"), ({"background": True}, "background"),
    ({"previous_response_id": "resp_1"}, "previous_response_id"), ({"conversation": "conv_1"}, "conversation"),
    ({"conversation": {"id": "conv_1"}}, "conversation"), ({"prompt": {"id": "pmpt_1"}}, "prompt"),
    ({"input": [HI, {"type": "item_reference", "id": "msg_1"}]}, "input[1].type"),
    ({"truncation": "auto"}, "truncation"), ({"context_management": [{"type": "compaction"}]}, "context_management"),
    ({"text": {"verbosity": "high"}}, "text.verbosity"), ({"foo": 1}, "foo"), ({"n": 2}, "n"),
    ({"max_output_tokens": 0}, "max_output_tokens"), ({"temperature": "hot"}, "temperature"),
    ({"metadata": {"a": 1}}, "metadata[...]"), ({"service_tier": "ultrafast"}, "service_tier"),
    ({"reasoning": {"effort": "little"}}, "reasoning.effort"), ({"input": None}, "input"), ({"input": []}, "input"),
    ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
    ({"tools": [TOOL, {"type": "custom", "name": "apply_patch"}]}, "tools[1].type"),
    ({"tools": [{"type": "function"}]}, "tools[0].name"), ({"tools": [{"name": "f"}]}, "tools[0].type"),
    ({"tools": [TOOL], "tool_choice": {"type": "file_search"}}, "tool_choice.type"),
    ({"tools": [TOOL], "tool_choice": {"type": "function"}}, "tool_choice.name"),
    ({"tool_choice": "required"}, "tool_choice"),
    ({"text": {"format": {"type": "json_schema", "schema": {}}}}, "text.format.name"),
    ({"text": {"format": {"type": "json_schema", "name": "n"}}}, "text.format.schema"),
])
def test_a_field_that_cannot_be_served_is_named(fields: dict[str, Any], param: str) -> None:
    assert refused_field(**fields) == param


@pytest.mark.parametrize(("item", "param"), [
    ({"type": "computer_call_output", "call_id": "c"}, "input[0].type"), ({"content": "x"}, "input[0].role"),
    ({"role": "user"}, "input[0].content"), ({"role": "critic", "content": "x"}, "input[0].role"),
    ({"type": "function_call", "name": "f", "arguments": "{}"}, "input[0].call_id"),
    ({"type": "function_call", "call_id": "c", "arguments": "{}"}, "input[0].name"),
    ({"type": "function_call", "call_id": "c", "name": "f"}, "input[0].arguments"),
    ({"type": "function_call_output", "output": "x"}, "input[0].call_id"),
    ({"type": "function_call_output", "call_id": "c"}, "input[0].output"),
    ({"role": "user", "content": [{"type": "input_file", "file_id": "f"}]}, "input[0].content[0].type"),
    ({"role": "user", "content": [{"type": "input_image", "file_id": "f"}]}, "input[0].content[0].image_url"),
])
def test_an_item_that_cannot_be_served_is_named(item: dict[str, Any], param: str) -> None:
    assert refused_field(input=[item]) == param


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null", b'{"model":"\xff"}', b'"x"', b"[" * 100_000])
def test_what_is_no_request_is_refused(body: bytes) -> None:
    for dialect in RESPONSES, INPUT_TOKENS:
        with pytest.raises(Refusal) as raised:
            dialect.read(body, {}, REQUEST_ID)
        assert raised.value.status == 400

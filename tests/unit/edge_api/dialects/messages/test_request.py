"""What a Messages request asks of a datacenter, and what of one is refused."""

import json
from typing import Any

import pytest

from edge_api.dialects.base import Upstream
from edge_api.dialects.messages import COUNT_TOKENS, MESSAGES
from edge_api.errors import Refusal
from tests.unit.edge_api.dialects.small_edge import NASTY, REQUEST_ID

HI = {"role": "user", "content": "hi"}
SCHEMA: dict[str, Any] = {"type": "object", "properties": {"text": {"type": "string"}}}
TOOL = {"name": "write", "description": "Writes.", "input_schema": SCHEMA}
PNG = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aWNv"}}
PNG_PART = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aWNv"}}
TEXT = {"type": "text", "text": "a", "cache_control": {"type": "ephemeral", "ttl": "1h"}, "citations": None}


def upstream(*messages: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """The body that goes upstream."""
    body = {"model": "m", "max_tokens": 9, "messages": list(messages) or [HI], **fields}
    sent: dict[str, Any] = json.loads(MESSAGES.read(json.dumps(body).encode(), {}, REQUEST_ID).body)
    return sent


def messages(*messages: dict[str, Any], **fields: Any) -> list[dict[str, Any]]:
    told: list[dict[str, Any]] = upstream(*messages, **fields)["messages"]
    return told


def refused(body: object) -> Refusal:
    with pytest.raises(Refusal) as raised:
        MESSAGES.read(json.dumps(body).encode(), {}, REQUEST_ID)
    assert raised.value.status == 400
    assert raised.value.param is None or raised.value.param in raised.value.message
    return raised.value


def refused_field(*messages: dict[str, Any], **fields: Any) -> str | None:
    return refused({"model": "m", "max_tokens": 9, "messages": list(messages) or [HI], **fields}).param


def test_the_least_request_is_the_least_chat() -> None:
    assert upstream() == {"model": "m", "messages": [HI], "max_tokens": 9}


def test_what_the_edge_reads_is_read_from_the_translated_body() -> None:
    body = {"model": "claude-compat/a/b", "max_tokens": 9, "messages": [HI], "stream": True, "session_id": "s",
            "metadata": {"user_id": "u"}, "provider": {"only": ["eu"]}}
    asked = MESSAGES.read(json.dumps(body).encode(), {}, REQUEST_ID)
    assert asked.upstream is Upstream.CHAT
    assert (asked.fields.model, asked.fields.max_tokens, asked.fields.session_id) == ("a/b", 9, "s")
    assert asked.fields.user == "u"
    assert json.loads(bytes(asked.fields.provider)) == {"only": ["eu"]}
    assert (asked.streamed, asked.wants_usage, asked.wants_each_usage) == (True, True, True)


def test_what_means_the_same_in_chat_is_sent_by_its_name_there() -> None:
    assert upstream(temperature=0.5, top_p=0.9, top_k=40, stop_sequences=["END"], ignore_eos=True, min_tokens=2,
                    service_tier="standard_only", metadata={"user_id": "u"}) == {
        "model": "m", "messages": [HI], "max_tokens": 9, "min_tokens": 2, "ignore_eos": True, "temperature": 0.5,
        "top_p": 0.9, "top_k": 40, "stop": ["END"], "include_stop_str_in_output": True, "user": "u",
        "service_tier": "default"}


def test_what_is_anthropics_own_and_harmless_is_passed_over() -> None:
    assert upstream(
        service_tier="auto", cache_control={"type": "ephemeral"}, container=None, thread=None,
        mcp_servers=[], speed="standard",
        inference_geo="global", diagnostics={"previous_message_id": None}, stop_sequences=[], metadata={},
        context_management={"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]}) == upstream()


@pytest.mark.parametrize("system", ["a\nb", [{**TEXT, "text": "a"}, {**TEXT, "text": "b"}],
                                    [{**TEXT, "text": "x-anthropic-billing-header: cc=1; cch=77;"},
                                     {**TEXT, "text": "a\nb"}]])
def test_the_system_prompt_is_one_message_that_stays_the_same(system: object) -> None:
    assert messages(system=system) == [{"role": "system", "content": "a\nb"}, HI]


@pytest.mark.parametrize("system", ["", [], None])
def test_no_system_prompt_is_no_message(system: object) -> None:
    assert messages(system=system) == [HI]


def test_texts_are_one_text_and_images_are_parts() -> None:
    assert messages({"role": "user", "content": [TEXT, {"type": "text", "text": "b"}]}) == [
        {"role": "user", "content": "a\nb"}]
    url = {"type": "image", "source": {"type": "url", "url": "https://x.test/a.png"}}
    assert messages({"role": "user", "content": [TEXT, PNG, url]}) == [{"role": "user", "content": [
        {"type": "text", "text": "a"}, PNG_PART,
        {"type": "image_url", "image_url": {"url": "https://x.test/a.png"}}]}]


def test_a_document_of_plain_text_is_text() -> None:
    source = {"type": "text", "media_type": "text/plain", "data": "body"}
    assert messages({"role": "user", "content": [{"type": "document", "source": source, "title": "T"}]}) == [
        {"role": "user", "content": "T\nbody"}]


def test_an_instruction_in_between_stays_where_it_is() -> None:
    assert messages(HI, {"role": "system", "content": "s"}, HI) == [HI, {"role": "system", "content": "s"}, HI]


def test_a_turn_of_the_assistants_is_one_message_with_its_reasoning_and_calls() -> None:
    turn = {"role": "assistant", "content": [
        {"type": "thinking", "thinking": "hm", "signature": "sig"}, {"type": "redacted_thinking", "data": "x"}, TEXT,
        {"type": "tool_use", "id": "t0", "name": "write", "input": {"text": NASTY}},
        {"type": "tool_use", "id": "t1", "name": "write", "input": {}}]}
    [_, told, _] = messages(HI, turn, HI)
    calls = told.pop("tool_calls")
    assert told == {"role": "assistant", "content": "a", "reasoning_content": "hm"}
    assert [(call["id"], call["type"], call["function"]["name"]) for call in calls] == [
        ("t0", "function", "write"), ("t1", "function", "write")]
    assert [json.loads(call["function"]["arguments"]) for call in calls] == [{"text": NASTY}, {}]


def test_a_calls_input_is_sent_byte_for_byte() -> None:
    body = (b'{"model":"m","max_tokens":1,"messages":[{"role":"user","content":"x"},{"role":"assistant","content":['
            b'{"type":"tool_use","id":"t","name":"f",'
            b'"input":{"n": 1.0, "big":12345678901234567890, "s":"\\u003c<&>"}}]},'
            b'{"role":"user","content":[{"type":"tool_result","tool_use_id":"t"}]}]}')
    sent = json.loads(MESSAGES.read(body, {}, REQUEST_ID).body)["messages"]
    assert sent[1]["tool_calls"][0]["function"]["arguments"] == (
        '{"n": 1.0, "big":12345678901234567890, "s":"\\u003c<&>"}')
    assert sent[1]["content"] is None
    assert sent[2] == {"role": "tool", "content": "", "tool_call_id": "t"}


def test_results_come_first_and_what_they_show_after_them() -> None:
    results = {"role": "user", "content": [
        {"type": "text", "text": "and?"},
        {"type": "tool_result", "tool_use_id": "t0", "content": "plain"},
        {"type": "tool_result", "tool_use_id": "t1", "content": [TEXT, PNG], "is_error": False},
        {"type": "tool_result", "tool_use_id": "t2", "content": "no file", "is_error": True}]}
    assert messages(results) == [
        {"role": "tool", "content": "plain", "tool_call_id": "t0"},
        {"role": "tool", "content": "a", "tool_call_id": "t1"},
        {"role": "tool", "content": "Error: no file", "tool_call_id": "t2"},
        {"role": "user", "content": [PNG_PART, {"type": "text", "text": "and?"}]}]


def test_results_alone_are_no_message_of_the_users() -> None:
    assert messages({"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "r"}]}) == [
        {"role": "tool", "content": "r", "tool_call_id": "t"}]


def test_tools_are_functions() -> None:
    assert upstream(tools=[{**TOOL, "type": "custom", "cache_control": {"type": "ephemeral"}, "strict": True},
                           {"name": "f", "input_schema": {}, "defer_loading": True}])["tools"] == [
        {"type": "function", "function": {"name": "write", "description": "Writes.", "parameters": SCHEMA,
                                          "strict": True}},
        {"type": "function", "function": {"name": "f", "parameters": {}}}]


@pytest.mark.parametrize(("choice", "told"), [
    ({"type": "auto"}, "auto"), ({"type": "any"}, "required"), ({"type": "none"}, "none"),
    ({"type": "tool", "name": "write"}, {"type": "function", "function": {"name": "write"}})])
def test_a_choice_of_tools_has_its_name_in_chat(choice: dict[str, Any], told: object) -> None:
    sent = upstream(tools=[TOOL], tool_choice=choice)
    assert sent["tool_choice"] == told
    assert "parallel_tool_calls" not in sent


def test_one_call_at_a_time_can_be_asked_for() -> None:
    sent = upstream(tools=[TOOL], tool_choice={"type": "auto", "disable_parallel_tool_use": True})
    assert sent["parallel_tool_calls"] is False


@pytest.mark.parametrize(("thinking", "told"), [
    ({"type": "enabled", "budget_tokens": 2048}, {"enable_thinking": True, "thinking": True}),
    ({"type": "disabled"}, {"enable_thinking": False, "thinking": False}),
    ({"type": "adaptive"}, None), ({"type": "between_tools"}, None)])
def test_whether_to_think_is_told_to_the_chat_template(thinking: dict[str, Any], told: object) -> None:
    assert upstream(thinking=thinking).get("chat_template_args") == told


def test_effort_and_format_are_told_to_the_engine() -> None:
    sent = upstream(output_config={"effort": "max", "format": {"type": "json_schema", "schema": SCHEMA}})
    assert sent["reasoning_effort"] == "max"
    assert sent["response_format"] == {"type": "json_schema", "json_schema": {
        "name": "answer", "schema": SCHEMA, "strict": True}}
    older = upstream(output_format={"type": "json_schema", "schema": SCHEMA})
    assert older["response_format"] == sent["response_format"]


@pytest.mark.parametrize(("fields", "param"), [
    ({"foo": 1}, "foo"), ({"max_tokens": 0}, "max_tokens"), ({"max_tokens": None}, "max_tokens"),
    ({"messages": []}, "messages"), ({"temperature": "hot"}, "temperature"), ({"top_k": -1}, "top_k"),
    ({"stop_sequences": ["x" * 501] * 2}, "stop_sequences"), ({"stop_sequences": ["x"] * 33}, "stop_sequences"),
    ({"container": "c_1"}, "container"),
    ({"container": {"skills": []}}, "container"),
    ({"mcp_servers": [{"url": "u"}]}, "mcp_servers"), ({"inference_geo": "us"}, "inference_geo"),
    ({"speed": "fast"}, "speed"), ({"thread": {"type": "create"}}, "thread"),
    ({"service_tier": "priority"}, "service_tier"),
    ({"context_management": {"edits": [{"type": "compact_20260112"}]}}, "context_management.edits[0].type"),
    ({"thinking": {"type": "enabled"}}, "thinking.budget_tokens"), ({"thinking": {"type": "much"}}, "thinking.type"),
    ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "tools[0].type"),
    ({"tools": [TOOL, {"type": "bash_20250124", "name": "bash"}]}, "tools[1].type"),
    ({"tools": [{"name": "f"}]}, "tools[0].input_schema"), ({"tools": [{"input_schema": {}}]}, "tools[0].name"),
    ({"tool_choice": {"type": "any"}}, "tool_choice"),
    ({"tools": [TOOL], "tool_choice": {"type": "tool"}}, "tool_choice.name"),
    ({"output_config": {"effort": "little"}}, "output_config.effort"),
    ({"system": [PNG]}, "system[0].type"),
])
def test_a_field_that_cannot_be_served_is_named(fields: dict[str, Any], param: str) -> None:
    assert refused({"model": "m", "max_tokens": 9, "messages": [HI], **fields}).param == param


@pytest.mark.parametrize(("role", "block", "param"), [
    ("user", {"type": "container_upload", "file_id": "f"}, "messages[0].content[0].type"),
    ("user", {"type": "image", "source": {"type": "file", "file_id": "f"}}, "messages[0].content[0].source.type"),
    ("user", {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "x"}},
     "messages[0].content[0].source"),
    ("user", {"type": "tool_use", "id": "t", "name": "f", "input": {}}, "messages[0].content[0].type"),
    ("user", {"type": "tool_result", "content": "r"}, "messages[0].content[0].tool_use_id"),
    ("assistant", {"type": "tool_result", "tool_use_id": "t"}, "messages[0].content[0].type"),
    ("assistant", PNG, "messages[0].content[0].type"),
    ("user", {"type": "tool_result", "tool_use_id": "t", "content": [{"type": "search_result"}]},
     "messages[0].content[0].content[0].type"),
])
def test_a_block_that_cannot_be_served_is_named(role: str, block: dict[str, Any], param: str) -> None:
    assert refused_field({"role": role, "content": [block]}, HI) == param


@pytest.mark.parametrize("missing", ["model", "max_tokens", "messages"])
def test_what_is_missing_is_named(missing: str) -> None:
    body = {"model": "m", "max_tokens": 9, "messages": [HI]}
    del body[missing]
    assert refused(body).param == missing


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null", b'{"model":"\xff"}', b'"x"', b"[" * 100_000])
def test_what_is_no_request_is_refused(body: bytes) -> None:
    for dialect in MESSAGES, COUNT_TOKENS:
        with pytest.raises(Refusal) as raised:
            dialect.read(body, {}, REQUEST_ID)
        assert raised.value.status == 400


def test_a_last_word_of_the_assistants_is_not_continued() -> None:
    assert refused_field(HI, {"role": "assistant", "content": "The answer is"}) == "messages[1].role"

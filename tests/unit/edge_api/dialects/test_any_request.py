"""Whatever a client sends is either read, and then it is chat, or refused with a 400 in the dialect's own shape."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_api.dialects.base import Dialect
from edge_api.dialects.messages import COUNT_TOKENS, MESSAGES
from edge_api.dialects.messages.shapes import MessagesRequest
from edge_api.dialects.responses import INPUT_TOKENS, RESPONSES
from edge_api.dialects.responses.shapes import ResponsesRequest
from edge_api.errors import Refusal
from edge_api.hot.fields import ChatFields
from tests.unit.edge_api.dialects.small_edge import REQUEST_ID

WORDS = st.sampled_from([
    "text", "image", "document", "tool_use", "tool_result", "thinking", "redacted_thinking", "user", "assistant",
    "system", "message", "reasoning", "function_call", "function_call_output", "item_reference", "input_text",
    "output_text", "input_image", "refusal", "function", "custom", "auto", "any", "tool", "none", "required",
    "enabled", "base64", "url", "json_schema", "allowed_tools", "", "x", "é"])
KEYS = st.sampled_from([
    "type", "role", "content", "text", "source", "data", "media_type", "url", "id", "name", "input", "tool_use_id",
    "is_error", "thinking", "call_id", "arguments", "output", "summary", "image_url", "detail", "schema", "format",
    "effort", "input_schema", "parameters", "tools", "mode", "edits", "budget_tokens", "display", "user_id", "x"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2_000) | st.floats(allow_nan=False, allow_infinity=False) | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=5), max_leaves=20)
MESSAGES_KEYS = [field.name for field in msgspec.structs.fields(MessagesRequest)]
RESPONSES_KEYS = [field.name for field in msgspec.structs.fields(ResponsesRequest)]
MESSAGE: dict[str, Any] = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "x"}]}
RESPONSE: dict[str, Any] = {"model": "m", "input": "x"}
BLOCKS = st.lists(st.fixed_dictionaries({"type": WORDS}, optional={
    "text": WORDS, "id": WORDS, "name": WORDS, "input": VALUES, "tool_use_id": WORDS, "content": VALUES,
    "source": VALUES, "thinking": WORDS, "is_error": st.booleans(), "image_url": WORDS, "refusal": WORDS}), max_size=3)
ROLES = st.sampled_from(["user", "assistant", "system", "developer"])


def check(dialect: Dialect, body: object) -> None:
    """The request is read to chat, or refused."""
    try:
        asked = dialect.read(json.dumps(body).encode(), {}, REQUEST_ID)
    except Refusal as refused:
        status, told = dialect.refusal(refused, REQUEST_ID)
        assert status == 400
        assert json.loads(told)["error"]["message"]
        return
    assert msgspec.json.decode(asked.body, type=ChatFields).model == asked.fields.model
    for message in json.loads(asked.body)["messages"]:
        assert message["role"] in ("system", "user", "assistant", "tool")
        assert "content" in message
        assert message["content"] is not None or message["tool_calls"]


@pytest.mark.parametrize("dialect", [MESSAGES, COUNT_TOKENS])
@given(fields=st.dictionaries(st.sampled_from(MESSAGES_KEYS), VALUES, max_size=3))
def test_any_field_of_a_message(dialect: Dialect, fields: dict[str, Any]) -> None:
    check(dialect, {**MESSAGE, **fields})


@pytest.mark.parametrize("dialect", [RESPONSES, INPUT_TOKENS])
@given(fields=st.dictionaries(st.sampled_from(RESPONSES_KEYS), VALUES, max_size=3))
def test_any_field_of_a_response(dialect: Dialect, fields: dict[str, Any]) -> None:
    check(dialect, {**RESPONSE, **fields})


@given(st.lists(st.fixed_dictionaries({"role": ROLES, "content": WORDS | BLOCKS}), min_size=1, max_size=4))
def test_any_conversation_of_messages(turns: list[dict[str, Any]]) -> None:
    check(MESSAGES, {**MESSAGE, "messages": turns})
    check(COUNT_TOKENS, {**MESSAGE, "messages": turns})


@given(st.lists(st.fixed_dictionaries({}, optional={
    "type": WORDS, "role": ROLES, "content": WORDS | BLOCKS, "call_id": WORDS, "name": WORDS, "arguments": WORDS,
    "output": WORDS | BLOCKS, "summary": BLOCKS}), max_size=5))
def test_any_items_of_a_response(items: list[dict[str, Any]]) -> None:
    check(RESPONSES, {**RESPONSE, "input": items})


@pytest.mark.parametrize("dialect", [MESSAGES, COUNT_TOKENS, RESPONSES, INPUT_TOKENS])
@given(body=VALUES)
def test_any_json_at_all(dialect: Dialect, body: object) -> None:
    check(dialect, body)


@pytest.mark.parametrize("dialect", [MESSAGES, COUNT_TOKENS, RESPONSES, INPUT_TOKENS])
@given(body=st.binary(max_size=60))
def test_any_bytes_at_all(dialect: Dialect, body: bytes) -> None:
    with pytest.raises(Refusal) as raised:
        dialect.read(body, {}, REQUEST_ID)
    assert raised.value.status == 400

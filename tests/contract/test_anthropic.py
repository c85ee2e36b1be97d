"""Anthropic's own client, unmodified: only its base URL, which has no `/v1`, and its key are ours."""

from typing import Any

import anthropic
import pytest
from anthropic import Anthropic

from tests.contract.clients import Clients
from tests.contract.guests import MODEL, Guest, invite
from tests.contract.scripted import call, say, schema
from tests.e2e.stack import LocalStack
from tests.engine.cluster import MODEL as SCRIPTED_MODEL

pytestmark = pytest.mark.stack
HELLO: Any = [{"role": "user", "content": "hello there"}]
TOOLS: Any = [{"name": "scale", "description": "Scales.", "input_schema": schema(to="integer")}]


@pytest.fixture
def sdk(clients: Clients) -> Anthropic:
    return clients.anthropic


@pytest.fixture
def scripted_sdk(scripted_clients: Clients) -> Anthropic:
    return scripted_clients.anthropic


def client_of(guest: Guest, **options: Any) -> Anthropic:
    return Anthropic(**{"base_url": guest.url, "auth_token": guest.key, "max_retries": 0, **options})


def test_a_message_is_answered_with_its_usage_and_its_cost(sdk: Anthropic) -> None:
    message = sdk.messages.create(model=MODEL, max_tokens=7, messages=HELLO)
    assert (message.type, message.role, message.model, message.stop_reason) == (
        "message", "assistant", MODEL, "max_tokens")
    [block] = message.content
    assert block.type == "text"
    assert len(block.text.split()) == 7
    assert message.usage.output_tokens == 7
    assert message.usage.to_dict()["cost"] == pytest.approx(message.usage.input_tokens * 0.6e-6 + 7 * 2.2e-6)
    assert message.id.startswith("msg_")


def test_the_client_may_call_the_key_a_key(guest: Guest) -> None:
    with client_of(guest, auth_token=None, api_key=guest.key) as sdk:
        assert sdk.messages.create(model=MODEL, max_tokens=2, messages=HELLO).usage.output_tokens == 2


def test_a_model_may_be_called_by_the_name_that_pickers_keep(sdk: Anthropic) -> None:
    alias = f"claude-compat/{MODEL}"
    assert sdk.messages.create(model=alias, max_tokens=2, messages=HELLO).model == alias


def test_a_stream_tells_the_message_piece_by_piece(sdk: Anthropic) -> None:
    with sdk.messages.stream(model=MODEL, max_tokens=9, messages=HELLO) as stream:
        text = "".join(stream.text_stream)
        message = stream.get_final_message()
    [block] = message.content
    assert block.type == "text"
    assert (block.text, len(text.split())) == (text, 9)
    assert (message.stop_reason, message.usage.output_tokens) == ("max_tokens", 9)


def test_a_stream_has_the_events_that_clients_wait_for_in_their_order(sdk: Anthropic) -> None:
    events = list(sdk.messages.create(model=MODEL, max_tokens=3, messages=HELLO, stream=True))
    types = list(dict.fromkeys(event.type for event in events))
    assert types == ["message_start", "content_block_start", "content_block_delta", "content_block_stop",
                     "message_delta", "message_stop"]
    assert events[0].type == "message_start"
    assert events[0].message.usage.input_tokens > 0


def test_a_turn_with_a_cached_beginning_says_how_much_of_it_was_cached(sdk: Anthropic) -> None:
    long: Any = [{"role": "user", "content": "the very same long beginning " * 80}]
    first = sdk.messages.create(model=MODEL, max_tokens=2, messages=long).usage
    again = sdk.messages.create(model=MODEL, max_tokens=2, messages=long).usage
    assert first.input_tokens == again.input_tokens + (again.cache_read_input_tokens or 0)
    assert (again.cache_read_input_tokens or 0) > 300


def test_tokens_are_counted_without_an_answer_and_without_a_record(sdk: Anthropic, guest: Guest) -> None:
    asked: Any = {"model": MODEL, "messages": HELLO, "system": "Be brief.", "tools": TOOLS}
    counted = sdk.messages.count_tokens(**asked)
    raw = sdk.messages.with_raw_response.create(**asked, max_tokens=2)
    usage = raw.parse().usage
    assert usage.input_tokens + (usage.cache_read_input_tokens or 0) == counted.input_tokens
    guest.record_of(raw.headers["request-id"])
    assert counted._request_id
    assert not guest.has_record_of(counted._request_id)


def test_models_are_listed_for_people_who_pick_by_name(sdk: Anthropic) -> None:
    assert [model.id for model in sdk.models.list()] == [MODEL, f"claude-compat/{MODEL}"]
    found = sdk.models.retrieve(MODEL)
    assert (found.id, found.display_name) == (MODEL, "GLM-5.3 (simulated)")


def test_every_answer_names_its_request(sdk: Anthropic, guest: Guest) -> None:
    message = sdk.messages.create(model=MODEL, max_tokens=2, messages=HELLO)
    assert message._request_id
    assert guest.record_of(message._request_id)["completion_tokens"] == 2
    assert (sdk.messages.count_tokens(model=MODEL, messages=HELLO)._request_id or "").startswith("req_")


def test_a_tool_is_called_and_its_result_given_back(scripted_sdk: Anthropic) -> None:
    asked: Any = say(f"Let me see.{call('scale', to='3')}")
    first = scripted_sdk.messages.create(model=SCRIPTED_MODEL, max_tokens=400, messages=asked, tools=TOOLS)
    assert first.stop_reason == "tool_use"
    assert [block.type for block in first.content] == ["text", "tool_use"]
    use: Any = first.content[1]
    assert (use.name, use.input) == ("scale", {"to": 3})
    result: Any = {"type": "tool_result", "tool_use_id": use.id, "content": [{"type": "text", "text": "done <&>"}]}
    second = scripted_sdk.messages.create(model=SCRIPTED_MODEL, max_tokens=400, tools=TOOLS, messages=[
        *asked, {"role": "assistant", "content": first.content},
        {"role": "user", "content": [result, {"type": "text", "text": say("It is scaled.")[0]["content"]}]}])
    assert [block.to_dict() for block in second.content] == [{"type": "text", "text": "It is scaled."}]
    assert second.stop_reason == "end_turn"


def test_a_streamed_call_is_told_while_it_is_made(scripted_sdk: Anthropic) -> None:
    with scripted_sdk.messages.stream(model=SCRIPTED_MODEL, max_tokens=400, tools=TOOLS, messages=say(
            f"One.{call('scale', to='1')}{call('scale', to='2')}")) as stream:
        events = list(stream)
        message = stream.get_final_message()
    starts = [event.content_block.type for event in events if event.type == "content_block_start"]
    assert starts == ["text", "tool_use", "tool_use"]
    uses = [block for block in message.content if block.type == "tool_use"]
    assert [use.input for use in uses] == [{"to": 1}, {"to": 2}]
    assert len({use.id for use in uses}) == 2


def test_thinking_goes_back_with_the_conversation(scripted_sdk: Anthropic) -> None:
    asked: Any = {"model": SCRIPTED_MODEL, "max_tokens": 2000,
                  "thinking": {"type": "enabled", "budget_tokens": 1024}}
    first = scripted_sdk.messages.create(**asked, messages=say("hm</think>Yes."))
    assert [block.type for block in first.content] == ["thinking", "text"]
    second = scripted_sdk.messages.create(**asked, messages=[
        *say("hm</think>Yes."), {"role": "assistant", "content": first.content}, *say("well</think>No.")])
    assert [block.to_dict() for block in second.content][1] == {"type": "text", "text": "No."}


def test_a_key_of_nobody_is_an_authentication_error(guest: Guest) -> None:
    with client_of(guest, auth_token="sk-nobody") as sdk, pytest.raises(anthropic.AuthenticationError) as refused:
        sdk.messages.create(model=MODEL, max_tokens=2, messages=HELLO)
    body: Any = refused.value.body
    assert (body["type"], body["error"]["type"]) == ("error", "authentication_error")
    assert body["request_id"] == refused.value.request_id
    assert (refused.value.request_id or "").startswith("req_")


def test_a_model_that_there_is_not_is_not_found(sdk: Anthropic) -> None:
    with pytest.raises(anthropic.NotFoundError) as refused:
        sdk.messages.create(model="sim/none", max_tokens=2, messages=HELLO)
    body: Any = refused.value.body
    assert body["error"]["type"] == "not_found_error"


def test_a_wrong_field_is_a_bad_request_that_names_it(sdk: Anthropic) -> None:
    with pytest.raises(anthropic.BadRequestError, match="max_tokens"):
        sdk.messages.create(model=MODEL, max_tokens=10_000_000, messages=HELLO, stream=True)
    with pytest.raises(anthropic.BadRequestError, match="wrong_field: extra inputs are not permitted"):
        sdk.messages.create(model=MODEL, max_tokens=2, messages=HELLO, extra_body={"wrong_field": 1})


def test_no_money_is_a_billing_error_that_is_not_tried_again(stack: LocalStack) -> None:
    guest = invite(stack, ("teams", "billing", "TEAM", "--mode", "prepaid"))
    with client_of(guest, max_retries=2) as sdk, pytest.raises(anthropic.APIStatusError) as refused:
        sdk.messages.create(model=MODEL, max_tokens=2, messages=HELLO)
    body: Any = refused.value.body
    assert (refused.value.status_code, body["error"]["type"]) == (402, "billing_error")
    assert refused.value.response.request.headers["x-stainless-retry-count"] == "0"


def test_a_limit_is_a_rate_limit_error(stack: LocalStack) -> None:
    guest = invite(stack, ("limits", "set", "--key", "KEY", "--rpm", "1"))
    with client_of(guest) as sdk:
        sdk.messages.create(model=MODEL, max_tokens=2, messages=HELLO)
        with pytest.raises(anthropic.RateLimitError) as refused:
            sdk.messages.create(model=MODEL, max_tokens=2, messages=HELLO)
    body: Any = refused.value.body
    assert body["error"]["type"] == "rate_limit_error"
    assert 0 < int(refused.value.response.headers["retry-after"]) <= 120

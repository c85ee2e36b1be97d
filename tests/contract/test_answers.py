"""What clients may ask of an answer, and get: thoughts, formats, stops, probabilities, tool choice."""

import json
from decimal import Decimal
from typing import Any

import anthropic
import openai
import pytest
from pydantic import BaseModel

from tests.contract.clients import DIALECTS, Clients, Told
from tests.contract.scripted import ScriptedEdge, call, say, schema
from tests.engine.cluster import MODEL

THOUGHT, ANSWER = "so it is\n漢", "Paris 🗼, of course."
POINT = schema(x="integer", name="string")
TOOLS: Any = [{"type": "function", "function": {"name": "scale", "parameters": schema(to="integer")}}]
CHAT_THINKS: Any = {"chat_template_args": {"enable_thinking": True}}


class Point(BaseModel):
    """A client's own type."""

    x: int
    name: str


@pytest.fixture
def sdk(scripted_clients: Clients) -> openai.OpenAI:
    return scripted_clients.openai


def test_a_thought_is_reasoning_content_in_chat(sdk: openai.OpenAI) -> None:
    asked: Any = {"model": MODEL, "messages": say(f"{THOUGHT}</think>{ANSWER}"), "extra_body": CHAT_THINKS}
    answer = sdk.chat.completions.create(**asked)
    message = answer.choices[0].message
    assert (message.to_dict()["reasoning_content"], message.content) == (THOUGHT, ANSWER)
    assert answer.usage
    assert answer.usage.completion_tokens_details
    reasoning = answer.usage.completion_tokens_details.reasoning_tokens
    assert reasoning
    assert 0 < reasoning < answer.usage.completion_tokens

    deltas = [event.choices[0].delta.to_dict() for event in sdk.chat.completions.create(**asked, stream=True)]
    assert "".join(str(delta.get("reasoning_content") or "") for delta in deltas) == THOUGHT
    assert "".join(str(delta.get("content") or "") for delta in deltas) == ANSWER


def test_a_thought_is_a_thinking_block_in_messages(scripted_clients: Clients) -> None:
    asked: Any = {"model": MODEL, "max_tokens": 2000, "messages": say(f"{THOUGHT}</think>{ANSWER}"),
                  "thinking": {"type": "enabled", "budget_tokens": 1024}}
    expected = [{"type": "thinking", "thinking": THOUGHT, "signature": ""}, {"type": "text", "text": ANSWER}]
    answer = scripted_clients.anthropic.messages.create(**asked)
    assert [block.to_dict() for block in answer.content] == expected
    assert answer.usage.output_tokens_details
    assert 0 < answer.usage.output_tokens_details.thinking_tokens < answer.usage.output_tokens
    with scripted_clients.anthropic.messages.stream(**asked) as stream:
        assert [block.to_dict() for block in stream.get_final_message().content] == expected


def test_a_thought_is_a_reasoning_item_in_responses(sdk: openai.OpenAI) -> None:
    asked: Any = {"model": MODEL, "input": say(f"{THOUGHT}</think>{ANSWER}"), "reasoning": {"effort": "high"}}
    answer = sdk.responses.create(**asked)
    with sdk.responses.stream(**asked) as stream:
        streamed = stream.get_final_response()
    for response in (answer, streamed):
        assert [item.type for item in response.output] == ["reasoning", "message"]
        thought: Any = response.output[0]
        assert [part.text for part in thought.content] == [THOUGHT]
        assert response.output_text == ANSWER
        assert response.usage
        assert response.usage.output_tokens_details.reasoning_tokens > 0


@pytest.mark.parametrize("stream", [False, True])
def test_one_answer_costs_the_same_in_every_dialect(
        scripted: ScriptedEdge, scripted_clients: Clients, stream: bool) -> None:
    told = {name: DIALECTS[name](scripted_clients, stream, model=MODEL, max_tokens=400, messages=say(ANSWER))
            for name in ("chat", "messages", "responses")}
    assert len({each._replace(request_id="") for each in told.values()}) == 1
    for name, each in told.items():
        record = scripted.record_of(each.request_id)
        assert Told(each.request_id, record.prompt_tokens, record.cached_tokens, record.completion_tokens,
                    record.reasoning_tokens, Decimal(record.cost_usd)) == each
        assert (record.dialect, record.streamed, record.finish_reason) == (name, stream, "stop")


def test_a_schema_is_parsed_into_the_clients_own_type(scripted_clients: Clients) -> None:
    written = Point(x=-3, name='<q> & "😀"\n')
    asked = say(written.model_dump_json())
    sdk = scripted_clients.openai
    parsed = sdk.chat.completions.parse(model=MODEL, messages=asked, response_format=Point).choices[0].message.parsed
    with sdk.chat.completions.stream(model=MODEL, messages=asked, response_format=Point) as stream:
        streamed = stream.get_final_completion().choices[0].message.parsed
    responded = sdk.responses.parse(model=MODEL, input=asked, text_format=Point).output_parsed
    message = scripted_clients.anthropic.messages.parse(
        model=MODEL, max_tokens=400, messages=asked, output_format=Point).parsed_output
    assert [parsed, streamed, responded, message] == [written] * 4


def test_an_object_may_be_asked_for_without_a_schema(sdk: openai.OpenAI) -> None:
    answer = sdk.chat.completions.create(
        model=MODEL, messages=say('{"a": [1, {}]}'), response_format={"type": "json_object"})
    assert json.loads(answer.choices[0].message.content or "") == {"a": [1, {}]}


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_ends_before_a_stop_string(scripted_clients: Clients, stream: bool) -> None:
    asked: Any = {"model": MODEL, "messages": say("one two END three"), "stop": ["END", "never"]}
    if stream:
        events = list(scripted_clients.openai.chat.completions.create(**asked, stream=True))
        text = "".join(event.choices[0].delta.content or "" for event in events)
        assert events[-1].choices[0].finish_reason == "stop"
    else:
        text = scripted_clients.openai.chat.completions.create(**asked).choices[0].message.content or ""
    assert text == "one two "


def test_messages_name_the_stop_string(scripted_clients: Clients) -> None:
    asked: Any = {"model": MODEL, "max_tokens": 400, "messages": say("one two END three"),
                  "stop_sequences": ["never", "END"]}
    answer = scripted_clients.anthropic.messages.create(**asked)
    with scripted_clients.anthropic.messages.stream(**asked) as stream:
        streamed = stream.get_final_message()
    for message in (answer, streamed):
        assert (message.stop_reason, message.stop_sequence) == ("stop_sequence", "END")
        assert [block.to_dict() for block in message.content] == [{"type": "text", "text": "one two "}]


def test_an_answer_that_reaches_its_limit_says_so_in_every_dialect(scripted_clients: Clients) -> None:
    sdk, messages = scripted_clients.openai, say("one two three four five six seven eight")
    answer = sdk.chat.completions.create(model=MODEL, messages=messages, max_completion_tokens=3)
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage
    assert answer.usage.completion_tokens == 3
    message = scripted_clients.anthropic.messages.create(model=MODEL, messages=messages, max_tokens=3)
    assert (message.stop_reason, message.usage.output_tokens) == ("max_tokens", 3)
    response = sdk.responses.create(model=MODEL, input=messages, max_output_tokens=16)
    assert response.status == "completed"
    response = sdk.responses.create(model=MODEL, input=say("one two three " * 20), max_output_tokens=16)
    assert response.status == "incomplete"
    assert response.incomplete_details
    assert response.incomplete_details.reason == "max_output_tokens"


@pytest.mark.parametrize("stream", [False, True])
def test_log_probabilities_come_for_every_token_of_a_chat(sdk: openai.OpenAI, stream: bool) -> None:
    asked: Any = {"model": MODEL, "messages": say("one two three"), "logprobs": True, "top_logprobs": 2}
    if stream:
        found = [each for event in sdk.chat.completions.create(**asked, stream=True) for choice in event.choices
                 if choice.logprobs for each in choice.logprobs.content or []]
    else:
        logprobs = sdk.chat.completions.create(**asked).choices[0].logprobs
        assert logprobs
        found = logprobs.content or []
    assert "".join(each.token for each in found).startswith("one two three")
    assert all(each.logprob <= 0 and len(each.top_logprobs) == 2 for each in found)


def test_log_probabilities_of_a_completion_are_asked_for_by_number(sdk: openai.OpenAI) -> None:
    messages = say("one two three")
    answer = sdk.completions.create(model=MODEL, prompt=messages[0]["content"], max_tokens=50, logprobs=2)
    assert answer.choices[0].text == "one two three"
    assert answer.choices[0].logprobs
    assert len(answer.choices[0].logprobs.token_logprobs or []) >= 3


def test_log_probabilities_come_with_a_response(sdk: openai.OpenAI) -> None:
    answer = sdk.responses.create(model=MODEL, input=say("one two three"), top_logprobs=2,
                                  include=["message.output_text.logprobs"])
    message: Any = answer.output[0]
    assert "".join(each.token for each in message.content[0].logprobs).startswith("one two three")


@pytest.mark.parametrize("choice", ["auto", "required", {"type": "function", "function": {"name": "scale"}}])
def test_tools_may_be_chosen_by_the_model_or_for_it(sdk: openai.OpenAI, choice: Any) -> None:
    asked: Any = {"model": MODEL, "messages": say(call("scale", to="3")), "tools": TOOLS, "tool_choice": choice}
    answer = sdk.chat.completions.create(**asked)
    [made] = answer.choices[0].message.tool_calls or []
    with sdk.chat.completions.stream(**asked) as stream:
        [streamed] = stream.get_final_completion().choices[0].message.tool_calls or []
    for each in (made, streamed):
        assert each.type == "function"
        assert (each.function.name, json.loads(each.function.arguments)) == ("scale", {"to": 3})
        assert each.id


def test_tools_may_be_forbidden(sdk: openai.OpenAI) -> None:
    answer = sdk.chat.completions.create(model=MODEL, messages=say("No call."), tools=TOOLS, tool_choice="none")
    assert (answer.choices[0].message.content, answer.choices[0].message.tool_calls) == ("No call.", None)


@pytest.mark.parametrize("tier", ["auto", "default", "flex", "priority"])
def test_a_tier_may_be_asked_for_and_the_record_says_which_served(
        scripted: ScriptedEdge, sdk: openai.OpenAI, tier: Any) -> None:
    raw = sdk.chat.completions.with_raw_response.create(model=MODEL, messages=say("Yes."), service_tier=tier, seed=7)
    answer = raw.parse()
    assert (answer.choices[0].message.content, answer.service_tier) == ("Yes.", "default")
    assert scripted.record_of(raw.headers["x-request-id"]).service_tier == "default"


def test_a_tier_that_there_is_not_is_named(sdk: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        sdk.chat.completions.create(model=MODEL, messages=say("Yes."), service_tier="best")  # type: ignore[call-overload]
    assert refused.value.param == "service_tier"


@pytest.mark.parametrize(("kind", "asked"), [
    ("completions", {"echo": True}), ("completions", {"suffix": "x"}), ("completions", {"best_of": 3}),
    ("chat", {"web_search_options": {}}), ("chat", {"modalities": ["text", "audio"]}), ("chat", {"verbosity": "low"}),
    ("chat", {"functions": [{"name": "f", "parameters": {}}]}), ("chat", {"no_such_field": 1})])
def test_what_would_change_the_answer_and_is_not_served_is_refused_by_name(
        sdk: openai.OpenAI, kind: str, asked: dict[str, Any]) -> None:
    ask: Any = sdk.chat.completions.create if kind == "chat" else sdk.completions.create
    said = {"messages": say("Yes.")} if kind == "chat" else {"prompt": say("Yes.")[0]["content"]}
    with pytest.raises(openai.BadRequestError) as refused:
        ask(model=MODEL, **said, extra_body=asked)
    assert (refused.value.code, refused.value.param) == ("unsupported_parameter", next(iter(asked)))


@pytest.mark.parametrize("stream", [False, True])
def test_what_the_engine_refuses_is_not_tried_again(scripted_clients: Clients, stream: bool) -> None:
    """The engine's own refusal: its prompt holds no script. In a stream it comes behind a head that says 200."""
    asked: Any = {"model": MODEL, "messages": [{"role": "user", "content": "hello"}], "stream": stream}
    with pytest.raises(openai.APIError, match="no SCRIPT in the prompt") as refused:
        list(scripted_clients.openai.chat.completions.create(**asked))
    assert (refused.value.code, refused.value.type) == ("invalid_value", "invalid_request_error")
    with pytest.raises(anthropic.APIStatusError, match="no SCRIPT in the prompt") as told:
        list(scripted_clients.anthropic.messages.create(**asked, max_tokens=10))
    body: Any = told.value.body
    assert body["error"]["type"] == "invalid_request_error"

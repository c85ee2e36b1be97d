"""Several choices in one answer, asked for by OpenAI's client: one prompt, one bill."""

from decimal import Decimal
from typing import Any

import openai
import pytest

from tests.contract.clients import DIALECTS, Clients
from tests.contract.scripted import ScriptedEdge, call, say, schema
from tests.engine.cluster import MODEL

CHOICES = 3
ANSWER = "Paris 🗼."
TOOLS: Any = [{"type": "function", "function": {"name": "scale", "parameters": schema(to="integer")}}]


@pytest.fixture
def sdk(scripted_clients: Clients) -> openai.OpenAI:
    return scripted_clients.openai


def test_a_chat_has_as_many_choices_as_were_asked_for(sdk: openai.OpenAI) -> None:
    answer = sdk.chat.completions.create(model=MODEL, messages=say(ANSWER), n=CHOICES, seed=1)
    assert [(each.index, each.message.content, each.finish_reason) for each in answer.choices] == [
        (index, ANSWER, "stop") for index in range(CHOICES)]


def test_a_completion_has_as_many_choices_as_were_asked_for(sdk: openai.OpenAI) -> None:
    answer = sdk.completions.create(model=MODEL, prompt=say(ANSWER)[0]["content"], n=CHOICES, max_tokens=100)
    assert [(each.index, each.text) for each in answer.choices] == [(index, ANSWER) for index in range(CHOICES)]


def test_the_choices_of_a_stream_are_told_apart_by_their_index(sdk: openai.OpenAI) -> None:
    events = list(sdk.chat.completions.create(
        model=MODEL, messages=say(ANSWER), n=CHOICES, stream=True, stream_options={"include_usage": True}))
    texts, ends = [""] * CHOICES, [""] * CHOICES
    for event in events:
        for choice in event.choices:
            texts[choice.index] += choice.delta.content or ""
            ends[choice.index] += choice.finish_reason or ""
    assert (texts, ends) == ([ANSWER] * CHOICES, ["stop"] * CHOICES)
    assert len({(event.id, event.created, event.model) for event in events}) == 1
    assert [event.usage is not None for event in events] == [False] * (len(events) - 1) + [True]


def test_calls_of_several_choices_do_not_mix(sdk: openai.OpenAI) -> None:
    with sdk.chat.completions.stream(
            model=MODEL, messages=say(call("scale", to="3")), tools=TOOLS, n=CHOICES) as stream:
        answer = stream.get_final_completion()
    made = [each.function.arguments for choice in answer.choices for each in choice.message.tool_calls or []]
    assert made == ['{"to":3}'] * CHOICES


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("dialect", ["chat", "completions"])
def test_the_prompt_is_billed_once_and_every_choice_is_recorded_in_one_record(
        scripted: ScriptedEdge, scripted_clients: Clients, dialect: str, stream: bool) -> None:
    asked: Any = {"model": MODEL, "messages": say(ANSWER), "max_tokens": 100}
    before = len(scripted.records())
    one = DIALECTS[dialect](scripted_clients, stream, **asked)
    several = DIALECTS[dialect](scripted_clients, stream, n=CHOICES, **asked)
    assert (several.prompt, several.completion) == (one.prompt, CHOICES * one.completion)
    record = scripted.record_of(several.request_id)
    assert (record.prompt_tokens, record.completion_tokens, Decimal(record.cost_usd)) == (
        several.prompt, several.completion, several.cost_usd)
    assert (record.dialect, record.streamed) == (dialect, stream)
    assert len(scripted.records()) == before + 2


def test_more_choices_than_there_may_be_are_refused_by_name(sdk: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        sdk.chat.completions.create(model=MODEL, messages=say(ANSWER), n=1000)
    assert refused.value.param == "n"

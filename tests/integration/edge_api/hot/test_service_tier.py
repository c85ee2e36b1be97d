"""The service tier on a running edge: told to whoever asked, never asked of a datacenter, and in the usage record."""

import json
from typing import Any

import pytest

from tests.integration.edge_api.hot.client import Answer, request
from tests.integration.edge_api.hot.conftest import EdgeUnderTest
from tests.integration.edge_api.hot.datacenter import Datacenter, Upcall, whole_answer

TIERS = ["auto", "default", "flex", "priority", "fast", "scale"]


def tiers(answer: Answer) -> set[str | None]:
    """What each chunk of a stream tells."""
    return {event.get("service_tier") for event in answer.events if isinstance(event, dict)}


async def ask(edge: EdgeUnderTest, path: str, **body: Any) -> Answer:
    return await edge.client.send(request(edge.client.key, {"model": edge.client.model, **body}, path=path))


@pytest.mark.parametrize("tier", TIERS)
async def test_an_answer_tells_the_tier_that_served(edge: EdgeUnderTest, home: Datacenter, tier: str) -> None:
    answer = await edge.client.ask(service_tier=tier)
    assert (answer.json["service_tier"], answer.json["usage"]["cost"]) == ("default", 0.0000162)
    assert "service_tier" not in home.seen[0].body
    assert (await edge.record()).service_tier == "default"


@pytest.mark.parametrize("wants_usage", [False, True])
async def test_every_chunk_of_a_stream_tells_it(edge: EdgeUnderTest, wants_usage: bool) -> None:
    answer = await edge.client.ask(stream=True, service_tier="flex", stream_options={"include_usage": wants_usage})
    assert (tiers(answer), answer.text, answer.events[-1]) == ({"default"}, " the quick fox", "[DONE]")
    assert ("usage" in answer.events[-2]) is wants_usage
    assert (await edge.record()).service_tier == "default"


async def test_who_did_not_ask_is_not_told(edge: EdgeUnderTest) -> None:
    assert "service_tier" not in (await edge.client.ask()).json
    assert tiers(await edge.client.ask(stream=True)) == {None}


async def test_several_choices_tell_it_once_each_chunk(edge: EdgeUnderTest) -> None:
    assert (await edge.client.ask(n=2, service_tier="flex")).json["service_tier"] == "default"
    answer = await edge.client.ask(n=2, stream=True, service_tier="flex", stream_options={"include_usage": True})
    assert tiers(answer) == {"default"}
    assert answer.body.count(b'"service_tier"') == len(answer.events) - 1
    assert answer.events[-2]["usage"]["completion_tokens"] == 6


async def test_what_a_datacenter_says_of_tiers_is_not_passed_on(edge: EdgeUnderTest, home: Datacenter) -> None:
    async def script(call: Upcall) -> None:
        await call.answer(200, {**whole_answer("x"), "service_tier": "priority"})

    home.script = script
    answer = await edge.client.ask(service_tier="priority")
    assert answer.json["service_tier"] == "default"
    assert answer.body.count(b"service_tier") == 1


async def test_a_response_and_a_message_tell_it_in_their_own_words(edge: EdgeUnderTest) -> None:
    response = await ask(edge, "/v1/responses", input="hi", store=False, service_tier="priority")
    message = await ask(edge, "/v1/messages", messages=[{"role": "user", "content": "hi"}], max_tokens=9,
                        service_tier="standard_only")
    assert response.json["service_tier"] == "default"
    assert message.json["usage"]["service_tier"] == "standard"
    assert [record.service_tier for record in edge.records()] == ["default"] * 2


async def test_a_streamed_response_claims_no_other_tier_from_its_start(edge: EdgeUnderTest) -> None:
    answer = await ask(edge, "/v1/responses", input="hi", store=False, stream=True, service_tier="priority")
    told = [event["response"]["service_tier"] for event in answer.events if "response" in event]
    assert told == ["default"] * 3


MESSAGES = [{"role": "user", "content": "hi"}]


@pytest.mark.parametrize(("path", "body"), [
    ("/v1/chat/completions", {"messages": MESSAGES}), ("/v1/completions", {"prompt": "hi"}),
    ("/v1/responses", {"input": "hi", "store": False}), ("/v1/messages", {"messages": MESSAGES, "max_tokens": 5})])
async def test_a_tier_that_does_not_exist_is_refused_and_named(
        edge: EdgeUnderTest, home: Datacenter, path: str, body: dict[str, Any]) -> None:
    answer = await ask(edge, path, **body, service_tier="platinum")
    assert answer.status == 400
    assert "service_tier" in json.dumps(answer.json)
    assert not home.seen

"""Requests that only ask for the length of their prompt: who answers them, who does not, and what is left of them."""

import asyncio
from dataclasses import replace

import pytest

from control_plane.contracts import ids
from control_plane.contracts.deployment import EngineFacts
from tests.integration.edge_api.hot.client import Answer, request
from tests.integration.edge_api.hot.conftest import HOME, EdgeUnderTest, until
from tests.integration.edge_api.hot.datacenter import Datacenter, Script, Upcall, answers, refuses

MESSAGES, RESPONSES = "/v1/messages/count_tokens", "/api/v1/responses/input_tokens"


async def counts(call: Upcall) -> None:
    """Says the ids of the prompt, and would go on with an answer."""
    assert call.body["nvext"] == {"annotations": ["token_ids"]}
    await call.begin_stream()
    await call.send(b'event: token_ids\n: "[7,8,9]"\n\n')
    await call.until_abandoned()


async def lost(call: Upcall) -> None:
    """Its connection ends before anything is said."""
    call.reset()


@pytest.fixture
def both(edge: EdgeUnderTest) -> EdgeUnderTest:
    """Both datacenters serve; nearly every session goes home first."""
    edge.prefer_home()
    return edge


def question(edge: EdgeUnderTest, path: str = MESSAGES, headers: str = "") -> bytes:
    asked = {"input": "hi"} if path == RESPONSES else {"messages": [{"role": "user", "content": "hi"}]}
    return request(edge.client.key, {"model": edge.client.model, **asked}, headers, path)


async def count(edge: EdgeUnderTest, path: str = MESSAGES) -> Answer:
    return await edge.client.send(question(edge, path))


@pytest.mark.parametrize("path", [MESSAGES, RESPONSES])
async def test_a_prompt_is_counted_and_nothing_is_recorded(edge: EdgeUnderTest, home: Datacenter, path: str) -> None:
    home.script = counts
    answer = await count(edge, path)
    assert (answer.status, answer.json["input_tokens"]) == (200, 3)
    assert answer.headers["x-billed-team"] == "team_1"
    assert edge.frames() == []


@pytest.mark.parametrize("script", [refuses(500), refuses(503), lost, answers])
async def test_another_datacenter_counts_when_home_does_not(
        both: EdgeUnderTest, home: Datacenter, other: Datacenter, script: Script) -> None:
    home.script, other.script = script, counts
    assert (await count(both)).json["input_tokens"] == 3


async def test_a_failure_to_count_is_the_datacenters(both: EdgeUnderTest, home: Datacenter, other: Datacenter) -> None:
    home.script, other.script = refuses(503), counts
    await count(both)
    labels = {"datacenter": HOME, "kind": "overloaded"}
    assert both.metrics.registry.get_sample_value("meridian_edge_upstream_failures_total", labels) == 1


async def test_what_an_engine_refuses_is_not_asked_elsewhere(
        both: EdgeUnderTest, home: Datacenter, other: Datacenter) -> None:
    home.script, other.script = refuses(400), counts
    assert (await count(both)).status == 400
    assert other.seen == []


async def test_overload_everywhere_says_when_to_come_back(
        both: EdgeUnderTest, home: Datacenter, other: Datacenter) -> None:
    home.script = other.script = refuses(503)
    response, message = await count(both, RESPONSES), await count(both)
    assert (response.status, response.error["code"]) == (429, "capacity_exhausted")
    assert int(response.headers["retry-after"]) >= 1
    assert (message.status, message.error["type"]) == (529, "overloaded_error")


async def test_failure_everywhere_is_502(both: EdgeUnderTest, home: Datacenter, other: Datacenter) -> None:
    home.script = other.script = lost
    assert (await count(both)).status == 502


async def test_repeated_questions_are_bounded_when_everything_fails(
        both: EdgeUnderTest, home: Datacenter, other: Datacenter) -> None:
    home.script = other.script = refuses(502)
    for _ in range(100):
        await count(both)
    assert len(home.seen) + len(other.seen) <= 120


async def test_a_client_that_leaves_ends_the_question(edge: EdgeUnderTest, home: Datacenter) -> None:
    left = asyncio.Event()

    async def silent(call: Upcall) -> None:
        await call.until_abandoned()
        left.set()

    home.script = silent
    async with edge.client.connection() as connection:
        await connection.send(question(edge))
        await until(lambda: home.seen)
    async with asyncio.timeout(1):
        await left.wait()


async def test_a_model_that_nobody_serves_cannot_be_counted_for(edge: EdgeUnderTest) -> None:
    edge.route_to(us_east_1=0)
    answer = await count(edge)
    assert (answer.status, answer.error["code"]) == (503, "model_unavailable")


async def test_a_prompt_is_counted_in_the_requests_own_region(both: EdgeUnderTest, other: Datacenter) -> None:
    other.script = counts
    answer = await both.client.send(question(both, headers="x-meridian-region: eu-north-1\r\n"))
    assert answer.json["input_tokens"] == 3
    both.route_to(us_east_1=1, eu_north_1=0)
    drained = await both.client.send(question(both, headers="x-meridian-region: eu-north-1\r\n"))
    assert (drained.status, drained.error["code"]) == (503, "region_unavailable")


async def test_a_question_carries_the_teams_salt(edge: EdgeUnderTest, home: Datacenter) -> None:
    home.script, key, table = counts, ids.secret_digest(edge.client.key), edge.holder.current
    edge.directory.known[key] = edge.principal.model_copy(update={"cache_salt": "c2FsdA"})
    assert table is not None
    model = table.models[edge.client.model]
    aware = tuple(replace(route, engine=EngineFacts(is_salt_aware=True)) for route in model.routes)
    table.models[model.id] = replace(model, routes=aware)
    assert (await count(edge)).status == 200
    assert home.seen[0].body["cache_salt"] == "c2FsdA"

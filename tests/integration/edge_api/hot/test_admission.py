"""Whom the hot path lets in, with which key, as which team, where, and what becomes of the grant."""

from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from control_plane.contracts.deployment import EngineFacts
from control_plane.contracts.keys import LimitScope
from edge_api import errors
from edge_api.dialects.plain import KEEP_ALIVE
from edge_api.errors import Refusal
from edge_api.hot.services import Need
from tests.integration.edge_api.hot.client import request
from tests.integration.edge_api.hot.conftest import OTHER, EdgeUnderTest, until
from tests.integration.edge_api.hot.datacenter import Datacenter, Upcall, chunk, refuses, streams

LIMIT_LINES = b"x-ratelimit-limit-requests: 60\r\nx-ratelimit-remaining-requests: 59\r\n"


@dataclass
class Given:
    """A grant that notes what is done with it."""

    need: Need
    headers: bytes = LIMIT_LINES
    settled: list[tuple[int, int]] = field(default_factory=list)
    released: int = 0

    def settle(self, tokens: int, cost_nusd: int) -> None:
        assert not self.released
        self.settled.append((tokens, cost_nusd))

    def release(self) -> None:
        self.released += 1


@dataclass
class Door:
    """An admission that does as it is told: at once, or only when asked, or not at all."""

    is_slow: bool = False
    refusal: Refusal | None = None
    given: list[Given] = field(default_factory=list)

    def admit_now(self, need: Need) -> Given | None:
        return None if self.is_slow else self._give(need)

    async def admit(self, need: Need) -> Given:
        return self._give(need)

    def _give(self, need: Need) -> Given:
        if self.refusal is not None:
            raise self.refusal
        self.given.append(Given(need))
        return self.given[-1]


@pytest.fixture
def door(edge: EdgeUnderTest) -> Door:
    """Asked for every request of the key, for its team's money binds it."""
    door = Door()
    edge.services.admission = door
    edge.principal = edge.principal.model_copy(update={"money_scopes": [LimitScope.TEAM]})
    bind(edge)
    return door


def bind(edge: EdgeUnderTest, **changed: Any) -> None:
    """Gives the key other bounds."""
    principal = edge.principal.model_copy(update=changed)
    edge.directory.known = dict.fromkeys(edge.directory.known, principal)


async def test_a_key_that_nothing_binds_is_let_in_unasked(edge: EdgeUnderTest, door: Door) -> None:
    bind(edge, money_scopes=[])
    answer = await edge.client.ask()
    assert (answer.status, door.given) == (200, [])
    assert not any(name.startswith("x-ratelimit") for name in answer.headers)


async def test_anthropics_key_header_is_a_key_too(edge: EdgeUnderTest) -> None:
    asked = request("", edge.client.body(), f"x-api-key: {edge.client.key}\r\n")
    assert (await edge.client.send(asked)).status == 200


async def test_a_wrong_scheme_is_no_key(edge: EdgeUnderTest) -> None:
    key = edge.client.key
    asked = request("", edge.client.body(), f"authorization: Basic {key}\r\nx-api-key: {key}\r\n")
    assert (await edge.client.send(asked)).status == 401


async def test_a_foreign_team_is_refused_and_costs_nobody_anything(edge: EdgeUnderTest, home: Datacenter) -> None:
    answer = await edge.client.ask("x-prime-team-id: team_2\r\n")
    assert (answer.status, answer.error["code"], answer.headers["x-should-retry"]) == (403, "team_mismatch", "false")
    assert not home.seen
    assert not edge.frames()


async def test_the_keys_own_team_may_be_named(edge: EdgeUnderTest) -> None:
    answer = await edge.client.ask("x-prime-team-id: team_1\r\n")
    assert (answer.status, answer.headers["x-billed-team"]) == (200, "team_1")


async def test_a_model_that_the_key_may_not_use_is_not_found(edge: EdgeUnderTest) -> None:
    bind(edge, allowed_models=["other/model"])
    answer = await edge.client.ask()
    assert (answer.status, answer.error["code"]) == (404, "model_not_found")


@pytest.mark.parametrize("headers", ["", "x-meridian-region: eu-north-1\r\n"])
async def test_a_request_is_served_in_its_region_only(
        edge: EdgeUnderTest, home: Datacenter, other: Datacenter, headers: str) -> None:
    edge.prefer_home()
    if not headers:
        bind(edge, regions=["eu-north-1"])
    assert (await edge.client.ask(headers)).headers["x-meridian-datacenter"] == OTHER
    assert not home.seen


async def test_a_drained_region_is_said_to_be_unavailable(edge: EdgeUnderTest) -> None:
    edge.route_to(us_east_1=1, eu_north_1=0)
    answer = await edge.client.ask("x-meridian-region: eu-north-1\r\n")
    assert (answer.status, answer.error["code"]) == (503, "region_unavailable")
    assert answer.headers["x-should-retry"] == "true"


async def test_a_failure_in_the_only_region_goes_nowhere_else(
        edge: EdgeUnderTest, home: Datacenter, other: Datacenter) -> None:
    edge.prefer_home()
    home.script = refuses(503)
    assert (await edge.client.ask("x-meridian-region: us-east-1\r\n")).status == 429
    assert not other.seen


async def test_an_answer_carries_the_limits_and_settles_what_was_used(edge: EdgeUnderTest, door: Door) -> None:
    answer = await edge.client.ask(max_tokens=10)
    assert answer.headers["x-ratelimit-remaining-requests"] == "59"
    record = await edge.record()
    [grant] = door.given
    assert grant.settled == [(record.prompt_tokens + record.completion_tokens,
                              -int(-float(record.cost_usd) * 1_000_000_000 // 1))]
    assert grant.released == 1


async def test_the_worst_case_is_what_is_asked_for(edge: EdgeUnderTest, door: Door) -> None:
    body = edge.client.body(max_tokens=10, n=2)
    await edge.client.send(request(edge.client.key, body))
    need = door.given[0].need
    assert need.completion_tokens == 20
    assert need.prompt_tokens >= len(b'{"role": "user", "content": "hi"}')
    assert need.cost_nusd > 0


async def test_whoever_must_ask_first_is_served_after_that(edge: EdgeUnderTest, door: Door) -> None:
    door.is_slow = True
    assert (await edge.client.ask(stream=True)).text == " the quick fox"
    await until(lambda: door.given[0].released == 1)


@pytest.mark.parametrize("is_slow", [True, False])
async def test_a_refused_request_is_never_sent(
        edge: EdgeUnderTest, home: Datacenter, door: Door, is_slow: bool) -> None:
    door.is_slow, door.refusal = is_slow, Refusal(errors.RATE_LIMITED, "60 requests a minute are used up", None, 2.0)
    answer = await edge.client.ask()
    assert (answer.status, answer.error["message"]) == (429, "60 requests a minute are used up")
    assert not home.seen
    assert not edge.frames()


@pytest.mark.parametrize("script", [refuses(500), refuses(400, {"message": "x"}), streams(), streams(chunk(" a", [1]))])
async def test_a_grant_is_given_back_however_the_request_ends(
        edge: EdgeUnderTest, home: Datacenter, door: Door, script: Any) -> None:
    home.script = script
    await edge.client.ask(stream=True)
    [grant] = door.given
    assert grant.released == 1
    assert len(grant.settled) == 1


async def test_a_grant_is_given_back_when_the_client_leaves(edge: EdgeUnderTest, home: Datacenter, door: Door) -> None:
    home.script = streams(chunk(" a", [1], completion=1), then=Upcall.until_abandoned)
    async with edge.client.connection() as connection:
        await connection.send(edge.client.request(stream=True))
        await connection.read_head()
        assert await connection.read_chunk() == KEEP_ALIVE
        await connection.read_chunk()
    await until(lambda: door.given[0].released == 1)
    assert door.given[0].settled[0][0] > 0


async def test_a_teams_salt_goes_to_engines_that_keep_salts_apart(edge: EdgeUnderTest, home: Datacenter) -> None:
    bind(edge, cache_salt="c2FsdA")
    table = edge.holder.current
    assert table is not None
    model = table.models[edge.client.model]
    aware = replace(model, routes=tuple(replace(r, engine=EngineFacts(is_salt_aware=True)) for r in model.routes))
    table.models[edge.client.model] = aware
    for stream in (False, True):
        await edge.client.ask("x-tenant-id: mine\r\n", stream=stream, cache_salt="mine", nvext={"cache_salt": "mine"})
    assert [call.body["cache_salt"] for call in home.seen] == ["c2FsdA"] * 2
    assert not any("mine" in str(call.body) or "x-tenant-id" in call.headers for call in home.seen)


async def test_an_engine_that_knows_no_salts_gets_none(edge: EdgeUnderTest, home: Datacenter) -> None:
    bind(edge, cache_salt="c2FsdA")
    await edge.client.ask(cache_salt="mine")
    assert "cache_salt" not in home.seen[0].body


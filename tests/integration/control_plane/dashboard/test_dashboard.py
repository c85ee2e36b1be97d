"""A team's own dashboard: what a key with `usage:read` sees, and what it does not."""

import pytest

from control_plane.contracts.keys import Scope
from control_plane.contracts.operator import UsageSummary
from tests.integration.control_plane.replica import Replica, bearer
from tests.integration.control_plane.usage.conftest import Metered, metered

__all__ = ["metered"]
PATHS = ("usage", "generations", "keys")


async def own_key(replica: Replica, team_id: str) -> dict[str, str]:
    return bearer((await replica.key(team_id, Scope.USAGE_READ)).secret)


async def test_a_team_sees_its_own_usage(metered: Metered) -> None:
    await metered.ship(metered.maker.record(metered.now_s))
    headers = await own_key(metered.replica, metered.maker.team_id)
    answer = await metered.replica.client.get(f"/api/v1/teams/{metered.maker.team_id}/usage", headers=headers)
    assert UsageSummary.model_validate_json(answer.content).total.requests == 1


async def test_a_team_sees_its_own_generations_and_keys(metered: Metered) -> None:
    record = metered.maker.record(metered.now_s)
    await metered.ship(record)
    headers = await own_key(metered.replica, metered.maker.team_id)
    generations = await metered.replica.client.get("/api/v1/teams/acme/generations", headers=headers)
    keys = await metered.replica.client.get("/api/v1/teams/acme/keys", headers=headers)
    assert [row["request_id"] for row in generations.json()["data"]] == [str(record.request_id)]
    assert len(keys.json()["data"]) == 2


async def test_a_team_sees_nothing_of_another(metered: Metered) -> None:
    await metered.ship(metered.maker.record(metered.now_s))
    other = await metered.replica.team("other")
    headers = await own_key(metered.replica, other.id)
    seen = await metered.replica.client.get("/api/v1/teams/other/generations", headers=headers)
    assert seen.json() == {"data": [], "next_cursor": None}


@pytest.mark.parametrize("path", PATHS)
async def test_another_teams_id_looks_like_one_that_does_not_exist(replica: Replica, path: str) -> None:
    mine, theirs = await replica.team("mine"), await replica.team("theirs")
    headers = await own_key(replica, mine.id)
    foreign = await replica.client.get(f"/api/v1/teams/{theirs.slug}/{path}", headers=headers)
    missing = await replica.client.get(f"/api/v1/teams/nobody/{path}", headers=headers)
    assert foreign.status_code == missing.status_code == 404
    assert foreign.text.replace("theirs", "nobody") == missing.text


@pytest.mark.parametrize("path", PATHS)
async def test_a_key_for_inference_does_not_read_usage(replica: Replica, path: str) -> None:
    team = await replica.team()
    headers = bearer((await replica.key(team.id, Scope.INFERENCE)).secret)
    assert (await replica.client.get(f"/api/v1/teams/{team.id}/{path}", headers=headers)).status_code == 403


@pytest.mark.parametrize("path", PATHS)
async def test_an_operator_reads_every_team(replica: Replica, path: str) -> None:
    team = await replica.team()
    answer = await replica.client.get(f"/api/v1/teams/{team.slug}/{path}", headers=await replica.operator())
    assert answer.status_code == 200


async def test_a_revoked_key_reads_nothing(replica: Replica) -> None:
    team = await replica.team()
    key = await replica.key(team.id, Scope.USAGE_READ)
    await replica.client.delete(f"/operator/v1/keys/{key.id}", headers=await replica.operator())
    assert (await replica.client.get(f"/api/v1/teams/{team.id}/keys", headers=bearer(key.secret))).status_code == 401

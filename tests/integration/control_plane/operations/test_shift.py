"""A shift through the real HTTP routes, with simulated agents and edges."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from control_plane.contracts.operations import OperationState, OperationView, StepState
from tests.integration.control_plane.replica import MODEL
from tests.integration.control_plane.simulated import EAST, WEST, World, running_world


@pytest.fixture
async def world(database_url: str, tmp_path: Path) -> AsyncIterator[World]:
    async with running_world(database_url, tmp_path, ramp_hold_s=0.1) as made:
        yield made


async def ask(world: World, **options: Any) -> httpx.Response:
    names = ("force", "dry_run", "deadline_s")
    order = {"model": MODEL, "source": WEST, "target": EAST, "percent": 30, "step_percent": 10, "interval_s": 0.1}
    body = {"kind": "shift", "reason": "test", "shift": order | {k: v for k, v in options.items() if k not in names}}
    body |= {k: v for k, v in options.items() if k in names}
    return await world.replica.client.post("/operator/v1/operations", json=body, headers=world.operator)


async def started(world: World, **options: Any) -> str:
    response = await ask(world, **options)
    assert response.status_code == 201, response.text
    return str(response.json()["operation"]["id"])


def shares(world: World) -> list[dict[str, int]]:
    """What each edge routes by, by datacenter."""
    return [{route.datacenter_id: route.share_permille for route in edge.snapshot.models[0].routes}
            for edge in world.edges if edge.snapshot]


def is_held(view: OperationView) -> bool:
    return any(step.name == "shift" and step.state is StepState.RUNNING and "held" in step.detail
               for step in view.steps)


async def test_every_edge_routes_by_the_new_shares_when_it_succeeded(world: World) -> None:
    async with world.running():
        ended = await world.ended(await started(world))
    assert ended.state is OperationState.SUCCEEDED, ended
    assert shares(world) == [{WEST: 700, EAST: 1_300}] * 2


async def test_the_plan_says_what_traffic_each_gets_before_and_after(world: World) -> None:
    plan = (await ask(world, dry_run=True)).json()["plan"]
    assert plan["subject"] == f"30% of {MODEL} from {WEST} to {EAST}"
    assert plan["traffic"] == {WEST: {"before_percent": 50.0, "after_percent": 35.0},
                               EAST: {"before_percent": 50.0, "after_percent": 65.0}}


async def test_a_condition_that_cannot_be_read_is_a_bad_request_with_its_place(world: World) -> None:
    response = await ask(world, abort_if="ttft_p90=2s")
    assert response.status_code == 400
    assert response.json()["code"] == "bad_condition"
    assert "at character 9 ('=2s')" in response.json()["message"]


async def test_a_shift_back_gives_the_shares_back(world: World) -> None:
    async with world.running():
        await world.ended(await started(world, percent=50, step_percent=50))
        ended = await world.ended(await started(world, source=EAST, target=WEST, percent=33, step_percent=33))
    assert ended.state is OperationState.SUCCEEDED
    assert shares(world)[0] == {WEST: 995, EAST: 1_005}


async def test_a_condition_that_comes_true_rolls_it_back(world: World) -> None:
    async with world.running():
        world.agents[EAST].inflight = 3
        await world.agents[EAST].sync()
        ended = await world.ended(await started(world, abort_if="queue>=0"))
    assert ended.state is OperationState.ROLLED_BACK
    assert ended.error == f"{EAST}: queue>=0: it is 0"
    assert shares(world) == [{WEST: 1_000, EAST: 1_000}] * 2


@pytest.mark.parametrize("verb", ["cancel", "rollback"])
async def test_stopped_half_way_it_goes_back_to_where_it_was(world: World, verb: str) -> None:
    async with world.running():
        operation = await started(world, interval_s=60.0)
        await world.until(operation, is_held)
        assert shares(world)[0] == {WEST: 900, EAST: 1_100}
        stopped = await world.replica.client.post(f"/operator/v1/operations/{operation}/{verb}", headers=world.operator)
        assert stopped.status_code == 200, stopped.text
        ended = await world.ended(operation)
    assert ended.state is OperationState.ROLLED_BACK
    assert shares(world) == [{WEST: 1_000, EAST: 1_000}] * 2


async def test_a_target_that_is_drained_is_refused_by_name(world: World) -> None:
    async with world.running():
        await world.ended(await world.started("drain", EAST))
        response = await ask(world)
    assert (response.status_code, response.json()["rule"]) == (409, "target_ready")
    assert "it is drained" in response.json()["message"]


async def test_neither_of_its_datacenters_can_be_drained_meanwhile(world: World) -> None:
    async with world.running():
        operation = await started(world, interval_s=60.0)
        await world.until(operation, is_held)
        for place in (WEST, EAST):
            response = await world.ask("drain", place)
            assert (response.status_code, response.json()["code"]) == (409, "operation_open")


async def test_a_datacenter_that_gets_nothing_has_nothing_to_shift(world: World) -> None:
    async with world.running():
        await world.ended(await started(world, percent=100, step_percent=100))
        response = await ask(world)
    assert response.json()["rule"] == "nothing_to_shift"


async def test_a_target_that_would_get_too_much_is_refused_in_numbers(database_url: str, tmp_path: Path) -> None:
    async with running_world(database_url, tmp_path) as world:
        topology = (await world.replica.client.get("/operator/v1/topology", headers=world.operator)).json()
        topology["datacenters"][0 if topology["datacenters"][0]["id"] == WEST else 1]["weight"] = 10_000
        changed = await world.replica.client.put("/operator/v1/topology", json=topology, headers=world.operator)
        assert changed.status_code == 200, changed.text
        refused = (await ask(world, percent=30)).json()
        assert (refused["rule"], refused["numbers"]) == ("share_range", {"asked_percent": "30", "most_percent": "9"})

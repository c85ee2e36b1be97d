"""What operators see of capacity and plans, and what they may change."""

import pytest

from control_plane.contracts.operator import OperatorScope
from tests.integration.control_plane.capacity.conftest import Capacity
from tests.integration.control_plane.replica import MODEL
from tests.integration.control_plane.simulated import EAST, WEST

PATH = "/operator/v1/capacity"


async def test_the_view_counts_a_models_capacity_and_demand(capacity: Capacity) -> None:
    await capacity.sampled(WEST, 18, queued=4, kv_usage=0.25)
    await capacity.sampled(EAST, 6)
    view = await capacity.view()
    model = view.models[0]
    assert (model.model, model.ready, model.load, model.peak, model.required, model.headroom) == (
        MODEL, 40, 24, 24, 29, 11)
    assert (model.utilisation, model.expected, model.reserved) == (0.6, None, 0)
    west = next(place for place in model.places if place.datacenter == WEST)
    assert (west.serves, west.ready, west.load, west.utilisation, west.kv_usage) == (True, 20, 18, 0.9, 0.25)
    assert {pool.role.value: (pool.ready, pool.load) for pool in west.pools} == {"decode": (2, 18), "prefill": (1, 4)}


async def test_gpus_are_counted_by_fleet(capacity: Capacity) -> None:
    assert [(fleet.datacenter, fleet.used, fleet.total) for fleet in (await capacity.view()).fleets] == [
        (EAST, 3, 8), (WEST, 3, 8)]


async def test_what_nobody_knows_is_null(capacity: Capacity) -> None:
    await capacity.run("DELETE FROM capacity_sample")
    await capacity.run("UPDATE pool SET max_inflight = NULL")
    model = (await capacity.view()).models[0]
    assert (model.ready, model.load, model.peak, model.headroom, model.utilisation) == (None,) * 5


async def test_a_datacenter_out_of_service_holds_nothing(capacity: Capacity) -> None:
    await capacity.run("UPDATE datacenter SET traffic_state = 'drained' WHERE id = :id", id=EAST)
    model = (await capacity.view()).models[0]
    assert model.ready == 20
    assert [place.serves for place in model.places] == [False, True]


async def test_a_deployment_that_traffic_was_shifted_away_from_holds_nothing(capacity: Capacity) -> None:
    await capacity.run("UPDATE deployment SET share_permille = 0 WHERE id = :id", id=f"{EAST}-a-glm")
    model = (await capacity.view()).models[0]
    assert (model.ready, [place.serves for place in model.places]) == (20, [False, True])


async def test_asking_for_a_plan_explains_every_pool_and_keeps_nothing(capacity: Capacity) -> None:
    await capacity.sampled(WEST, 18, queued=6)
    await capacity.sampled(EAST, 13, queued=6)
    plan = await capacity.plan()
    assert (plan.id, plan.applied, len(plan.verdicts)) == (None, False, 4)
    move = plan.verdicts[0]
    assert (move.datacenter, move.role.value, move.before, move.after, move.gpus, move.rule) == (
        WEST, "decode", 2, 3, 1, None)
    assert move.figures.utilisation == 0.9
    assert all(one.rule == "dead_band" and one.why for one in plan.verdicts[1:])
    assert await capacity.run("SELECT 1 FROM capacity_plan") == []


async def test_plans_are_listed_newest_first_and_page_by_page(capacity: Capacity) -> None:
    await capacity.mode("advise")
    for _ in range(3):
        await capacity.turn()
    client, operator = capacity.world.replica.client, capacity.world.operator
    first = (await client.get(f"{PATH}/plans?limit=2", headers=operator)).json()
    rest = (await client.get(f"{PATH}/plans?limit=100&cursor={first['next_cursor']}", headers=operator)).json()
    ids = [plan["id"] for plan in first["data"] + rest["data"]]
    assert ids == sorted(ids, reverse=True)
    assert (len(first["data"]), len(ids) >= 3, rest["next_cursor"]) == (2, True, None)
    none = (await client.get(f"{PATH}/plans?only_moves=true", headers=operator)).json()
    assert none["data"] == []


async def test_the_configured_mode_holds_until_an_operator_says_otherwise(capacity: Capacity) -> None:
    planner = (await capacity.view()).planner
    assert (planner.mode.value, planner.changed_by, planner.frozen) == ("off", None, None)
    await capacity.mode("advise")
    planner = (await capacity.view()).planner
    assert (planner.mode.value, planner.changed_by, planner.reason) == ("advise", "operator:olga", "test")


async def test_a_change_of_mode_is_audited(capacity: Capacity) -> None:
    await capacity.mode("auto")
    rows = await capacity.run("SELECT actor, reason, before, after FROM audit_event WHERE action = 'capacity.mode'")
    assert [tuple(row) for row in rows] == [("operator:olga", "test", {"mode": "off"}, {"mode": "auto"})]


async def test_a_bound_is_kept_shown_and_audited(capacity: Capacity) -> None:
    bound = {"deployment": f"{WEST}-a-glm", "role": "decode", "minimum": 2, "maximum": 6, "reason": "test"}
    client, operator = capacity.world.replica.client, capacity.world.operator
    for _ in range(2):
        answer = await client.put(f"{PATH}/bounds", json=bound, headers=operator)
        assert answer.status_code == 200, answer.text
    place = next(one for one in (await capacity.view()).models[0].places if one.datacenter == WEST)
    assert [(pool.minimum, pool.maximum) for pool in place.pools if pool.role.value == "decode"] == [(2, 6)]
    rows = await capacity.run("SELECT before, after FROM audit_event WHERE action = 'capacity.bound' ORDER BY id")
    assert [(row[0]["minimum"], row[1]["minimum"]) for row in rows] == [(1, 2), (2, 2)]


@pytest.mark.parametrize(("changes", "status", "words"), [
    ({"deployment": "nowhere"}, 404, "there is no pool nowhere decode"),
    ({"role": "aggregated"}, 404, f"there are: {EAST}-a-glm decode"),
    ({"maximum": 1}, 422, "the maximum 1 is below the minimum 2"), ({"reason": ""}, 422, "reason"),
    ({"minimum": -1}, 422, "minimum")])
async def test_a_bound_that_makes_no_sense_is_refused(
        capacity: Capacity, changes: dict[str, object], status: int, words: str) -> None:
    bound = {"deployment": f"{WEST}-a-glm", "role": "decode", "minimum": 2, "reason": "test"} | changes
    answer = await capacity.world.replica.client.put(f"{PATH}/bounds", json=bound, headers=capacity.world.operator)
    assert answer.status_code == status
    assert words in answer.json()["message"]


@pytest.mark.parametrize(("method", "path", "body"), [
    ("POST", "/mode", {"mode": "auto", "reason": "x"}),
    ("PUT", "/bounds", {"deployment": "d", "role": "decode", "reason": "x"})])
async def test_a_reader_changes_nothing(capacity: Capacity, method: str, path: str, body: dict[str, str]) -> None:
    reader = await capacity.world.replica.operator(OperatorScope.READ)
    answer = await capacity.world.replica.client.request(method, f"{PATH}{path}", json=body, headers=reader)
    assert answer.status_code == 403
    assert (await capacity.world.replica.client.get(PATH, headers=reader)).status_code == 200

"""What asking for an operation comes to: plans, refusals, repeats."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from sqlalchemy import text

from control_plane.contracts.operations import OperationAnswer, OperationState, OperationView
from control_plane.contracts.operator import Page
from control_plane.contracts.snapshot import TrafficState
from tests.integration.control_plane.simulated import EAST, WEST, World, running_world


@pytest.fixture
async def world(database_url: str, tmp_path: Path) -> AsyncIterator[World]:
    """Nobody syncs unless told to, so operations stay under way."""
    async with running_world(database_url, tmp_path) as made:
        yield made


async def listed(world: World, query: str = "") -> Page[OperationView]:
    answer = await world.replica.client.get(f"/operator/v1/operations{query}", headers=world.operator)
    assert answer.status_code == 200, answer.text
    return Page[OperationView].model_validate_json(answer.content)


async def away(world: World, datacenter: str) -> None:
    """Makes a datacenter drained without an operation."""
    async with world.replica.context.db.begin() as session:
        await session.execute(
            text("UPDATE datacenter SET traffic_state = 'drained' WHERE id = :id"), {"id": datacenter})


class TestPlan:
    async def test_a_dry_run_says_what_would_be_and_changes_nothing(self, world: World) -> None:
        world.edges[0].open_requests = {WEST: 3}
        await world.edges[0].sync()
        answer = await world.ask("drain", WEST, dry_run=True)
        made = OperationAnswer.model_validate_json(answer.content)
        assert (answer.status_code, made.operation, made.plan.refusal) == (200, None, None)
        assert (made.plan.traffic_state, made.plan.open_requests) == (TrafficState.ACTIVE, 3)
        assert made.plan.steps == [
            "preflight", "ramp", "await_edges", "await_idle", "evacuate", "verify", "settle"]
        assert made.plan.remaining_datacenters == {"sim/glm-5.3": [EAST]}
        assert (await listed(world)).data == []

    async def test_a_dry_run_of_what_would_be_refused_says_why(self, world: World) -> None:
        await world.started("drain", WEST)
        answer = await world.ask("drain", EAST, dry_run=True)
        plan = OperationAnswer.model_validate_json(answer.content).plan
        assert answer.status_code == 200
        assert plan.refusal is not None
        assert plan.refusal.rule == "last_datacenter"

    async def test_a_restored_datacenter_is_among_those_that_then_serve(self, world: World) -> None:
        await away(world, WEST)
        answer = await world.ask("restore", WEST, dry_run=True)
        assert answer.json()["plan"]["remaining_datacenters"] == {"sim/glm-5.3": [EAST, WEST]}

    async def test_a_model_that_is_scaled_to_zero_is_not_served_by_a_restore(self, world: World) -> None:
        await away(world, WEST)
        async with world.replica.context.db.begin() as session:
            await session.execute(
                text("UPDATE pool SET replicas = 0 WHERE deployment_id = :id"), {"id": f"{WEST}-a-glm"})
        answer = await world.ask("restore", WEST, dry_run=True)
        assert answer.json()["plan"]["remaining_datacenters"] == {"sim/glm-5.3": [EAST]}

    async def test_open_requests_are_unknown_without_a_live_edge(self, world: World) -> None:
        async with world.replica.context.db.begin() as session:
            await session.execute(text("UPDATE edge SET last_seen_at = now() - interval '1 min'"))
        answer = await world.ask("drain", WEST, dry_run=True)
        assert answer.json()["plan"]["open_requests"] is None


class TestRefusal:
    async def test_the_last_datacenter_is_refused_with_rule_and_numbers(self, world: World) -> None:
        await world.started("drain", WEST)
        answer = await world.ask("drain", EAST)
        problem = answer.json()
        assert (answer.status_code, problem["code"], problem["rule"]) == (409, "unsafe_change", "last_datacenter")
        assert problem["numbers"] == {
            "model": "sim/glm-5.3", "healthy_now": "1", "healthy_after": "0", "required": "1"}
        assert f"{WEST} is being drained" in problem["message"]

    async def test_a_refusal_is_kept_and_audited(self, world: World) -> None:
        await world.started("drain", WEST)
        await world.ask("drain", EAST)
        (refused,) = (await listed(world, "?state=refused")).data
        assert (refused.datacenter, refused.state) == (EAST, OperationState.REFUSED)
        audit = await world.replica.client.get(f"/operator/v1/audit?target=datacenter:{EAST}", headers=world.operator)
        assert [event["action"] for event in audit.json()["data"]] == ["drain.refuse"]
        assert await world.traffic(EAST) is TrafficState.ACTIVE

    async def test_a_datacenter_whose_agent_is_silent_is_not_healthy(self, world: World) -> None:
        async with world.replica.context.db.begin() as session:
            await session.execute(text("UPDATE agent_lease SET expires_at = now() WHERE fleet_id = :fleet"),
                                  {"fleet": f"{EAST}-a"})
        answer = await world.ask("drain", WEST)
        assert (answer.status_code, answer.json()["rule"]) == (409, "last_datacenter")

    async def test_force_overrules_and_is_audited(self, world: World) -> None:
        await world.started("drain", WEST)
        answer = await world.ask("drain", EAST, force=True)
        assert (answer.status_code, answer.json()["operation"]["forced"]) == (201, True)
        async with world.replica.context.db.begin() as session:
            after = (await session.execute(text("SELECT after FROM audit_event WHERE target = :target"),
                                           {"target": f"datacenter:{EAST}"})).scalar_one()
        assert (after["forced"], after["rule"]) == (True, "last_datacenter")

    async def test_what_became_unsafe_before_it_began_is_refused_by_its_own_step(self, world: World) -> None:
        """The rule is looked at again in the transaction that takes the traffic away."""
        async with world.replica.context.db.begin() as session:
            await session.execute(text("LOCK TABLE operation_step IN ACCESS EXCLUSIVE MODE"))
            asked = asyncio.create_task(world.ask("drain", WEST))
            await asyncio.sleep(0.3)
            await session.execute(text("UPDATE deployment SET phase = 'gone' WHERE id = :id"), {"id": f"{EAST}-a-glm"})
        assert (await asked).status_code == 201
        ended = await world.ended((await asked).json()["operation"]["id"])
        assert ended.state is OperationState.REFUSED
        assert await world.traffic(WEST) is TrafficState.ACTIVE


class TestRepeats:
    async def test_asking_twice_is_one_operation(self, world: World) -> None:
        operation = await world.started("drain", WEST)
        again = await world.ask("drain", WEST)
        assert (again.status_code, again.json()["operation"]["id"]) == (200, operation)

    async def test_asking_many_times_at_once_is_one_operation(self, world: World) -> None:
        answers = await asyncio.gather(*[world.ask("drain", WEST) for _ in range(10)])
        assert sorted(answer.status_code for answer in answers) == [200] * 9 + [201]
        assert len({answer.json()["operation"]["id"] for answer in answers}) == 1

    async def test_the_opposite_is_refused_while_one_is_under_way(self, world: World) -> None:
        await world.started("drain", WEST)
        answer = await world.ask("restore", WEST)
        assert (answer.status_code, answer.json()["code"]) == (409, "operation_open")

    async def test_an_idempotency_key_finds_the_operation_after_it_ended(self, world: World) -> None:
        headers = {"idempotency-key": "k-1"}
        async with world.running():
            operation = await world.started("drain", WEST, headers=headers)
            await world.ended(operation)
        again = await world.ask("drain", WEST, headers=headers)
        assert (again.status_code, again.json()["operation"]["id"]) == (200, operation)

    async def test_an_idempotency_key_finds_a_refusal_again(self, world: World) -> None:
        await world.started("drain", WEST)
        answers = [await world.ask("drain", EAST, headers={"idempotency-key": "k-1"}) for _ in range(2)]
        assert answers[0].json() == answers[1].json()
        assert len((await listed(world, "?state=refused")).data) == 1

    async def test_an_idempotency_key_is_for_one_operation(self, world: World) -> None:
        await world.started("drain", WEST, headers={"idempotency-key": "k-1"})
        answer = await world.ask("drain", EAST, headers={"idempotency-key": "k-1"})
        assert (answer.status_code, answer.json()["code"]) == (409, "idempotency_conflict")

    async def test_a_drained_datacenter_has_nothing_to_drain(self, world: World) -> None:
        async with world.running():
            await world.ended(await world.started("drain", WEST))
        answer = await world.ask("drain", WEST)
        assert (answer.status_code, answer.json()["code"]) == (409, "illegal_transition")


class TestBadInput:
    async def test_an_unknown_datacenter_is_named_beside_the_known_ones(self, world: World) -> None:
        answer = await world.ask("drain", "nowhere")
        assert (answer.status_code, answer.json()["code"]) == (404, "unknown_datacenter")
        assert WEST in answer.json()["message"]

    @pytest.mark.parametrize("faulty", [
        {"reason": ""}, {"deadline_s": 0}, {"deadline_s": "nan"}, {"kind": "explode"}, {"forse": True}])
    async def test_a_faulty_request_is_refused(self, world: World, faulty: dict[str, object]) -> None:
        kind = str(faulty.pop("kind", "drain"))
        assert (await world.ask(kind, WEST, **faulty)).status_code == 422

    async def test_a_reason_with_a_zero_byte_is_refused_cleanly(self, world: World) -> None:
        assert (await world.ask("drain", WEST, reason="a\x00b")).status_code in (400, 422)

    async def test_an_unknown_operation_is_not_found(self, world: World) -> None:
        answer = await world.replica.client.get("/operator/v1/operations/op_nothing", headers=world.operator)
        assert answer.status_code == 404


async def test_operations_are_paged_from_the_newest(world: World) -> None:
    made = [await world.started("drain", WEST)]
    for _ in range(3):
        await world.ask("drain", EAST)
    first = await listed(world, "?limit=3")
    second = await listed(world, f"?limit=3&cursor={first.next_cursor}")
    assert (len(first.data), second.next_cursor) == (3, None)
    assert [one.id for one in second.data] == made

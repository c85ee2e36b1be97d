"""`PUT` and `GET /operator/v1/topology` on a real database."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from control_plane.contracts.audit import AuditView
from control_plane.contracts.enrolment import IdentityKind
from control_plane.contracts.operator import OperatorScope, Page
from control_plane.contracts.topology import TopologyDocument
from tests.integration.control_plane.replica import MODEL, Replica, running_replica
from tests.integration.control_plane.simulated import (
    EAST,
    POOLS,
    WEST,
    SimulatedEdge,
    World,
    declare,
    document,
    running_world,
)


@pytest.fixture
async def replica(database_url: str, tmp_path: Path) -> AsyncIterator[Replica]:
    async with running_replica(database_url, tmp_path) as running:
        yield running


@pytest.fixture
async def operator(replica: Replica) -> dict[str, str]:
    return await replica.operator()


async def generations(replica: Replica, operator: dict[str, str]) -> dict[str, int]:
    status = (await replica.client.get("/operator/v1/status", headers=operator)).json()
    found = {one["id"]: one["generation"] for place in status["datacenters"] for one in place["deployments"]}
    return found | {"snapshot": status["snapshot_version"]}


async def audited(replica: Replica, operator: dict[str, str]) -> list[AuditView]:
    answer = await replica.client.get("/operator/v1/audit?target=topology", headers=operator)
    return Page[AuditView].model_validate_json(answer.content).data


def changed(part: str, number: int, **values: Any) -> TopologyDocument:
    """The document with one item of one part changed."""
    whole = document().model_dump(mode="json")
    whole[part][number] |= values
    return TopologyDocument.model_validate(whole)


async def test_what_was_declared_is_read_back(replica: Replica, operator: dict[str, str]) -> None:
    answer = await declare(replica, operator, document(EAST, WEST))
    read = await replica.client.get("/operator/v1/topology", headers=operator)
    assert TopologyDocument.model_validate_json(answer.content) == document(EAST, WEST)
    assert read.json() == answer.json()


async def test_the_same_document_again_changes_nothing(replica: Replica, operator: dict[str, str]) -> None:
    await declare(replica, operator, document())
    before = await generations(replica, operator)
    assert (await declare(replica, operator, document())).status_code == 200
    assert await generations(replica, operator) == before
    assert len(await audited(replica, operator)) == 1


async def test_what_is_read_can_be_applied_again_without_effect(replica: Replica, operator: dict[str, str]) -> None:
    await declare(replica, operator, document())
    read = await replica.client.get("/operator/v1/topology", headers=operator)
    await replica.client.put("/operator/v1/topology", content=read.content, headers=operator)
    assert len(await audited(replica, operator)) == 1


async def test_other_pools_raise_only_their_deployments_generation(replica: Replica, operator: dict[str, str]) -> None:
    await declare(replica, operator, document())
    await declare(replica, operator, changed("deployments", 0, pools=[POOLS[1], {"role": "decode", "replicas": 5}]))
    after = await generations(replica, operator)
    assert (after[f"{WEST}-a-glm"], after[f"{EAST}-a-glm"]) == (2, 1)


async def test_another_engine_raises_the_generation(replica: Replica, operator: dict[str, str]) -> None:
    await declare(replica, operator, document())
    await declare(replica, operator, changed("deployments", 0, engine={"kv": "fp8"}))
    assert (await generations(replica, operator))[f"{WEST}-a-glm"] == 2


async def test_a_pool_that_is_left_out_is_gone(replica: Replica, operator: dict[str, str]) -> None:
    await declare(replica, operator, document())
    answer = await declare(replica, operator, changed("deployments", 0, pools=[POOLS[0]]))
    west = next(one for one in answer.json()["deployments"] if one["id"] == f"{WEST}-a-glm")
    assert [pool["role"] for pool in west["pools"]] == ["decode"]


async def test_another_context_window_raises_every_generation_of_the_model(
        replica: Replica, operator: dict[str, str]) -> None:
    await declare(replica, operator, document())
    await declare(replica, operator, changed("models", 0, context_window=1_000))
    after = await generations(replica, operator)
    assert (after[f"{WEST}-a-glm"], after[f"{EAST}-a-glm"]) == (2, 2)


async def test_another_weight_publishes_a_snapshot(replica: Replica, operator: dict[str, str]) -> None:
    await declare(replica, operator, document())
    await declare(replica, operator, changed("datacenters", 0, weight=7))
    after = await generations(replica, operator)
    assert (after["snapshot"], after[f"{WEST}-a-glm"]) == (2, 1)


async def test_a_default_output_limit_reaches_the_edges_and_no_engine(
        replica: Replica, operator: dict[str, str]) -> None:
    await declare(replica, operator, document())
    answer = await declare(replica, operator, changed("models", 0, default_max_tokens=256))
    after = await generations(replica, operator)
    edge = SimulatedEdge(replica, await replica.enrolled(IdentityKind.EDGE, WEST))
    await edge.sync()
    assert edge.snapshot is not None
    assert answer.json()["models"][0]["default_max_tokens"] == edge.snapshot.models[0].default_max_tokens == 256
    assert (after["snapshot"], after[f"{WEST}-a-glm"]) == (2, 1)


async def test_a_part_leaves_the_rest_as_it_is(replica: Replica, operator: dict[str, str]) -> None:
    await declare(replica, operator, document())
    answer = await declare(replica, operator, TopologyDocument.model_validate({"regions": [{"id": "ap-south-1"}]}))
    assert {region["id"] for region in answer.json()["regions"]} == {WEST, EAST, "ap-south-1"}
    assert len(answer.json()["deployments"]) == 2


async def test_an_unknown_reference_is_named_and_nothing_is_stored(replica: Replica, operator: dict[str, str]) -> None:
    answer = await declare(replica, operator, changed("fleets", 0, datacenter="nowhere"))
    assert answer.status_code == 400
    assert answer.json()["code"] == "bad_topology"
    assert f"fleet {WEST}-a: unknown datacenter nowhere" in answer.json()["message"]
    assert (await replica.client.get("/operator/v1/topology", headers=operator)).json()["regions"] == []


async def test_other_numbers_under_the_same_price_version_are_refused(
        replica: Replica, operator: dict[str, str]) -> None:
    await declare(replica, operator, document())
    dearer = {"version": "pv_1", "input_usd": "1", "cached_input_usd": "1", "output_usd": "1"}
    answer = await declare(replica, operator, changed("models", 0, price=dearer))
    assert (answer.status_code, answer.json()["code"]) == (409, "price_immutable")


async def test_a_new_price_version_reaches_the_snapshot(replica: Replica, operator: dict[str, str]) -> None:
    await declare(replica, operator, document())
    dearer = {"version": "pv_2", "input_usd": "1", "cached_input_usd": "1", "output_usd": "1"}
    answer = await declare(replica, operator, changed("models", 0, price=dearer))
    assert answer.json()["models"][0]["price"]["version"] == "pv_2"
    assert (await generations(replica, operator))["snapshot"] == 2


async def test_a_change_is_audited_with_who_made_it(replica: Replica, operator: dict[str, str]) -> None:
    await declare(replica, operator, document())
    (event,) = await audited(replica, operator)
    assert (event.actor, event.action) == ("operator:olga", "topology.apply")


async def test_a_typo_is_refused(replica: Replica, operator: dict[str, str]) -> None:
    answer = await replica.client.put("/operator/v1/topology", content=b'{"regoins": []}', headers=operator)
    assert answer.status_code == 422


async def test_many_at_once_make_one_change(replica: Replica, operator: dict[str, str]) -> None:
    answers = await asyncio.gather(*[declare(replica, operator, document()) for _ in range(8)])
    assert {answer.status_code for answer in answers} == {200}
    assert len(await audited(replica, operator)) == 1
    assert (await generations(replica, operator))["snapshot"] == 1


async def test_a_reader_may_look_and_not_apply(replica: Replica) -> None:
    reader = await replica.operator(OperatorScope.READ)
    assert (await declare(replica, reader, document())).status_code == 403
    assert (await replica.client.get("/operator/v1/topology", headers=reader)).status_code == 200


async def test_what_is_told_of_a_model_reaches_edges_and_is_read_back(
        replica: Replica, operator: dict[str, str]) -> None:
    told = {"tokenizer": "GLM", "quantization": "nvfp4", "features": ["tools"]}
    answer = await declare(replica, operator, changed("models", 0, details=told))
    assert answer.json()["models"][0]["details"] == {"hugging_face_id": None, **told}
    edge = SimulatedEdge(replica, await replica.enrolled(IdentityKind.EDGE))
    await edge.sync()
    assert edge.snapshot is not None
    assert edge.snapshot.models[0].details.model_dump(mode="json") == {"hugging_face_id": None, **told}
    await declare(replica, operator, document())
    await edge.sync()
    assert edge.snapshot.models[0].details.tokenizer is None


async def test_a_quantization_that_nobody_knows_is_refused(replica: Replica, operator: dict[str, str]) -> None:
    whole = document().model_dump(mode="json")
    whole["models"][0]["details"] = {"quantization": "int3"}
    answer = await replica.client.put("/operator/v1/topology", json=whole, headers=operator)
    assert answer.status_code == 422


def _repooled(document_: TopologyDocument, **place: Any) -> TopologyDocument:
    """With other pools in the first datacenter, and with what else is given of it."""
    whole = document_.model_dump(mode="json")
    whole["deployments"][0]["pools"] = [POOLS[0]]
    whole["datacenters"][0] |= place
    return TopologyDocument.model_validate(whole)


@pytest.fixture
async def world(database_url: str, tmp_path: Path) -> AsyncIterator[World]:
    async with running_world(database_url, tmp_path) as made:
        yield made


@pytest.mark.parametrize("part", ["deployments", "datacenters", "models"])
async def test_what_an_open_operation_claims_is_not_changed(world: World, part: str) -> None:
    operation = await world.started("drain", WEST)
    changes: dict[str, dict[str, Any]] = {
        "deployments": {"engine": {"kv": "fp8"}}, "datacenters": {"weight": 7}, "models": {"context_window": 1_000}}
    answer = await declare(world.replica, world.operator, changed(part, 0, **changes[part]))
    assert (answer.status_code, answer.json()["code"]) == (409, "operation_open")
    assert operation in answer.json()["message"]
    assert (await declare(world.replica, world.operator, document())).status_code == 200
    assert len(await audited(world.replica, world.operator)) == 1


async def test_what_no_open_operation_claims_is_changed(world: World) -> None:
    await world.started("drain", EAST)
    answer = await declare(world.replica, world.operator, _repooled(document(), weight=7))
    assert answer.status_code == 200, answer.text


async def test_the_cells_of_a_rollout_are_its_own_until_it_ends(world: World) -> None:
    order = {"model": MODEL, "engine": {"kind": "sim"}, "datacenters": [WEST]}
    begun = await world.replica.client.post("/operator/v1/operations", headers=world.operator, json={
        "kind": "rollout", "reason": "test", "rollout": order})
    assert begun.status_code == 201, begun.text
    operation = begun.json()["operation"]["id"]
    assert (await declare(world.replica, world.operator, _repooled(document()))).status_code == 409
    async with world.running():
        await world.replica.client.post(f"/operator/v1/operations/{operation}/cancel", headers=world.operator)
        await world.ended(operation)
    assert (await declare(world.replica, world.operator, _repooled(document()))).status_code == 200

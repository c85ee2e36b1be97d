"""One edge identity in an attacker's hands: what it reports misleads no more than itself, and breaks nothing."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from control_plane.audit import service as audit
from control_plane.audit.chain import Tip
from control_plane.contracts.enrolment import IdentityKind
from control_plane.contracts.evidence import MAX_MINUTES
from control_plane.contracts.operator import OperatorScope
from control_plane.contracts.override import MAX_ORDERS, Override, OverrideAction, SignedOverride
from control_plane.contracts.signing import SigningKey
from control_plane.evidence.quorum import Place, Rules, Voter, decide
from control_plane.override import repository as override
from tests.integration.control_plane.replica import MODEL, Peer
from tests.integration.control_plane.simulated import EAST, WEST, World, running_world

MOST = 2**63 - 1
REPORT: dict[str, Any] = {
    "boot_id": "b", "release": "0", "acked_lineage": 0, "acked_version": 0, "revocations_after": 0, "open_requests": {},
    "wait_s": 0}


@pytest.fixture
async def world(database_url: str, tmp_path: Path) -> AsyncIterator[World]:
    async with running_world(database_url, tmp_path, edges=1) as made:
        yield made


async def told(world: World, peer: Peer | None = None, **report: Any) -> int:
    """What the control plane answers to a report of an edge."""
    body = json.dumps(REPORT | report).encode()
    return (await world.replica.signed(peer or world.edges[0].peer, "/edge/v1/sync", body)).status_code


async def now_s(world: World) -> int:
    return int(world.replica.context.clock.time_s())


def view(order_id: str, **changes: Any) -> dict[str, Any]:
    return {"id": order_id, "action": "drain", "datacenter": WEST, "state": "in_force", "reason": "fire", "key_id": "k",
            "key_name": None, "issued_at_s": 1.0, "expires_at_s": 2.0, "evacuate": False, "force": False} | changes


def forged(order_id: str, **changes: Any) -> dict[str, Any]:
    return {"signed": {"key_id": "k", "signature": "", "body": "{}"}, "view": view(order_id, **changes)}


async def chain_fault(world: World) -> object:
    return (await audit.verify(world.replica.context.db, Tip(), 10_000)).fault


@pytest.mark.parametrize("field", ["succeeded", "failed", "prompt_tokens", "ttft", "itl"])
async def test_giant_counts_do_not_keep_an_operator_from_the_status(world: World, field: str) -> None:
    value = [MOST] if field in ("ttft", "itl") else MOST
    start_s = await now_s(world) // 60 * 60 - 120
    await told(world, minutes=[{"minute": start_s + 60 * n, "model_id": MODEL, "datacenter_id": WEST, field: value}
                               for n in range(2)])
    assert (await world.replica.client.get("/operator/v1/status", headers=world.operator)).status_code == 200


async def test_a_report_as_long_as_it_may_be_is_stored(world: World) -> None:
    start_s = await now_s(world) // 60 * 60
    minutes = [{"minute": start_s - 60 * n, "model_id": MODEL, "datacenter_id": WEST} for n in range(MAX_MINUTES)]
    assert await told(world, minutes=minutes) == 200


@pytest.mark.parametrize("issued_at_s", [1e23, 1e300, -0.0, 1.5e-300])
async def test_no_number_in_a_forged_order_breaks_the_audit_chain(world: World, issued_at_s: float) -> None:
    await told(world, overrides=[forged("ovr_1", issued_at_s=issued_at_s)])
    assert await chain_fault(world) is None


@pytest.mark.parametrize("changes", [
    {"datacenter": "a\x00b"}, {"reason": "a\x00b"}, {"reason": "x" * 100_000}, {"datacenter": "x" * 100_000},
    {"issued_at_s": float("nan")}, {"expires_at_s": float("inf")}, {"id": "a\x00"}, {"key_id": "x" * 100_000}])
async def test_a_senseless_order_is_refused_and_breaks_nothing(world: World, changes: dict[str, Any]) -> None:
    assert await told(world, overrides=[forged("ovr_1", **changes)]) in (200, 422)
    assert await chain_fault(world) is None


async def test_a_forged_order_does_not_hide_the_real_one_from_the_log(world: World) -> None:
    key, edge = SigningKey.generate(), world.edges[0].peer
    admin = await world.replica.operator(OperatorScope.ADMIN)
    made = await world.replica.client.post("/operator/v1/operator-keys", headers=admin,
                                           json={"name": "olga", "public_key": key.public.text})
    assert made.status_code == 201, made.text
    order = Override(id="ovr_1", action=OverrideAction.DRAIN, datacenter=WEST, edge=edge.identity, reason="fire",
                     issued_at_s=1.0, ttl_s=60.0)
    signed = SignedOverride.seal(order, key)
    liar = await world.replica.enrolled(IdentityKind.EDGE, EAST)
    await told(world, liar, overrides=[forged("ovr_1", reason="nothing happened", key_id=key.public.key_id)])
    await told(world, overrides=[{"signed": signed.model_dump(), "view": view("ovr_1", key_id=key.public.key_id)}])
    events = (await world.replica.client.get("/operator/v1/audit", headers=admin)).json()["data"]
    proved = [event for event in events if event["action"] == "override.drain" and event["after"]["proved"]]
    assert [(event["actor"], event["reason"]) for event in proved] == [("operator_key:olga", "fire")]


async def test_a_forged_lineage_does_not_keep_an_admin_from_recovering(world: World) -> None:
    await told(world, acked_lineage=MOST, acked_version=MOST)
    answer = await world.replica.client.post(
        "/operator/v1/recovery", headers=world.operator, json={"reason": "restored", "force": True})
    assert answer.status_code == 200, answer.text


async def test_an_agents_forged_generation_does_not_keep_an_admin_from_recovering(world: World) -> None:
    agent = world.agents[WEST]
    seen = {"deployment_id": f"{WEST}-a-glm", "observed_generation": MOST, "phase": "ready", "pools": []}
    body = {"boot_id": agent.boot_id, "release": "0", "epoch": agent.epoch, "seen_generation": MOST,
            "seen_epoch": MOST, "lineage": MOST, "deployments": [seen], "acks": [], "wait_s": 0}
    assert (await world.replica.signed(agent.peer, "/agent/v1/sync", json.dumps(body).encode())).status_code == 200
    answer = await world.replica.client.post(
        "/operator/v1/recovery", headers=world.operator, json={"reason": "restored", "force": True})
    assert answer.status_code == 200, answer.text


async def test_an_edge_makes_no_labels_of_datacenters_and_models_that_nobody_declared(world: World) -> None:
    start_s = await now_s(world) // 60 * 60
    report: dict[str, Any] = {"votes": [{"datacenter_id": "invented", "verdict": "lost", "held_s": 1e308}],
              "minutes": [{"minute": start_s, "model_id": "invented", "datacenter_id": WEST, "succeeded": 1}]}
    assert await told(world, None, **report) == 200
    assert "invented" not in (await world.replica.client.get("/metrics")).text


async def test_an_edge_fills_the_audit_log_with_forged_orders_only_so_far(world: World) -> None:
    for turn in range(3):
        await told(world, overrides=[forged(f"ovr_{turn}_{n}") for n in range(MAX_ORDERS)])
    async with world.replica.context.db.begin() as session:
        unproved = await override.count_orders(session, "unproved:")
    assert unproved == MAX_ORDERS


async def test_a_forged_order_is_on_record_in_the_name_of_the_edge_that_told_it(world: World) -> None:
    await told(world, overrides=[forged("ovr_1")])
    answer = await world.replica.client.get(f"/operator/v1/audit?target=datacenter:{WEST}", headers=world.operator)
    event = answer.json()["data"][0]
    assert (event["actor"], event["after"]["proved"]) == (f"machine:{world.edges[0].peer.identity}", False)


@pytest.mark.parametrize(("honest", "fails_over"), [(0, True), (1, False), (2, False), (5, False)])
def test_one_liar_takes_a_healthy_datacenter_out_only_where_it_is_the_only_edge(honest: int, fails_over: bool) -> None:
    edges = [Voter(f"honest-{n}", EAST, 1_000.0, {}) for n in range(honest)]
    liar = Voter("liar", EAST, 1_000.0, {WEST: 0.0})
    (found,) = decide([*edges, liar], [Place(WEST, serves=True)], 1_000.0, Rules())
    assert (found.blocked == "") is fails_over


@pytest.mark.parametrize(("honest_region", "silent_s", "fails_over"), [
    (EAST, 60.0, False), (EAST, 1_000.0, True), (WEST, 1_000.0, False)])
def test_a_liar_that_silences_the_other_edge_waits_for_it_to_be_gone(
        honest_region: str, silent_s: float, fails_over: bool) -> None:
    edges = [Voter("liar", EAST, 1_000.0, {WEST: 0.0}), Voter("honest", honest_region, 1_000.0 - silent_s, {})]
    (found,) = decide(edges, [Place(WEST, serves=True)], 1_000.0, Rules())
    assert (found.blocked == "") is fails_over

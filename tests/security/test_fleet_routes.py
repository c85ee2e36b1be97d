"""Attackers at the routes of topology, agents, edges and operations: strangers, the wrong kind, forgers, garbage."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from control_plane.contracts.operator import OperatorScope
from control_plane.contracts.signing import SignedRequest, SigningKey
from tests.integration.control_plane.replica import Peer
from tests.integration.control_plane.simulated import WEST, World, running_world

OPERATOR_ROUTES = [
    ("GET", "/operator/v1/status"), ("GET", "/operator/v1/topology"), ("PUT", "/operator/v1/topology"),
    ("POST", "/operator/v1/operations"), ("GET", "/operator/v1/operations"), ("GET", "/operator/v1/operations/op_1"),
    ("POST", "/operator/v1/operations/op_1/cancel"),
]
CHANGING = [route for route in OPERATOR_ROUTES if route[0] != "GET"]
AGENT, EDGE = "/agent/v1/sync", "/edge/v1/sync"
AGENT_BODY: dict[str, Any] = {"boot_id": "b", "release": "0", "epoch": None, "seen_generation": 0, "deployments": [],
                              "acks": [], "wait_s": 0}
EDGE_BODY: dict[str, Any] = {"boot_id": "b", "release": "0", "acked_lineage": 0, "acked_version": 0,
                             "revocations_after": 0, "open_requests": {}, "wait_s": 0}


@pytest.fixture
async def world(database_url: str, tmp_path: Path) -> AsyncIterator[World]:
    async with running_world(database_url, tmp_path, edges=1) as made:
        yield made


def payload(body: dict[str, Any], **changes: Any) -> bytes:
    return json.dumps(body | changes).encode()


@pytest.mark.parametrize("headers", [{}, {"authorization": "Bearer oper_meridian_local_forged"},
                                     {"authorization": "Basic b2xnYTpvbGdh"}])
async def test_a_stranger_reaches_no_operator_route(world: World, headers: dict[str, str]) -> None:
    for method, path in OPERATOR_ROUTES:
        answer = await world.replica.client.request(method, path, headers=headers, content=b"{}")
        assert (answer.status_code, answer.json()["code"]) == (401, "unauthenticated"), path


async def test_a_reader_changes_nothing(world: World) -> None:
    reader = await world.replica.operator(OperatorScope.READ)
    for method, path in CHANGING:
        answer = await world.replica.client.request(method, path, headers=reader, content=b"{}")
        assert answer.status_code == 403, path


async def test_a_key_of_a_team_is_no_operator_token(world: World) -> None:
    key = await world.replica.key((await world.replica.team()).id)
    answer = await world.replica.client.get(
        "/operator/v1/status", headers={"authorization": f"Bearer {key.secret}"})
    assert answer.status_code == 401


@pytest.mark.parametrize(("path", "body"), [(AGENT, AGENT_BODY), (EDGE, EDGE_BODY)])
async def test_an_unsigned_sync_is_refused(world: World, path: str, body: dict[str, Any]) -> None:
    assert (await world.replica.client.post(path, content=payload(body))).status_code == 401


async def test_an_agent_cannot_sync_as_an_edge_nor_an_edge_as_an_agent(world: World) -> None:
    agent, edge = world.agents[WEST].peer, world.edges[0].peer
    assert (await world.replica.signed(agent, EDGE, payload(EDGE_BODY))).status_code == 403
    assert (await world.replica.signed(edge, AGENT, payload(AGENT_BODY))).status_code == 403


@pytest.mark.parametrize(("path", "body"), [(AGENT, AGENT_BODY), (EDGE, EDGE_BODY)])
async def test_a_sync_signed_with_another_key_is_refused(world: World, path: str, body: dict[str, Any]) -> None:
    real = world.agents[WEST].peer if path == AGENT else world.edges[0].peer
    forger = Peer(real.identity, SigningKey.generate())
    assert (await world.replica.signed(forger, path, payload(body))).status_code == 401


async def test_a_sync_whose_body_was_changed_on_the_way_is_refused(world: World) -> None:
    peer = world.agents[WEST].peer
    signed = SignedRequest("POST", AGENT, payload(AGENT_BODY))
    headers = signed.sign(peer.identity, peer.key, world.replica.context.clock)
    answer = await world.replica.client.post(AGENT, content=payload(AGENT_BODY, boot_id="evil"), headers=headers)
    assert answer.status_code == 401


async def test_a_replayed_sync_is_refused(world: World) -> None:
    peer = world.edges[0].peer
    headers = SignedRequest("POST", EDGE, payload(EDGE_BODY)).sign(peer.identity, peer.key, world.replica.context.clock)
    first = await world.replica.client.post(EDGE, content=payload(EDGE_BODY), headers=headers)
    again = await world.replica.client.post(EDGE, content=payload(EDGE_BODY), headers=headers)
    assert (first.status_code, again.status_code) == (200, 401)


@pytest.mark.parametrize("changes", [
    {"boot_id": ""}, {"boot_id": "a\x00b"}, {"boot_id": "x" * 10_000}, {"epoch": -1}, {"epoch": 2**63},
    {"seen_generation": 10**30}, {"wait_s": -1}, {"wait_s": 1e308}, {"wait_s": "soon"}, {"deployments": "none"},
    {"deployments": [{}]}, {"acks": [{"command_id": "c", "state": "issued"}]}])
async def test_a_senseless_report_of_an_agent_is_refused_and_breaks_nothing(
        world: World, changes: dict[str, Any]) -> None:
    peer = world.agents[WEST].peer
    answer = await world.replica.signed(peer, AGENT, payload(AGENT_BODY, **changes))
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid")


@pytest.mark.parametrize("changes", [
    {"acked_version": -1}, {"acked_version": 2**63}, {"open_requests": {WEST: -5}}, {"open_requests": {"a\x00": 1}},
    {"open_requests": {f"dc-{n}": 1 for n in range(10_001)}}, {"revocations_after": 10**30}, {"wait_s": float("nan")},
    {"nack": {"lineage": 1}}])
async def test_a_senseless_report_of_an_edge_is_refused_and_breaks_nothing(
        world: World, changes: dict[str, Any]) -> None:
    answer = await world.replica.signed(world.edges[0].peer, EDGE, payload(EDGE_BODY, **changes))
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid")


async def test_a_long_message_is_cut_and_not_refused(world: World) -> None:
    nack = {"lineage": 1, "version": 1, "error": "x" * 100_000 + "\x00"}
    answer = await world.replica.signed(world.edges[0].peer, EDGE, payload(EDGE_BODY, nack=nack))
    assert answer.status_code == 200
    assert len((await world.status()).edges[0].nack or "") == 1_000


async def test_an_agent_cannot_acknowledge_another_fleets_command(world: World) -> None:
    other = next(agent for place, agent in world.agents.items() if place != WEST)
    world.agents[WEST].drains = False
    world.agents[WEST].inflight = 1
    async with world.running(world.agents[WEST], *world.edges):
        operation = await world.started("drain", WEST)
        await world.until(operation, lambda view: "in flight" in view.steps[3].detail)
        command = next(iter(world.agents[WEST].acks))
        acks = [{"command_id": command, "state": "succeeded"}]
        forged = payload(AGENT_BODY, boot_id=other.boot_id, epoch=other.epoch, seen_generation=1, acks=acks)
        assert (await world.replica.signed(other.peer, AGENT, forged)).status_code == 200
        listed = await world.agents[WEST].sync()
        assert [one.id for one in listed.commands] == [command]


@pytest.mark.parametrize("hostile", [
    "a\x00b", "'; DROP TABLE operation; --", "x" * 5_000, "../../etc/passwd", "\u202e"])
async def test_a_hostile_datacenter_name_is_only_unknown(world: World, hostile: str) -> None:
    assert (await world.ask("drain", hostile)).status_code in (400, 404, 422)


async def test_a_topology_that_is_nonsense_is_refused_and_stores_nothing(world: World) -> None:
    before = (await world.replica.client.get("/operator/v1/topology", headers=world.operator)).json()
    for body in (b"", b"[]", b"{", b'{"regions": [{"id": "A B"}]}', b'{"regions": [{"id": "a"}], "x": 1}', b"\xff\xfe"):
        answer = await world.replica.client.put("/operator/v1/topology", content=body, headers=world.operator)
        assert answer.status_code == 422, body
    assert (await world.replica.client.get("/operator/v1/topology", headers=world.operator)).json() == before


async def test_an_engine_document_with_a_zero_byte_is_refused_cleanly(world: World) -> None:
    document = (await world.replica.client.get("/operator/v1/topology", headers=world.operator)).json()
    document["deployments"][0]["engine"] = {"note": "a\x00b"}
    answer = await world.replica.client.put("/operator/v1/topology", json=document, headers=world.operator)
    assert answer.status_code in (400, 422)

"""An older copy of the database takes the place of the one before: it is noticed, and one order brings all back."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client import REGISTRY

from control_plane.contracts.agent_sync import AgentSyncAnswer, AgentSyncRequest
from control_plane.contracts.edge_sync import EdgeSyncAnswer, EdgeSyncRequest
from control_plane.contracts.enrolment import IdentityKind
from control_plane.contracts.keys import Scope
from control_plane.contracts.operator import OperatorScope
from control_plane.contracts.recovery import RecoveryView
from control_plane.contracts.snapshot import SignedSnapshot, Snapshot
from tests.integration.control_plane.replica import Peer, Replica, running_replica
from tests.integration.control_plane.simulated import EAST, World, declare, document, running_world

PATH = "/operator/v1/recovery"
FLEET = f"{EAST}-a"
REASON = {"reason": "the disk died"}


class Stack:
    """A replica with a topology, an edge and an agent, which say that they have seen what a test likes."""

    def __init__(self, replica: Replica, headers: dict[str, str], edge: Peer, agent: Peer) -> None:
        self.replica, self.headers, self._edge, self._agent = replica, headers, edge, agent

    async def edge_says(self, lineage: int, version: int, **more: Any) -> EdgeSyncAnswer:
        request = EdgeSyncRequest(
            boot_id="boot-1", release="0.1.0", acked_lineage=lineage, acked_version=version, open_requests={},
            wait_s=0, **({"revocations_after": 0} | more))
        answer = await self.replica.signed(self._edge, "/edge/v1/sync", request.model_dump_json().encode())
        assert answer.status_code == 200, answer.text
        return EdgeSyncAnswer.model_validate_json(answer.content)

    async def agent_says(self, lineage: int = 1, epoch: int = 0, generation: int = 0, **more: Any) -> AgentSyncAnswer:
        request = AgentSyncRequest(
            boot_id="boot-1", release="0.1.0", epoch=None, seen_generation=generation, seen_epoch=epoch,
            lineage=lineage, acks=[], wait_s=0, **({"deployments": []} | more))
        answer = await self.replica.signed(self._agent, "/agent/v1/sync", request.model_dump_json().encode())
        assert answer.status_code == 200, answer.text
        return AgentSyncAnswer.model_validate_json(answer.content)

    async def look(self) -> dict[str, Any]:
        answer = await self.replica.client.get(PATH, headers=self.headers)
        seen: dict[str, Any] = answer.json()
        return seen

    async def ahead(self) -> list[tuple[str, str]]:
        return [(one["kind"], one["seen"]) for one in (await self.look())["ahead"]]

    async def recover(self, **options: Any) -> httpx.Response:
        return await self.replica.client.post(PATH, json=REASON | options, headers=self.headers)

    async def recovered(self, **options: Any) -> RecoveryView:
        answer = await self.recover(**options)
        assert answer.status_code == 200, answer.text
        return RecoveryView.model_validate_json(answer.content)

    def opened(self, signed: SignedSnapshot | None) -> Snapshot:
        assert signed is not None
        return signed.open([self.replica.context.signing_key.public])


@pytest.fixture
async def stack(database_url: str, tmp_path: Path) -> AsyncIterator[Stack]:
    async with running_replica(database_url, tmp_path) as replica:
        headers = await replica.operator()
        await declare(replica, headers, document())
        yield Stack(replica, headers, await replica.enrolled(IdentityKind.EDGE, EAST),
                    await replica.enrolled(IdentityKind.AGENT, FLEET))


async def test_as_long_as_nobody_is_ahead_there_is_nothing_to_recover(stack: Stack) -> None:
    await stack.edge_says(1, 1)
    await stack.agent_says(epoch=1, generation=1)
    refused = await stack.recover()
    assert (await stack.ahead(), refused.status_code, refused.json()["code"]) == ([], 409, "nothing_to_recover")


async def test_an_edge_that_is_ahead_is_noticed(stack: Stack) -> None:
    before = REGISTRY.get_sample_value("meridian_control_plane_reports_ahead_total", {"kind": "edge"}) or 0
    await stack.edge_says(1, 57)
    assert await stack.ahead() == [("edge", "snapshot 1.57")]
    status = (await stack.replica.client.get("/operator/v1/status", headers=stack.headers)).json()
    assert [one["kind"] for one in status["ahead"]] == ["edge"]
    assert REGISTRY.get_sample_value("meridian_control_plane_reports_ahead_total", {"kind": "edge"}) == before + 1


@pytest.mark.parametrize(("lineage", "epoch", "generation"), [(1, 9, 1), (1, 1, 9), (2, 0, 0)])
async def test_an_agent_that_is_ahead_is_noticed(stack: Stack, lineage: int, epoch: int, generation: int) -> None:
    await stack.agent_says(lineage, epoch, generation)
    assert await stack.ahead() == [("agent", f"lineage {lineage}, epoch {epoch}, generation {generation}")]


async def test_the_new_lineage_is_higher_than_any_that_was_ever_seen(stack: Stack) -> None:
    await stack.edge_says(4, 57)
    await stack.agent_says(6, 3, 3)
    assert (await stack.recovered()).lineage == 7
    assert await stack.ahead() == []


async def test_edges_get_a_snapshot_of_it_at_once(stack: Stack) -> None:
    await stack.edge_says(1, 57)
    done = await stack.recovered()
    snapshot = stack.opened((await stack.edge_says(1, 57)).snapshot)
    assert (snapshot.lineage, snapshot.version) == (2, done.version)


async def test_agents_get_the_proof_and_desired_state_above_all_that_they_saw(stack: Stack) -> None:
    await stack.agent_says(epoch=9, generation=9)
    await stack.recovered()
    answer = await stack.agent_says(epoch=9, generation=9)
    assert answer.recovery is not None
    order = answer.recovery.open([stack.replica.context.signing_key.public])
    assert (answer.lineage, order.lineage, order.reason, order.recovered_by) == (2, 2, "the disk died", "operator:olga")
    assert answer.desired is not None
    assert answer.desired.generation > 9
    followed = await stack.agent_says(2, answer.epoch, answer.desired.generation)
    assert (followed.recovery, followed.desired) == (None, None)


async def test_what_an_agent_of_the_older_lineage_saw_counts_for_nothing(stack: Stack) -> None:
    await stack.agent_says(epoch=9, generation=9)
    await stack.recovered()
    report = {"deployment_id": f"{EAST}-a-glm", "observed_generation": 99, "phase": "ready", "pools": []}
    await stack.agent_says(1, 9, 9, deployments=[report])
    status = (await stack.replica.client.get("/operator/v1/status", headers=stack.headers)).json()
    (deployment,) = [one for place in status["datacenters"] for one in place["deployments"] if place["id"] == EAST]
    assert deployment["observed_generation"] != 99


async def test_machines_that_do_not_follow_yet_are_told(stack: Stack) -> None:
    await stack.edge_says(1, 57)
    await stack.agent_says(epoch=9, generation=9)
    done = await stack.recovered()
    assert [one["kind"] for one in (await stack.look())["behind"]] == ["edge", "agent"]
    status = (await stack.replica.client.get("/operator/v1/status", headers=stack.headers)).json()
    assert status["edges"][0]["behind"] == done.version
    await stack.edge_says(2, done.version or 0)
    await stack.agent_says(2, 1, 1)
    assert (await stack.look())["behind"] == []


async def test_it_is_one_audit_event_with_the_reason(stack: Stack) -> None:
    await stack.edge_says(1, 57)
    await stack.recovered()
    answer = await stack.replica.client.get("/operator/v1/audit?target=lineage:2", headers=stack.headers)
    (event,) = answer.json()["data"]
    assert (event["action"], event["reason"], len(event["before"]["ahead"])) == ("lineage.raise", "the disk died", 1)


async def test_a_dry_run_changes_nothing(stack: Stack) -> None:
    await stack.edge_says(1, 57)
    planned = await stack.recovered(dry_run=True)
    assert (planned.lineage, planned.version, planned.recovered_at) == (2, None, None)
    assert await stack.ahead() == [("edge", "snapshot 1.57")]


async def test_with_force_it_goes_without_anybody_ahead(stack: Stack) -> None:
    assert (await stack.recovered(force=True)).lineage == 2


async def test_it_may_be_needed_twice(stack: Stack) -> None:
    await stack.edge_says(1, 57)
    await stack.recovered()
    await stack.edge_says(2, 99)
    assert (await stack.recovered()).lineage == 3


async def test_only_an_admin_recovers(stack: Stack) -> None:
    headers = await stack.replica.operator(OperatorScope.OPERATE)
    assert (await stack.replica.client.post(PATH, json=REASON, headers=headers)).status_code == 403


async def test_keys_that_edges_know_ended_end_again(stack: Stack) -> None:
    team = await stack.replica.team("acme")
    key = await stack.replica.key(team.id, Scope.INFERENCE)
    digest = await digest_of(stack, key.id)
    await stack.edge_says(1, 57)
    assert (await stack.edge_says(1, 57, ended_keys=[digest])).revocations == []
    await stack.recovered()
    version = stack.opened((await stack.edge_says(1, 57)).snapshot).version
    await stack.edge_says(2, version, ended_keys=[digest, "unknown"])
    answer = await stack.edge_says(2, version)
    assert [revocation.digest for revocation in answer.revocations] == [digest]


async def digest_of(stack: Stack, key_id: str) -> str:
    async with stack.replica.context.db.engine.begin() as connection:
        found = await connection.exec_driver_sql("SELECT digest FROM api_key WHERE id = $1", (key_id,))
        return str(found.scalar_one())


@pytest.fixture
async def world(database_url: str, tmp_path: Path) -> AsyncIterator[World]:
    async with running_world(database_url, tmp_path, EAST, "us-west-2") as made:
        yield made


async def test_operations_that_were_under_way_in_the_copy_end_as_failed_with_words(world: World) -> None:
    operation_id = await world.started("drain", EAST)
    answer = await world.replica.client.post(PATH, json=REASON | {"force": True}, headers=world.operator)
    assert answer.json()["before"]["open_operations"] == [operation_id]
    operation = await world.operation(operation_id)
    assert (operation.state, "restored from an older copy" in (operation.error or "")) == ("failed", True)
    again = await world.ask("drain", EAST, dry_run=True)
    assert again.status_code == 200

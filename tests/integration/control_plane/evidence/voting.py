"""Edges that vote and count, as a test tells them to."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from control_plane.contracts.edge_sync import EdgeSyncRequest
from control_plane.contracts.evidence import QualityMinute, Vote, VoteVerdict
from control_plane.contracts.operations import OperationView
from control_plane.contracts.operator import Page
from tests.integration.control_plane.simulated import SimulatedEdge, World, running_world

AMERICA, EUROPE, ASIA = "us-east-1", "eu-north-1", "ap-south-1"
AFTER_S = 0.6


@dataclass
class VotingEdge(SimulatedEdge):
    """`against` are the datacenters that it calls lost, `minutes` what it counted."""

    against: list[str] = field(default_factory=list)
    verdict: VoteVerdict = VoteVerdict.LOST
    minutes: list[QualityMinute] = field(default_factory=list)
    streams: dict[str, int] = field(default_factory=dict)

    async def post(self, wait_s: float = 0.0) -> httpx.Response:
        request = EdgeSyncRequest(
            boot_id=self.boot_id, release="0.1.0", acked_lineage=self.snapshot.lineage if self.snapshot else 0,
            acked_version=self.snapshot.version if self.snapshot else 0, nack=self.nack,
            revocations_after=self.revocations_after, open_requests=self.open_requests, open_streams=self.streams,
            sessions=self.streams, wait_s=wait_s, minutes=self.minutes,
            votes=[Vote(datacenter_id=one, verdict=self.verdict, held_s=3.0, evidence="refuses connections")
                   for one in self.against])
        return await self.replica.signed(self.peer, "/edge/v1/sync", request.model_dump_json().encode())


@asynccontextmanager
async def voting_world(database_url: str, directory: Path, *places: str, edges: int = 3,
                       **settings: Any) -> AsyncIterator[tuple[World, list[VotingEdge]]]:
    """Three datacenters in three regions, with an edge in each; a quorum needs a second."""
    settings = {"failover_after_s": AFTER_S} | settings
    async with running_world(database_url, directory, *(places or (AMERICA, EUROPE, ASIA)), edges=edges,
                             **settings) as world:
        fleet = [VotingEdge(edge.replica, edge.peer, snapshot=edge.snapshot) for edge in world.edges]
        world.edges[:] = fleet
        yield world, fleet


async def operations(world: World) -> list[OperationView]:
    """Every operation there ever was."""
    answer = await world.replica.client.get("/operator/v1/operations", headers=world.operator)
    assert answer.status_code == 200, answer.text
    return Page[OperationView].model_validate_json(answer.content).data

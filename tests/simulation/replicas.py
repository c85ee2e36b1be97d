"""The control plane's replicas: the product's services and its reconcile loop over one simulated database."""

from collections import defaultdict
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from random import Random
from typing import Any

import msgspec

from control_plane.agents import service as agents
from control_plane.context import AppContext
from control_plane.contracts.agent_sync import AgentSyncRequest
from control_plane.contracts.edge_sync import EdgeSyncAnswer, EdgeSyncRequest
from control_plane.contracts.enrolment import IdentityKind
from control_plane.contracts.signing import SigningKey
from control_plane.contracts.snapshot import SignedSnapshot
from control_plane.errors import Refusal
from control_plane.evidence.quorum import Rules
from control_plane.evidence.work import FailoverWork
from control_plane.identity.cache import Machine
from control_plane.operations.facts import Pace
from control_plane.operations.work import OperationsWork
from control_plane.reconcile import runner
from control_plane.routing import publisher
from control_plane.routing import service as routing
from control_plane.settings import Settings
from control_plane.usage import intake
from control_plane.usage.partitions import Partitions
from control_plane.usage.service import Intake
from control_plane.wakeup import Wakeups
from tests.simulation.database import Away, SimulatedDatabase, Tables
from tests.simulation.loop import VirtualLoop
from tests.simulation.process import InOrder, Process, SkewedClock
from tests.simulation.story import Story

PACE = Pace(verify_s=1.0, probe_observations=2, hold_s=0.5, flap_wait_s=1.0, ack_wait_s=6.0, evacuate_s=4.0,
            watch_s=1.0, failover_after_s=4.0)
RULES = Rules(after_s=4.0, again_after_s=10.0)
POISON = -1.0
"""`built_at_s` of a snapshot that no edge may take."""


@lru_cache(maxsize=1)
def settings() -> Settings:
    """Whatever the environment says, but for what must be there."""
    return Settings(database_url="postgresql+asyncpg://nobody@127.0.0.1/none", signing_key_file=Path("none"))


class Replica(Process):
    """One boot of a replica."""

    def __init__(self, name: str, story: Story, loop: VirtualLoop, tables: Tables, clock: SkewedClock,
                 key: SigningKey, chance: Random) -> None:
        super().__init__(name, story, loop)
        self.chance, self.poisons = chance, False
        self.tables, self.key = tables, key
        self.db = SimulatedDatabase(tables, self)
        self.wakeups = Wakeups("")
        waiting: Any = defaultdict(InOrder)
        self.wakeups._waiting = waiting
        tables.listeners.append(self._hear)
        unused: Any = None
        self.context = AppContext(
            settings=settings(), db=self.db, clock=clock, signing_key=key, wakeups=self.wakeups, identities=unused,
            partitions=Partitions(), board=unused)
        self._intake = Intake(self.db, clock, 35, self.context.partitions)
        operations, failover = OperationsWork(self.context), FailoverWork(self.context)
        operations._pace, failover._rules = PACE, RULES
        for work in (operations, failover):
            self.spawn(runner.run(self.context, work))

    async def publish(self) -> None:
        """The first snapshot."""
        async with self.db.begin() as session:
            await publisher.publish(session, self.key, "bootstrap")

    async def serve(self, path: str, machine_id: str, subject: str, content: bytes) -> tuple[int, bytes]:
        """Status and body of the answer to a machine."""
        try:
            if path == "/agent/v1/sync":
                asked = AgentSyncRequest.model_validate_json(content)
                machine = Machine(machine_id, IdentityKind.AGENT, subject)
                return 200, (await agents.sync(self.context, machine, asked)).model_dump_json().encode()
            if path == "/edge/v1/sync":
                machine = Machine(machine_id, IdentityKind.EDGE, subject)
                report = EdgeSyncRequest.model_validate_json(content)
                answer = await routing.sync(self.context, machine, report)
                return 200, self._poisoned(answer).model_dump_json().encode()
            batch = intake.decode(content)
            return 200, msgspec.json.encode(await self._intake.receive(machine_id, batch))
        except Refusal as refusal:
            self.story.note(f"refuses {machine_id}: {refusal.code}")
            if refusal.code in ("stale_epoch", "superseded"):
                self.story.reach(f"the control plane refused an agent: {refusal.code}")
            return refusal.status, refusal.problem.model_dump_json().encode()
        except Away:
            return 503, b""

    def kill(self) -> None:
        super().kill()
        self.tables.listeners.remove(self._hear)

    def _hear(self, channel: str) -> None:
        """Hints arrive late, or never."""
        if self.chance.random() < 0.9:
            self.loop.call_later(0.002 + 0.01 * self.chance.random(), self.wakeups.wake, channel)

    def _poisoned(self, answer: EdgeSyncAnswer) -> EdgeSyncAnswer:
        """Now and then, when a fault says so, a snapshot that must be refused: signed, and wrong."""
        if not self.poisons or answer.snapshot is None or self.chance.random() < 0.5:
            return answer
        body = msgspec.json.decode(answer.snapshot.body)
        body["built_at_s"] = POISON
        kind = self.chance.choice(("unsigned", "weight", "lost model", "unexplained"))
        if kind == "lost model" and body["lineage"] > 1:
            return answer  # a new lineage may know fewer models
        if kind == "weight":
            body["datacenters"][0]["weight"] = 1_000_000
        elif kind == "lost model":
            body["models"] = body["models"][1:]
        elif kind == "unexplained":
            for model in body["models"]:
                model["routes"], model["unroutable_reason"] = [], None
        text = msgspec.json.encode(body).decode()
        self.story.note(f"sends a poisoned snapshot ({kind})")
        if kind == "unsigned":
            return answer.model_copy(update={"snapshot": answer.snapshot.model_copy(update={"body": text})})
        return answer.model_copy(update={"snapshot": sign(text, self.key)})


def sign(body: str, key: SigningKey) -> SignedSnapshot:
    """A body as it is, under a good signature."""
    import base64

    signature = base64.urlsafe_b64encode(key.sign(body.encode())).decode()
    return SignedSnapshot(key_id=key.public.key_id, signature=signature, body=body)


@dataclass
class Place:
    """Where a replica runs: which boot of it, if any."""

    name: str
    process: Replica | None = None

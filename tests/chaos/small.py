"""A small world for the same load and the same checker: one edge process, a frontend that obeys, and a control plane
that keeps what it is told. It starts in a second, so that an edge can be killed many times, and bugs can be planted.
"""

import asyncio
import contextlib
import os
import random
import signal
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path

from control_plane.contracts.clock import SystemClock
from control_plane.contracts.usage import UsageRecord
from tests.chaos import checker, history, power
from tests.chaos.checker import BACK, Property
from tests.chaos.evidence import Evidence, Record, Spent
from tests.chaos.history import Fault, Journal
from tests.chaos.load import Load, Plan
from tests.integration.edge_api.control_plane import KEY, TOKEN, ControlPlane, serving
from tests.integration.edge_api.hot.datacenter import DONE, Datacenter, Upcall, chunk, final_usage, whole_answer
from tests.integration.edge_api.process import START_S, EdgeProcess
from tests.integration.edge_api.waiting import until
from tests.unit.edge_api.builders import MODEL, snapshot

CLOCK = SystemClock()
PER_S = 60.0
LIFE_S = (0.6, 1.4)
AWAY_S = 0.6
SETTLED_S = 15.0
PACE_S = 0.004


async def obedient(call: Upcall) -> None:
    """Says as many words as it is asked for, a token each; whoever only probes is told that it lives."""
    if not call.raw:
        await call.answer(200, b"{}")
        return
    tokens = int(call.body.get("max_tokens") or call.body["max_completion_tokens"])
    if not call.body.get("stream"):
        await call.answer(200, whole_answer(" a" * tokens, completion=tokens))
        return
    await call.begin_stream()
    for said in range(1, tokens + 1):
        await call.send(as_asked(call, chunk(" a", [100 + said], completion=said)))
        await asyncio.sleep(PACE_S)
    await call.send(chunk("", [], finish="length", completion=tokens), final_usage(16, tokens), DONE)
    await call.end_stream()


def as_asked(call: Upcall, event: bytes) -> bytes:
    """A completion's words stand elsewhere than a chat's."""
    if call.path.endswith("/chat/completions"):
        return event
    return event.replace(b'"delta":{"content":" a","role":"assistant"}', b'"text":" a"')


class PlantedEdge(EdgeProcess):
    """An edge whose process may have a bug, or a disk that forgets."""

    def __init__(self, directory: Path, url: str, plant: str, forgets: bool) -> None:
        super().__init__(directory, url)
        self.notes = directory / power.NOTES
        lines = [f"from tests.chaos.plants import {plant}; {plant}.plant()"] if plant else []
        if forgets:
            lines.append("from pathlib import Path; from tests.chaos.power import lose_unsynced; "
                         f"lose_unsynced(Path({str(self.notes)!r}))")
        self._program = "\n".join([*lines, "from edge_api.main import main", "main()"])

    async def start(self, ready: bool = True) -> None:
        with self.log_path.open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                sys.executable, "-c", self._program, env=os.environ | self._environment, stdout=log, stderr=log)
        await asyncio.wait_for(self.answers("/readyz" if ready else "/healthz"), START_S)


@dataclass
class SmallWorld:
    """One run. `forgotten_bytes` is what the disk forgot, over all losses of power."""

    edge: PlantedEdge
    control_plane: ControlPlane
    journal: Journal
    directory: Path
    chance: random.Random
    forgets: bool
    forgotten_bytes: int = 0
    loads: list[Path] = field(default_factory=list)

    @property
    def victim(self) -> str:
        return f"{checker.EDGE}{self.edge.port}"

    async def run(self, kills: int) -> None:
        """The edge dies again and again, and now and then the control plane is away, while it is asked all the time."""
        path = self.directory / "load.jsonl"
        self.loads.append(path)
        plan = Plan([self.edge.url], [("team_1", KEY)], MODEL, str(path), seed=self.chance.randrange(1 << 30),
                    per_s=PER_S)
        with Journal(path) as journal:
            load = Load(plan, journal)
            running = asyncio.create_task(load.run())
            for _ in range(kills):
                await self._one_life()
            load.stopped.set()
            await running
        await self._settle()

    async def _one_life(self) -> None:
        await asyncio.sleep(self.chance.uniform(*LIFE_S))
        self.control_plane.away = True
        await asyncio.sleep(AWAY_S)
        self.control_plane.away = False
        await asyncio.sleep(self.chance.uniform(*LIFE_S))
        self.journal.write(Fault("kill", self.victim, CLOCK.time_s()))
        await self.edge.stop(signal.SIGKILL)
        if self.forgets:
            self.forgotten_bytes += power.lose_power(self.edge.notes)
        await self.edge.start()
        self.journal.write(Fault(BACK, self.victim, CLOCK.time_s()))

    async def _settle(self) -> None:
        """Until everything that was begun is told of, or no more comes."""
        begun = {one.request_id for one in history.read(self.loads).tries if one.status == checker.OK}
        with contextlib.suppress(TimeoutError):
            await until(lambda: begun <= {record.hex for record in self.control_plane.records}, SETTLED_S)

    def properties(self) -> list[Property]:
        """The same proof as on a whole stack, as far as there is one."""
        seen = history.read([*self.loads, self.directory / "driver.jsonl"])
        windows = checker.windows_of(seen.faults, [self.edge.port])
        return [*checker.traffic(seen), *checker.clients(seen, windows),
                *checker.usage(seen, evidence_of(self.control_plane), windows)]


def evidence_of(control_plane: ControlPlane) -> Evidence:
    """What the control plane was told, judged as the real one judges it: a second truth about one id is set aside."""
    told = [frame for batch in control_plane.batches for frame in batch.frames if isinstance(frame, UsageRecord)]
    contradictions = ["contradiction" for frame in told if control_plane.records[frame.request_id] != frame]
    records = [
        Record(record.request_id.hex, record.team_id, record.outcome, record.completion_tokens,
               Decimal(record.cost_usd), record.opened_at_s, "edge", record.resumes,
               [(attempt.datacenter_id, attempt.failed) for attempt in record.attempts])
        for record in control_plane.records.values()]
    waiting = set(control_plane.opens) - set(control_plane.records)
    cost = sum((record.cost_usd for record in records), Decimal(0))
    return Evidence(records, [Spent("team", "team_1", checker.LIFETIME, cost)], 0, len(waiting), contradictions, [], [])


@contextlib.asynccontextmanager
async def small_world(directory: Path, seed: int, plant: str = "", forgets: bool = False) -> AsyncIterator[SmallWorld]:
    """An edge that is ready, and everything around it; all of it is gone at the end."""
    (directory / "token").write_text(TOKEN)
    frontend = Datacenter(obedient)
    await frontend.listen()
    async with serving(ControlPlane()) as control_plane:
        control_plane.publish(snapshot(ports={"us-east-1": frontend.port}, weights={"us-east-1": 1}))
        edge = PlantedEdge(directory, control_plane.url, plant, forgets)
        try:
            await edge.start()
            with Journal(directory / "driver.jsonl") as journal:
                yield SmallWorld(edge, control_plane, journal, directory, random.Random(seed), forgets)
        finally:
            await edge.stop(signal.SIGKILL)
            await frontend.close()

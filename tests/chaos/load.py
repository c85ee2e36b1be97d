"""The load, as a process of its own, so that nothing the driver does slows it down: `python -m tests.chaos.load PLAN`.

Requests come at a steady rate, whether or not earlier ones were answered, in every dialect, from several teams and
keys, to the edges in turn. What fails in a way that may be tried again is tried again with an SDK's back-off, at the
other edge first. SIGTERM ends it: nothing new is begun, what is open is followed to its end.
"""

import asyncio
import random
import signal
import sys
from dataclasses import dataclass
from pathlib import Path

import msgspec

from control_plane.contracts.clock import SystemClock
from tests.chaos.client import Heard, ask
from tests.chaos.history import Held, Journal, Try, Verdict
from tests.chaos.ways import WAYS

CLOCK = SystemClock()
TRIES = 12
BACKOFF_FIRST_S, BACKOFF_MAX_S = 0.5, 8.0
# Way, share of the load, and fewest and most tokens.
MIX = (
    ("chat", 30, 1, 6), ("chat stream", 30, 4, 30), ("completion stream", 6, 4, 20), ("message", 10, 1, 6),
    ("message stream", 10, 4, 20), ("response", 6, 1, 6), ("response stream", 6, 4, 20), ("chat stream", 2, 200, 400),
)


class Plan(msgspec.Struct, frozen=True):
    """What to load with. `load` numbers it within its run. `keys` are pairs of team and secret; `at_most` is how many
    requests it may have in all, 0 for no end; `open_max` how many may be open."""

    edges: list[str]
    keys: list[tuple[str, str]]
    model: str
    history: str
    seed: int
    load: int = 0
    per_s: float = 50.0
    at_most: int = 0
    open_max: int = 600
    deadline_s: float = 60.0
    tries: int = TRIES


@dataclass(frozen=True)
class Question:
    """One request, before anybody was asked."""

    number: int
    way: str
    tokens: int
    team: str
    key: str

    @property
    def text(self) -> str:
        """Never the same twice: equal beginnings are one session, and all of a session go to one datacenter."""
        return f"question {self.number}"


class Load:
    """All the clients."""

    def __init__(self, plan: Plan, journal: Journal) -> None:
        self._plan, self._journal = plan, journal
        self._chance = random.Random(plan.seed)
        self._open = 0
        self.stopped = asyncio.Event()

    async def run(self) -> None:
        """Until it is stopped or has asked `at_most`; returns when every request has ended."""
        began_s, number = CLOCK.monotonic_s(), 0
        async with asyncio.TaskGroup() as group:
            while not self.stopped.is_set() and number < (self._plan.at_most or number + 1):
                number += 1
                question = self._next(number)
                if self._open >= self._plan.open_max:
                    self._journal.write(Held(number, CLOCK.time_s()))
                else:
                    group.create_task(self._follow(question))
                due_s = began_s + number / self._plan.per_s
                await asyncio.sleep(max(0.0, due_s - CLOCK.monotonic_s()))

    def _next(self, number: int) -> Question:
        way, _, fewest, most = self._chance.choices(MIX, [share for _, share, _, _ in MIX])[0]
        team, key = self._chance.choice(self._plan.keys)
        return Question(number, way, self._chance.randint(fewest, most), team, key)

    async def _follow(self, question: Question) -> None:
        """Asks until the answer is final."""
        self._open += 1
        try:
            edge = question.number % len(self._plan.edges)
            for attempt in range(1, self._plan.tries + 1):
                heard, may_go_on = await self._try(question, attempt, edge)
                if not may_go_on:
                    return
                edge = (edge + 1) % len(self._plan.edges)
                await asyncio.sleep(self._pause_s(attempt, heard))
        finally:
            self._open -= 1

    async def _try(self, question: Question, attempt: int, edge: int) -> tuple[Heard, bool]:
        began_s, loop_s = CLOCK.time_s(), asyncio.get_running_loop().time()
        heard = await ask(self._plan.edges[edge], question.key, self._plan.model, WAYS[question.way], question.text,
                          question.tokens, self._plan.deadline_s)
        may_go_on = heard.verdict is not Verdict.FINISHED and heard.retry and attempt < self._plan.tries
        self._journal.write(Try(
            load=self._plan.load, number=question.number, attempt=attempt, edge=edge, team=question.team,
            way=question.way, wanted=question.tokens, began_s=began_s, ended_s=CLOCK.time_s(),
            verdict=heard.verdict, retry=heard.retry,
            last=not may_go_on, status=heard.status,
            request_id=heard.headers.get("x-request-id", "").removeprefix("req_").replace("-", ""),
            datacenter=heard.headers.get("x-meridian-datacenter", ""), tokens=heard.tokens, digest=heard.digest,
            first_s=None if heard.first_s is None else heard.first_s - loop_s + began_s, fault=heard.fault))
        return heard, may_go_on

    def _pause_s(self, attempt: int, heard: Heard) -> float:
        """What SDKs wait: as long as they are told, else twice as long each time, a quarter less by chance."""
        if heard.wait_s is not None:
            return heard.wait_s
        longest_s = min(BACKOFF_MAX_S, BACKOFF_FIRST_S * 2.0 ** (attempt - 1))
        return longest_s * (1 - 0.25 * self._chance.random())


async def main(plan: Plan) -> None:
    """Runs a plan to its end."""
    with Journal(Path(plan.history)) as journal:
        load = Load(plan, journal)
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, load.stopped.set)
        await load.run()


if __name__ == "__main__":
    asyncio.run(main(msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=Plan)))

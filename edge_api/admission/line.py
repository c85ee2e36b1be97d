"""The line to Valkey: scripts in pipelines, each answered within 50 ms or not at all, and a circuit around it.

The first call without an answer takes the line down; from then on nobody waits for Valkey, until a probe in the
background has written to it again. Who calls is told by `done`: a list of integers, or None when nobody answered.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import NamedTuple

import structlog
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import NoScriptError, RedisError

from control_plane.contracts import ids
from control_plane.contracts.clock import Clock
from edge_api.admission.figures import AdmissionFigures
from edge_api.admission.scripts import SCRIPTS, SLOT_MS, Script

DEADLINE_S = 0.03
GRACE_S = 0.01  # for an answer that is here already, while this process was late itself
PROBE_S = 0.5
PROBE_DEADLINE_S = 1.0
MAX_BATCH = 256
MAX_QUEUED = 20_000
MAX_FLIGHTS = 4
PROBE_KEY = "adm:probe"

log = structlog.get_logger()

Answer = list[int] | None


class LineState(StrEnum):
    """Whether Valkey answers."""

    DOWN = "down"
    UP = "up"


TRANSITIONS: dict[LineState, frozenset[LineState]] = {
    LineState.DOWN: frozenset({LineState.UP}),
    LineState.UP: frozenset({LineState.DOWN}),
}


class Call(NamedTuple):
    """One script on one key."""

    script: Script
    key: str
    args: Sequence[int | str]
    done: Callable[[Answer], None]


def connect(url: str) -> Redis:
    """A client of Valkey that tries nothing twice. It connects at its first call."""
    return Redis.from_url(
        url, socket_timeout=PROBE_DEADLINE_S, socket_connect_timeout=PROBE_DEADLINE_S, retry=Retry(NoBackoff(), 0),
        protocol=2, max_connections=2 * MAX_FLIGHTS)


class Line:
    """Owns the client, the calls that wait, and whether Valkey answers. Without a client it is down for ever."""

    def __init__(self, client: Redis | None, clock: Clock, figures: AdmissionFigures) -> None:
        self._client, self._clock, self._figures = client, clock, figures
        self._queue: deque[Call] = deque()
        self._flights: set[asyncio.Task[None]] = set()
        self._is_due = False
        self._lost = asyncio.Event()
        self._lost.set()
        self._ahead_s = clock.time_s() - clock.monotonic_s()
        self.state = LineState.DOWN
        self.is_up = False
        self.on_up: list[Callable[[], None]] = []

    def slot(self) -> int:
        """The slot of this moment, by Valkey's clock as far as it is known."""
        return int((self._clock.monotonic_s() + self._ahead_s) * 1000) // SLOT_MS

    def heard_ms(self, now_ms: int) -> None:
        """Valkey said what time it is."""
        self._ahead_s = now_ms / 1000 - self._clock.monotonic_s()

    def call(self, call: Call) -> None:
        """Runs a script; those of one turn of the loop go in one round trip, in order. To be called while it is up."""
        if len(self._queue) >= MAX_QUEUED:
            self._go_down(OverflowError(f"{MAX_QUEUED} calls wait for it"))
        if not self.is_up:
            asyncio.get_running_loop().call_soon(call.done, None)
            return
        self._queue.append(call)
        if not self._is_due and len(self._flights) < MAX_FLIGHTS:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._send_due)

    def give_up(self) -> None:
        """Its answers come, and come too late for whoever asks more than once."""
        self._go_down(TimeoutError("its answers keep requests waiting"))

    async def run(self) -> None:
        """Looks for Valkey whenever it is lost, for ever."""
        task = asyncio.current_task()
        while self._client is not None:
            await self._lost.wait()
            is_found = await self.probe()
            if task is not None and task.cancelling():
                raise asyncio.CancelledError  # redis-py swallows a cancellation that comes while it connects
            if not is_found:
                await asyncio.sleep(ids.jitter(PROBE_S))

    async def probe(self) -> bool:
        """Takes the line up if Valkey can be written to, in time."""
        client = self._client
        if client is None:
            return False
        started_s = self._clock.monotonic_s()
        try:
            async with asyncio.timeout(PROBE_DEADLINE_S):
                for script in SCRIPTS.values():
                    await client.script_load(script.text)
                started_s = self._clock.monotonic_s()
                await client.set(PROBE_KEY, 1, px=1_000)
        except (RedisError, OSError, TimeoutError):
            return False
        if self._clock.monotonic_s() - started_s > DEADLINE_S:
            return False
        if self.state is LineState.DOWN:
            self._move(LineState.UP)
            for listener in self.on_up:
                listener()
        return True

    async def aclose(self) -> None:
        """Sends what waits, as far as a moment allows, and hangs up."""
        while self._flights or (self._queue and self.is_up):
            if not self._flights:
                self._send_due()
            await asyncio.wait(self._flights)
        if self._client is not None:
            await self._client.aclose()

    def _send_due(self) -> None:
        self._is_due = False
        while self._queue and len(self._flights) < MAX_FLIGHTS:
            batch = [self._queue.popleft() for _ in range(min(len(self._queue), MAX_BATCH))]
            task = asyncio.get_running_loop().create_task(self._fly(batch))
            self._flights.add(task)
            task.add_done_callback(self._landed)

    def _landed(self, task: asyncio.Task[None]) -> None:
        self._flights.discard(task)
        self._send_due()

    async def _fly(self, batch: list[Call]) -> None:
        answers: list[Answer]
        asked = asyncio.ensure_future(self._ask(batch))
        try:
            if not (await asyncio.wait({asked}, timeout=DEADLINE_S))[0]:
                async with asyncio.timeout(GRACE_S):
                    await asked
            answers = asked.result()
        except (RedisError, OSError, TimeoutError) as error:
            self._go_down(error)
            answers = [None] * len(batch)
        for call, answer in zip(batch, answers, strict=True):
            call.done(answer)

    async def _ask(self, batch: list[Call]) -> list[Answer]:
        if self._client is None:
            raise OSError("there is no Valkey")
        self._figures.valkey_calls.inc(len(batch))
        answers = await self._run(self._client, batch)
        if any(isinstance(answer, NoScriptError) for answer in answers):
            for script in SCRIPTS.values():
                await self._client.script_load(script.text)
            again = [at for at, answer in enumerate(answers) if isinstance(answer, NoScriptError)]
            for at, answer in zip(again, await self._run(self._client, [batch[at] for at in again]), strict=True):
                answers[at] = answer
        for answer in answers:
            if isinstance(answer, BaseException):
                self._go_down(answer)
        return [None if isinstance(answer, BaseException) else answer for answer in answers]

    async def _run(self, client: Redis, batch: list[Call]) -> list[list[int] | BaseException]:
        async with client.pipeline(transaction=False) as pipeline:
            for call in batch:
                pipeline.evalsha(call.script.sha, 1, call.key, *call.args)
            return list(await pipeline.execute(raise_on_error=False))

    def _go_down(self, error: BaseException) -> None:
        if self.state is LineState.DOWN:
            return
        self._move(LineState.DOWN)
        self._figures.valkey_losses.inc()
        log.warning("valkey_lost", error=f"{type(error).__name__}: {error}"[:200])
        waiting = list(self._queue)
        self._queue.clear()
        for call in waiting:
            call.done(None)

    def _move(self, state: LineState) -> None:
        if state not in TRANSITIONS[self.state]:
            raise RuntimeError(f"the line cannot go from {self.state} to {state}")
        self.state, self.is_up = state, state is LineState.UP
        self._figures.valkey_up.set(self.is_up)
        if self.is_up:
            self._lost.clear()
            log.info("valkey_in_use")
        else:
            self._lost.set()

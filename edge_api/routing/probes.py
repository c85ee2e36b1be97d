"""The prober: asks each frontend of the table, every half second and on connections of its own, whether it lives.

It asks for `/live`, which Dynamo's frontend answers from memory in 50 µs, whatever its workers do (`/health` lists all
of them and is 200 without any). Any answer below 500 is life. A probe may take longer than the time between two, so
probes overlap: a frontend that accepts and never answers is lost after the time-out and half a second. It is doubted
after `OVERDUE_S` already: new requests keep away, and nothing that is open there moves. The round trip of good ones is
smoothed into `Health.rtt_ms`.

An edge that was stopped or starved for a while must not take its own delay for everybody's loss: a probe that failed
later than its deadline says, by more than `LAG_S`, is not counted. Nor must an edge that is cut off itself: new
requests avoid a silent frontend at once, but what is open there only moves once another frontend was heard since.
"""

import asyncio
import errno
import math
import ssl
from collections.abc import Callable

import structlog

from control_plane.contracts import ids
from edge_api.hot.services import TableHolder
from edge_api.metrics import Metrics
from edge_api.routing.health import Health
from edge_api.routing.table import RoutingTable
from edge_api.routing.votes import Sight
from edge_api.routing.watch import Change, Result, Watch
from edge_api.upstream.connection import Headers, UpstreamConnection
from edge_api.upstream.pool import Address, PoolFull, PoolLimits, UpstreamPool

PERIOD_S = 0.5
DEFAULT_TIMEOUT_S = 2.0
FOLLOW_S = 0.1
LAG_S = 0.5
LAST_LOOK_S = 0.02
OVERDUE_S = 1.0
MAX_PER_S = 400
MAX_IN_FLIGHT = 1_024
RTT_SHARE = 0.2
"""How much of the smoothed round trip the newest one makes."""
OWN_FAULTS = {errno.EMFILE, errno.ENFILE, errno.EADDRNOTAVAIL, errno.ENOBUFS, errno.ENOMEM}

log = structlog.get_logger()


class Prober:
    """Owns the probes of one edge while `run` runs, and tells `health` what they say. `on_lost` is called at most once
    for each loss, after that: whatever is open there should go on elsewhere."""

    def __init__(self, table: TableHolder, health: Health, metrics: Metrics, on_lost: Callable[[Address], None],
                 timeout_s: float = DEFAULT_TIMEOUT_S, tls: ssl.SSLContext | None = None) -> None:
        self._table, self._health, self._metrics, self._on_lost = table, health, metrics, on_lost
        self._timeout_s = timeout_s
        self._pool = UpstreamPool(PoolLimits(
            connect_timeout_s=timeout_s, idle_s=10 * PERIOD_S, max_idle=1, max_open=MAX_IN_FLIGHT), health.clock, tls)
        self._frontends: dict[Address, _Frontend] = {}
        self._untold: set[_Frontend] = set()

    def sights(self) -> list[Sight]:
        """What is known of each frontend."""
        return [Sight(one.datacenter_id, one.watch) for one in self._frontends.values()]

    @property
    def fresh_s(self) -> float:
        """How old the newest result of a frontend that is probed as it should be can be, with some patience."""
        return self._timeout_s + LAG_S + 3 * self._period_s

    @property
    def _period_s(self) -> float:
        return max(PERIOD_S, len(self._frontends) / MAX_PER_S)

    async def run(self) -> None:
        """Probes for ever. When it ends nothing that it said holds any more."""
        table: RoutingTable | None = None
        try:
            async with asyncio.TaskGroup() as group:
                while True:
                    if self._table.current is not table and self._table.current is not None:
                        table = self._table.current
                        self._follow(table, group)
                    await asyncio.sleep(FOLLOW_S)
        finally:
            for address in list(self._frontends):
                self._leave(address)
            self._pool.close()

    def _follow(self, table: RoutingTable, group: asyncio.TaskGroup) -> None:
        """Watches what the table routes to, from now on, and nothing else."""
        datacenters = {r.address: r.datacenter_id for model in table.models.values() for r in model.routes}
        for address in self._frontends.keys() - datacenters.keys():
            self._leave(address)
        for address in datacenters.keys() - self._frontends.keys():
            frontend = self._frontends[address] = _Frontend(address, datacenters[address])
            frontend.probing = group.create_task(self._watch(frontend, group))

    def _leave(self, address: Address) -> None:
        frontend = self._frontends.pop(address)
        if frontend.probing is not None:
            frontend.probing.cancel()
        self._untold.discard(frontend)
        self._health.forget(address)
        self._pool.forget(address)

    async def _watch(self, frontend: "_Frontend", group: asyncio.TaskGroup) -> None:
        """Sends a probe now and then every period, a longer one with very many frontends."""
        probes: set[asyncio.Task[None]] = set()
        try:
            while True:
                count = len(self._frontends)
                if len(probes) < min(math.ceil(self._timeout_s / PERIOD_S) + 1, max(MAX_IN_FLIGHT // count, 2)):
                    probe = group.create_task(self._probe(frontend))
                    probes.add(probe)
                    probe.add_done_callback(probes.discard)
                await asyncio.sleep(ids.jitter(self._period_s, share=0.1))
        finally:
            for probe in probes:
                probe.cancel()

    async def _probe(self, frontend: "_Frontend") -> None:
        sent_s = self._health.clock.monotonic_s()
        overdue = asyncio.get_running_loop().call_later(OVERDUE_S, self._doubt, frontend, sent_s)
        try:
            result = await self._ask(frontend, sent_s)
        finally:
            overdue.cancel()
        if result is Result.GOOD:
            self._health.trust(frontend.address)
        if result in (Result.FAILED, Result.REFUSED) and self._is_late(sent_s):
            result = Result.UNFAIR
        self._metrics.probes.labels(frontend.datacenter_id, result).inc()
        change = frontend.watch.take(sent_s, result)
        if change is not None:
            self._change(frontend, change)
        if self._untold:
            self._tell_losses()

    async def _ask(self, frontend: "_Frontend", sent_s: float) -> Result:
        """What the frontend answers. An idle connection that it closed meanwhile says nothing: a fresh one is asked."""
        try:
            idle = self._pool.take(frontend.address)
            if idle is not None:
                result = await self._answer(idle, frontend, sent_s)
                if result is not Result.REFUSED:
                    return result
            return await self._answer(await self._pool.connect(frontend.address), frontend, sent_s)
        except (ConnectionRefusedError, ConnectionResetError):
            return Result.REFUSED
        except OSError as error:
            is_own = isinstance(error, PoolFull) or error.errno in OWN_FAULTS
            return Result.UNFAIR if is_own else Result.FAILED

    async def _answer(self, connection: UpstreamConnection, frontend: "_Frontend", sent_s: float) -> Result:
        """What comes back on this connection before the probe's deadline."""
        clock, answer = self._health.clock, _Answer(self._health.clock.monotonic_s)
        asked_s = clock.monotonic_s()
        connection.send(frontend.head, [], 0, answer)
        try:
            await asyncio.wait({answer.ended}, timeout=max(sent_s + self._timeout_s - asked_s, 0.0))
            if not answer.ended.done():  # the loop may have been late: what waits in the socket shall be read
                await asyncio.wait({answer.ended}, timeout=LAST_LOOK_S)
        finally:
            connection.abandon(answer)
        if answer.was_reset:
            return Result.REFUSED
        if not answer.status or answer.status >= 500:
            return Result.FAILED
        self._smooth(frontend, 1_000 * (answer.at_s - asked_s))
        return Result.GOOD

    def _smooth(self, frontend: "_Frontend", rtt_ms: float) -> None:
        known_ms = self._health.rtt_ms.get(frontend.address, rtt_ms)
        smoothed_ms = self._health.rtt_ms[frontend.address] = known_ms + RTT_SHARE * (rtt_ms - known_ms)
        self._metrics.rtt_s.labels(frontend.datacenter_id).set(smoothed_ms / 1_000)

    def _doubt(self, frontend: "_Frontend", sent_s: float) -> None:
        """A probe is overdue. Not if this edge was late to look, or a younger one was answered."""
        on_time = self._health.clock.monotonic_s() <= sent_s + OVERDUE_S + LAG_S
        if on_time and frontend.watch.newest_good_s <= sent_s:
            self._health.doubt(frontend.address)

    def _is_late(self, sent_s: float) -> bool:
        """Whether this edge was late to see a failure, and so may have been late to see an answer."""
        return self._health.clock.monotonic_s() > sent_s + self._timeout_s + LAST_LOOK_S + LAG_S

    def _change(self, frontend: "_Frontend", change: Change) -> None:
        host, port, _ = frontend.address
        if change is Change.RECOVERED:
            log.info("frontend_recovered", datacenter=frontend.datacenter_id, host=host, port=port)
            self._untold.discard(frontend)
            self._health.recovered(frontend.address, frontend.datacenter_id)
            return
        log.warning("frontend_lost", datacenter=frontend.datacenter_id, host=host, port=port)
        self._metrics.losses.labels(frontend.datacenter_id).inc()
        self._health.lost(frontend.address)
        self._untold.add(frontend)

    def _tell_losses(self) -> None:
        """Lets what is open at lost frontends move, where it is certain that they and not this edge are cut off."""
        for frontend in list(self._untold):
            lost = frontend.watch
            if lost.was_refused or any(other.watch.is_witness_for(lost) for other in self._frontends.values()):
                self._untold.discard(frontend)
                self._on_lost(frontend.address)


class _Frontend:
    """One frontend under probes."""

    def __init__(self, address: Address, datacenter_id: str) -> None:
        host, port, _ = address
        self.address, self.datacenter_id, self.watch = address, datacenter_id, Watch()
        self.probing: asyncio.Task[None] | None = None
        named = f"[{host}]" if ":" in host else host
        self.head = f"GET /live HTTP/1.1\r\nhost: {named}:{port}\r\naccept: */*\r\n\r\n".encode()


class _Answer:
    """Takes one probe's answer. `status` is 0 until its head is in, which was at `at_s`."""

    def __init__(self, monotonic_s: Callable[[], float]) -> None:
        self._monotonic_s = monotonic_s
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.status, self.at_s, self.was_reset = 0, 0.0, False

    def on_head(self, status: int, headers: Headers) -> None:
        self.status, self.at_s = status, self._monotonic_s()

    def on_body(self, data: bytes) -> None:
        """Nobody reads it."""

    def on_end(self) -> None:
        self.ended.set_result(None)

    def on_lost(self, reason: str, answered: bool) -> None:
        self.was_reset = not self.status
        self.ended.set_result(None)

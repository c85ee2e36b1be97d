"""The prober before real sockets: who is lost, who is merely slow, how soon, and what an edge's own delay is worth."""

import asyncio
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress

import pytest
import uvloop

from control_plane.contracts.clock import SystemClock
from edge_api.metrics import Metrics
from edge_api.routing.health import Health
from edge_api.routing.probes import LAG_S, PERIOD_S, Prober
from edge_api.routing.table import build_table
from edge_api.snapshot.holder import TableHolder
from edge_api.upstream.pool import Address
from tests.unit.edge_api.builders import MODEL, snapshot
from tests.unit.edge_api.routing.frontends import Frontend, frontend

TIMEOUT_S = 0.6
ERROR = b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n"
NOT_FOUND = b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n"
LIVING = """
import http.server, sys
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()
    def log_message(self, *_): pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(server.server_port, flush=True)
server.serve_forever()
"""


class World:
    """A prober, its table, and what it called lost."""

    def __init__(self, timeout_s: float) -> None:
        self.holder, self.health, self.metrics = TableHolder(), Health(SystemClock()), Metrics()
        self.losses: list[Address] = []
        self.prober = Prober(self.holder, self.health, self.metrics, self.losses.append, timeout_s)
        self._version = 0

    def routes_to(self, **ports: int) -> None:
        """A new snapshot with a datacenter for each name."""
        self._version += 1
        weights = dict.fromkeys(ports, 100)
        self.holder.take(snapshot(version=self._version, weights=weights, ports=ports, reason="none"))

    def is_away(self, datacenter_id: str) -> bool:
        """Whether the most reluctant session keeps away from it."""
        routes = build_table(self.holder.snapshot).models[MODEL].routes if self.holder.snapshot else ()
        (route,) = [route for route in routes if route.datacenter_id == datacenter_id]
        return self.health.is_away(route, 0.0)

    def count(self, datacenter_id: str, result: str) -> float:
        return self.metrics.registry.get_sample_value(
            "meridian_edge_probes_total", {"datacenter": datacenter_id, "result": result}) or 0.0


@asynccontextmanager
async def probing(timeout_s: float = TIMEOUT_S, **ports: int) -> AsyncIterator[World]:
    world = World(timeout_s)
    world.routes_to(**ports)
    task = asyncio.create_task(world.prober.run())
    try:
        yield world
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def until(holds: Callable[[], object], within_s: float = 5.0) -> float:
    """Waits until it holds; how long that took."""
    started_s = time.monotonic()
    async with asyncio.timeout(within_s):
        while True:
            if holds():
                return time.monotonic() - started_s
            await asyncio.sleep(0.01)


def freeze(seconds: float) -> None:
    """Nothing of this process runs, as after SIGSTOP."""
    time.sleep(seconds)


async def test_a_new_frontend_is_asked_at_once_and_then_every_half_second() -> None:
    async with frontend() as living, probing(dc=living.port) as world:
        assert await until(lambda: living.asked) < PERIOD_S / 2
        await asyncio.sleep(4 * PERIOD_S)
        assert 3 <= len(living.asked) <= 6
        assert living.asked[0] == b"GET /live HTTP/1.1"
        assert not world.is_away("dc")


async def test_probes_of_a_living_frontend_share_one_connection() -> None:
    async with frontend() as living, probing(dc=living.port):
        await until(lambda: len(living.asked) >= 4)
        assert living.connections == 1


async def test_its_round_trip_is_measured() -> None:
    async with frontend(delay_s=0.05) as living, probing(dc=living.port) as world:
        await until(lambda: len(living.asked) >= 3)
        assert 50 <= world.health.rtt_ms[living.address] < 300


async def test_a_refusal_is_a_loss_at_once() -> None:
    async with frontend() as living, probing(dc=living.port) as world:
        await until(lambda: living.asked)
        await living.stop()
        assert await until(lambda: world.losses) < 2 * PERIOD_S
        assert world.losses == [living.address]
        assert world.is_away("dc")


async def test_a_reset_is_a_loss_at_once() -> None:
    async with frontend(resets=True) as resetting, probing(dc=resetting.port) as world:
        assert await until(lambda: world.losses) < 2 * PERIOD_S


async def test_a_black_hole_is_lost_after_the_time_out_and_half_a_second() -> None:
    async with frontend() as living, frontend(answer=b"") as hole, probing(dc=hole.port, other=living.port) as world:
        took_s = await until(lambda: world.losses)
        assert TIMEOUT_S + 0.8 * PERIOD_S < took_s < TIMEOUT_S + 3 * PERIOD_S
        assert world.losses == [hole.address]


async def test_what_is_open_in_the_only_datacenter_is_not_moved_by_silence() -> None:
    async with frontend(answer=b"") as hole, probing(dc=hole.port) as world:
        await until(lambda: world.is_away("dc"))
        await asyncio.sleep(3 * PERIOD_S)
        assert world.losses == []


async def test_what_is_open_is_not_moved_when_all_fall_silent_and_moves_once_another_is_heard() -> None:
    async with frontend() as one, frontend() as other, probing(one=one.port, other=other.port) as world:
        await until(lambda: world.count("one", "good") > 1 and world.count("other", "good") > 1)
        one.delay_s = other.delay_s = 60.0
        await until(lambda: world.is_away("one") and world.is_away("other"))
        await asyncio.sleep(2 * PERIOD_S)
        assert world.losses == []
        other.delay_s = 0.0
        await until(lambda: world.losses)
        assert world.losses == [one.address]


async def test_a_stopped_process_is_lost_and_found_again() -> None:
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", LIVING, stdout=asyncio.subprocess.PIPE)
    try:
        assert process.stdout is not None
        port = int(await process.stdout.readline())
        async with frontend() as living, probing(dc=port, other=living.port) as world:
            await until(lambda: world.count("dc", "good") > 1)
            process.send_signal(signal.SIGSTOP)
            await until(lambda: world.losses)
            process.send_signal(signal.SIGCONT)
            await until(lambda: not world.is_away("dc"))
            assert len(world.losses) == 1
    finally:
        process.kill()
        await process.communicate()


async def test_slow_is_not_lost() -> None:
    async with frontend(delay_s=0.8 * TIMEOUT_S) as slow, probing(dc=slow.port) as world:
        await until(lambda: world.count("dc", "good") >= 4)
        assert world.losses == []


async def test_one_slow_answer_among_good_ones_is_not_lost() -> None:
    async with frontend() as living, probing(dc=living.port) as world:
        await until(lambda: living.asked)
        living.delay_s = 5.0
        await until(lambda: world.count("dc", "failed") == 0 and len(living.asked) >= 2)
        living.delay_s = 0.0
        await until(lambda: world.count("dc", "failed") == 1)
        await asyncio.sleep(2 * PERIOD_S)
        assert world.losses == []


async def test_errors_of_whoever_stands_before_it_are_a_loss() -> None:
    async with (frontend() as living, frontend(answer=ERROR) as failing,
                probing(dc=failing.port, other=living.port) as world):
        assert PERIOD_S / 2 < await until(lambda: world.losses) < 4 * PERIOD_S


async def test_a_server_that_does_not_know_the_path_lives() -> None:
    async with frontend(answer=NOT_FOUND) as strange, probing(dc=strange.port) as world:
        await until(lambda: world.count("dc", "good") >= 3)
        assert world.losses == []


async def test_a_connection_that_the_frontend_closed_is_no_evidence() -> None:
    async with frontend() as closing, probing(dc=closing.port) as world:
        for probes in range(1, 5):
            await until(lambda: len(closing.asked) >= probes)  # noqa: B023
            closing.close_connections()
        assert world.losses == []
        assert closing.connections >= 3


async def test_two_good_answers_bring_it_back() -> None:
    async with frontend() as living, probing(dc=living.port) as world:
        await until(lambda: living.asked)
        await living.stop()
        await until(lambda: world.losses)
        await living.start()
        took_s = await until(lambda: not world.is_away("dc"))
        assert took_s < 4 * PERIOD_S
        assert world.count("dc", "good") >= 3


async def test_one_loss_says_nothing_of_the_others() -> None:
    async with frontend() as living, frontend(answer=b"") as hole, probing(here=living.port, there=hole.port) as world:
        await until(lambda: world.losses)
        assert world.losses == [hole.address]
        assert not world.is_away("here")


async def stopped_edge() -> None:
    """An edge that does not run for longer than a probe may take."""
    async with (frontend(delay_s=0.05) as one, frontend(answer=b"") as hole,
                probing(one=one.port, hole=hole.port) as world):
        await until(lambda: len(one.asked) >= 2 and hole.asked)
        freeze(TIMEOUT_S + LAG_S + 1.0)
        await until(lambda: world.count("hole", "unfair"))
        assert world.losses == []
        assert world.count("one", "refused") == world.count("one", "failed") == 0


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_an_edge_that_was_stopped_itself_calls_nobody_lost(run: Callable[[Coroutine[None, None, None]], None]) -> None:
    run(stopped_edge())


async def test_a_frontend_that_left_the_table_is_asked_no_more_and_forgotten() -> None:
    async with (frontend() as staying, frontend(resets=True) as leaving,
                probing(staying=staying.port, leaving=leaving.port) as world):
        await until(lambda: world.losses)
        world.routes_to(staying=staying.port)
        await until(lambda: not world.health.has_faults)
        asked = len(leaving.asked)
        await asyncio.sleep(2 * PERIOD_S)
        assert len(leaving.asked) == asked
        assert len(staying.asked) > 2


async def test_a_frontend_that_joins_is_asked_at_once() -> None:
    async with frontend() as first, frontend() as second, probing(first=first.port) as world:
        await until(lambda: first.asked)
        world.routes_to(first=first.port, second=second.port)
        assert await until(lambda: second.asked) < PERIOD_S


async def test_an_unchanged_frontend_keeps_its_connection_and_its_judgement_over_a_new_table() -> None:
    async with (frontend() as living, frontend(answer=b"") as hole,
                probing(dc=hole.port, other=living.port) as world):
        await until(lambda: world.losses)
        world.routes_to(dc=hole.port, other=living.port)
        await asyncio.sleep(PERIOD_S)
        assert world.is_away("dc")
        assert len(world.losses) == 1


async def test_what_a_prober_said_ends_with_it() -> None:
    async with frontend(resets=True) as resetting:
        async with probing(dc=resetting.port) as world:
            await until(lambda: world.losses)
        assert not world.health.has_faults


async def test_a_black_hole_has_a_bounded_number_of_probes_open() -> None:
    async with frontend(answer=b"") as hole, probing(timeout_s=2.0, dc=hole.port):
        await asyncio.sleep(2.5)
        assert 3 <= hole.connections <= 6


async def test_a_hundred_frontends_are_asked_without_a_storm() -> None:
    frontends = [Frontend() for _ in range(100)]
    for one in frontends:
        await one.start()
    try:
        async with probing(**{f"dc-{at}": one.port for at, one in enumerate(frontends)}) as world:
            await until(lambda: all(one.asked for one in frontends))
            before = sum(len(one.asked) for one in frontends)
            await asyncio.sleep(2.0)
            assert sum(len(one.asked) for one in frontends) - before < 100 * (2.0 / PERIOD_S + 2)
            assert world.losses == []
    finally:
        for one in frontends:
            await one.stop()


async def test_a_frontend_whose_answer_is_overdue_gets_no_new_requests_and_is_not_lost_yet() -> None:
    async with frontend() as living, frontend(delay_s=60.0) as hanging, probing(
            timeout_s=2.0, us=living.port, eu=hanging.port) as world:
        assert 0.9 <= await until(lambda: is_faltering(world, "eu")) < 1.6
        assert not world.is_away("eu")
        assert not is_faltering(world, "us")
        await until(lambda: world.is_away("eu"))
        hanging.delay_s = 0.0
        await until(lambda: not is_faltering(world, "eu"))


async def test_a_slow_answer_in_time_ends_the_doubt() -> None:
    async with frontend(delay_s=1.3) as slow, probing(timeout_s=2.0, us=slow.port) as world:
        await until(lambda: is_faltering(world, "us"))
        await until(lambda: not is_faltering(world, "us"))
        assert not world.is_away("us")
        assert world.losses == []


async def test_an_edge_that_was_stopped_doubts_nobody() -> None:
    async with frontend() as living, probing(timeout_s=2.0, us=living.port) as world:
        await until(lambda: living.asked)
        freeze(1.8)
        await asyncio.sleep(0.05)
        assert not is_faltering(world, "us")


def is_faltering(world: World, datacenter_id: str) -> bool:
    routes = world.holder.current.models[MODEL].routes if world.holder.current else ()
    return any(world.health.is_faltering(route) for route in routes if route.datacenter_id == datacenter_id)

"""A running edge whose datacenters stop, die, or are merely slow: what becomes of requests that are open there."""

import asyncio
import re
import signal
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import httpx
import pytest

from control_plane.contracts.usage import Attempt, Outcome, UsageRecord
from tests.chaos.frontend import FrontendProcess, frontend_process
from tests.integration.edge_api.control_plane import TOKEN, ControlPlane, serving
from tests.integration.edge_api.process import EdgeProcess, chat_body, client_of, edge_process
from tests.integration.edge_api.waiting import until
from tests.unit.edge_api.builders import snapshot

HOME, OTHER = "us-east-1", "eu-north-1"
PROBE_TIMEOUT_S = 0.6
LOST_WITHIN_S = PROBE_TIMEOUT_S + 1.5
LONG_SILENCE_S = 30.0


class World:
    """An edge process, its frontends by datacenter, and the control plane that collects its usage."""

    def __init__(self, edge: EdgeProcess, frontends: dict[str, FrontendProcess], control_plane: ControlPlane) -> None:
        self.edge, self.frontends, self.control_plane = edge, frontends, control_plane

    @property
    def home(self) -> FrontendProcess:
        return self.frontends[HOME]

    @property
    def other(self) -> FrontendProcess:
        return self.frontends[OTHER]

    def signal_home(self, number: signal.Signals) -> None:
        self.home.process.send_signal(number)

    async def figure(self, name: str) -> float:
        """The sum of one of the edge's figures over its labels."""
        async with client_of(self.edge) as client:
            text = (await client.get("/metrics")).text
        return sum(map(float, re.findall(rf"^{name}(?:{{[^}}]*}})? (\S+)$", text, re.M)))

    async def lost(self) -> bool:
        return await self.figure("meridian_edge_losses_total") > 0

    async def records(self, count: int) -> list[UsageRecord]:
        await until(lambda: len(self.control_plane.records) >= count, 20)
        return list(self.control_plane.records.values())


@asynccontextmanager
async def world(tmp_path: Path, silences_s: Sequence[float]) -> AsyncIterator[World]:
    """Datacenters with these silences. Nearly every session is at home in the first one."""
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    names = [HOME, OTHER][:len(silences_s)]
    async with AsyncExitStack() as stack:
        frontends = {name: await stack.enter_async_context(frontend_process(silence_s))
                     for name, silence_s in zip(names, silences_s, strict=True)}
        control_plane = await stack.enter_async_context(serving(ControlPlane()))
        control_plane.publish(snapshot(
            weights={name: 10_000 if name == HOME else 1 for name in names},
            ports={name: frontend.port for name, frontend in frontends.items()}))
        edge = await stack.enter_async_context(edge_process(
            tmp_path, control_plane.url, probe_timeout_s=PROBE_TIMEOUT_S))
        yield World(edge, frontends, control_plane)


async def ask(client: httpx.AsyncClient, stream: bool = True, number: int = 0) -> httpx.Response:
    """One chat request, of a session of its own for each number."""
    messages = [{"role": "user", "content": f"hello {number}"}]
    return await client.post("/v1/chat/completions", json=chat_body(stream=stream, messages=messages))


def words(answer: httpx.Response) -> int:
    assert answer.status_code == 200, answer.text
    return answer.text.count('"content":"word "')


@pytest.fixture
async def two(tmp_path: Path) -> AsyncIterator[World]:
    """Home accepts and is silent for a long time, as in a long prefill; the other one answers at once."""
    async with world(tmp_path, [LONG_SILENCE_S, 0.0]) as made:
        yield made


@pytest.mark.parametrize(("number", "within_s"), [(signal.SIGSTOP, LOST_WITHIN_S), (signal.SIGKILL, 1.5)])
async def test_what_is_open_in_a_datacenter_that_is_lost_goes_on_in_another(
        two: World, number: signal.Signals, within_s: float) -> None:
    async with client_of(two.edge) as client:
        asked = asyncio.create_task(ask(client))
        await until(two.home.seen_any)
        two.signal_home(number)
        begun_s = time.monotonic()
        answer = await asked
        took_s = time.monotonic() - begun_s
    assert words(answer) == 5
    assert answer.text.endswith("data: [DONE]\n\n")
    assert took_s < within_s + 1.0
    [record] = await two.records(1)
    assert (record.outcome, record.completion_tokens) == (Outcome.COMPLETED, 5)
    assert record.attempts == [Attempt(HOME, 200, failed=True), Attempt(OTHER, 200)]


async def test_a_lost_datacenter_is_asked_no_more_and_found_again(tmp_path: Path) -> None:
    async with world(tmp_path, [0.0, 0.0]) as made, client_of(made.edge) as client:
        assert words(await ask(client)) == 5
        made.signal_home(signal.SIGSTOP)
        await until(made.lost)
        begun_s = time.monotonic()
        for number in range(20):
            assert words(await ask(client, number=number)) == 5
        assert time.monotonic() - begun_s < 2.0
        assert await made.other.seen() == 20
        made.signal_home(signal.SIGCONT)

        async def is_back() -> bool:
            before = await made.home.seen()
            await ask(client)
            return await made.home.seen() > before

        await until(is_back, 20)


async def test_a_long_silent_prefill_is_not_a_loss(tmp_path: Path) -> None:
    async with world(tmp_path, [2 * LOST_WITHIN_S, 0.0]) as made, client_of(made.edge) as client:
        assert words(await ask(client)) == 5
        assert (await made.home.seen(), await made.other.seen()) == (1, 0)
        [record] = await made.records(1)
        assert record.attempts == [Attempt(HOME, 200)]


async def test_an_edge_that_was_stopped_itself_moves_nothing(tmp_path: Path) -> None:
    async with world(tmp_path, [4.0, 0.0]) as made, client_of(made.edge) as client:
        asked = asyncio.create_task(ask(client))
        await until(made.home.seen_any)
        assert made.edge.process is not None
        made.edge.process.send_signal(signal.SIGSTOP)
        await asyncio.sleep(PROBE_TIMEOUT_S + 2.0)
        made.edge.process.send_signal(signal.SIGCONT)
        assert words(await asked) == 5
        assert not await made.lost()
        assert await made.other.seen() == 0


async def test_everything_that_was_open_there_goes_on_even_if_it_is_a_lot(two: World) -> None:
    requests = 100
    async with client_of(two.edge) as client:
        asked = [asyncio.create_task(ask(client, stream=number % 2 == 0, number=number)) for number in range(requests)]

        async def all_are_there() -> bool:
            return await two.home.seen() >= requests

        await until(all_are_there)
        two.signal_home(signal.SIGKILL)
        answers = await asyncio.gather(*asked)
    assert [answer.status_code for answer in answers] == requests * [200]
    records = await two.records(requests)
    assert {record.outcome for record in records} == {Outcome.COMPLETED}


async def test_what_waits_in_the_only_datacenter_is_left_waiting(tmp_path: Path) -> None:
    async with world(tmp_path, [0.5]) as made, client_of(made.edge) as client:
        asked = asyncio.create_task(ask(client))
        await until(made.home.seen_any)
        made.signal_home(signal.SIGSTOP)
        await until(made.lost)
        made.signal_home(signal.SIGCONT)
        assert words(await asked) == 5
        [record] = await made.records(1)
        assert record.attempts == [Attempt(HOME, 200)]

"""Clients that leave, stall, read slowly or are told to go: what is stopped, what is kept, what is billed."""

import asyncio
import time

import pytest

from control_plane.contracts.pricing import rate, usd_text
from control_plane.contracts.usage import MeterSource, Outcome
from tests.integration.edge_api.hot.conftest import HOME, EdgeUnderTest, until
from tests.integration.edge_api.hot.datacenter import Datacenter, Upcall, chunk, streams, whole_answer
from tests.unit.edge_api.builders import PRICE


class Endless:
    """A datacenter that streams until it is left, and remembers when that was."""

    def __init__(self) -> None:
        self.left_s = 0.0
        self.sent = 0

    async def __call__(self, call: Upcall) -> None:
        try:
            await call.begin_stream()
            while True:
                self.sent += 1
                await call.send(chunk(" a", [self.sent], completion=self.sent, prompt=50, cached=10))
                await asyncio.sleep(0.02)
        finally:
            self.left_s = time.monotonic()


async def test_a_client_that_leaves_stops_the_datacenter_within_a_second(edge: EdgeUnderTest, home: Datacenter) -> None:
    endless = home.script = Endless()
    async with edge.client.connection() as connection:
        await connection.send(edge.client.request(stream=True))
        await connection.read_head()
        await connection.read_chunk()
    gone_s = time.monotonic()
    await until(lambda: endless.left_s)
    assert endless.left_s - gone_s < 1


async def test_a_client_that_leaves_pays_for_what_it_got(edge: EdgeUnderTest, home: Datacenter) -> None:
    home.script = Endless()
    async with edge.client.connection() as connection:
        await connection.send(edge.client.request(stream=True))
        await connection.read_head()
        for _ in range(6):  # a keep-alive and five events
            await connection.read_chunk()
    record = await edge.record()
    assert (record.outcome, record.meter) == (Outcome.CLIENT_GONE, MeterSource.TOKEN_IDS)
    assert (record.prompt_tokens, record.cached_tokens) == (50, 10)
    assert 5 <= record.completion_tokens <= 20
    assert record.cost_usd == usd_text(rate(PRICE, 50, 10, record.completion_tokens).total_usd)


async def test_a_client_that_leaves_before_the_first_byte_is_left_to_the_witness(
        edge: EdgeUnderTest, home: Datacenter) -> None:
    abandoned = asyncio.Event()

    async def silent(call: Upcall) -> None:
        await call.until_abandoned()
        abandoned.set()

    home.script = silent
    async with edge.client.connection() as connection:
        await connection.send(edge.client.request())
        await until(lambda: home.seen)
    await asyncio.wait_for(abandoned.wait(), 1)
    record = await edge.record()
    assert (record.outcome, record.meter, record.http_status) == (Outcome.CLIENT_GONE, MeterSource.PROVISIONAL, 499)


async def test_a_client_that_leaves_while_its_stream_is_tried_elsewhere_stops_that_as_well(
        edge: EdgeUnderTest, home: Datacenter, other: Datacenter) -> None:
    edge.prefer_home()
    abandoned = asyncio.Event()

    async def silent(call: Upcall) -> None:
        await call.until_abandoned()
        abandoned.set()

    home.script, other.script = streams(then=Upcall.reset), silent  # it accepts the stream, then it is gone
    async with edge.client.connection() as connection:
        await connection.send(edge.client.request(stream=True))
        await connection.read_head()
        await until(lambda: other.seen)
    await asyncio.wait_for(abandoned.wait(), 1)
    record = await edge.record()
    assert (record.outcome, record.completion_tokens) == (Outcome.CLIENT_GONE, 0)
    await edge.until_idle()


async def test_a_client_that_leaves_while_its_key_is_looked_up_leaves_nothing(
        edge: EdgeUnderTest, home: Datacenter) -> None:
    edge.directory.remote, edge.directory.known = edge.directory.known, {}
    edge.directory.delay_s = 0.3
    async with edge.client.connection() as connection:
        await connection.send(edge.client.request())
        await until(lambda: edge.directory.asked)
    await asyncio.sleep(0.5)
    assert not home.seen
    assert not edge.frames()


async def test_nothing_stays_open_when_many_clients_leave(edge: EdgeUnderTest, home: Datacenter) -> None:
    home.script = Endless()

    async def come_and_go() -> None:
        async with edge.client.connection() as connection:
            await connection.send(edge.client.request(stream=True))
            await connection.read_head()

    await asyncio.gather(*(come_and_go() for _ in range(20)))
    await edge.until_idle()
    assert edge.open_requests.counts() == {HOME: 0}
    assert len({record.request_id for record in edge.records()}) == 20


async def test_a_client_that_stops_reading_stops_the_datacenter_and_is_dropped(
        edge: EdgeUnderTest, home: Datacenter) -> None:
    sent = 0

    async def flood(call: Upcall) -> None:
        nonlocal sent
        await call.begin_stream()
        piece = chunk("x" * 60_000, [1], completion=1)
        while True:
            await call.send(piece)
            sent += len(piece)

    home.script = flood
    async with edge.client.connection() as connection:
        connection.writer.transport.pause_reading()  # type: ignore[attr-defined]
        await connection.send(edge.client.request(stream=True))
        record = await edge.record(patience_s=5)
    assert record.outcome is Outcome.CLIENT_GONE
    assert sent < 40_000_000, "what the kernel's buffers of both connections take, not more"
    await edge.until_idle()


async def test_a_client_that_reads_slowly_gets_everything(edge: EdgeUnderTest, home: Datacenter) -> None:
    pieces = [chunk("x" * 60_000, [n], completion=n) for n in range(1, 101)]
    home.script = streams(*pieces, chunk("", [], finish="stop", completion=100))
    async with edge.client.connection() as connection:
        await connection.send(edge.client.request(stream=True))
        for _ in range(4):
            connection.writer.transport.pause_reading()  # type: ignore[attr-defined]
            await asyncio.sleep(0.2)
            connection.writer.transport.resume_reading()  # type: ignore[attr-defined]
            await asyncio.sleep(0.02)
        answer = await connection.read_answer()
    assert len(answer.text) == 6_000_000
    assert answer.events[-1] == "[DONE]"


async def test_on_shutdown_streams_finish_and_idle_connections_close(edge: EdgeUnderTest, home: Datacenter) -> None:
    async def brief(call: Upcall) -> None:
        await call.begin_stream()
        for n in range(1, 20):
            await call.send(chunk(" a", [n], completion=n))
            await asyncio.sleep(0.03)
        await call.send(chunk("", [], finish="stop", completion=19), b"data: [DONE]\n\n")
        await call.end_stream()

    home.script = brief
    async with edge.client.connection() as streaming, edge.client.connection() as idle:
        await streaming.send(edge.client.request(stream=True))
        await streaming.read_head()
        edge.server.should_exit = True
        assert await idle.is_closed()
        while b"[DONE]" not in await streaming.read_chunk():
            pass
        assert await streaming.read_chunk() == b""
        assert await streaming.is_closed()
    assert (await edge.record()).outcome is Outcome.COMPLETED


async def test_on_shutdown_an_answer_tells_that_the_connection_closes(edge: EdgeUnderTest, home: Datacenter) -> None:
    release = asyncio.Event()

    async def waits(call: Upcall) -> None:
        await release.wait()
        await call.answer(503, {"message": "busy"})

    home.script = waits
    async with edge.client.connection() as connection:
        await connection.send(edge.client.request())
        await until(lambda: home.seen)
        edge.server.should_exit = True
        await asyncio.sleep(0.3)
        release.set()
        assert (await connection.read_answer()).headers["connection"] == "close"
        assert await connection.is_closed()


async def test_a_client_that_never_reads_its_whole_answer_is_dropped(edge: EdgeUnderTest, home: Datacenter) -> None:
    async def huge(call: Upcall) -> None:
        await call.answer(200, whole_answer("x" * 20_000_000))

    home.script = huge
    async with edge.client.connection() as connection:
        connection.writer.transport.pause_reading()  # type: ignore[attr-defined]
        await connection.send(edge.client.request())
        await edge.record(patience_s=5)
        await until(lambda: not edge.server.server_state.connections, patience_s=5)


async def test_a_client_that_reads_a_whole_answer_slowly_gets_all_of_it(edge: EdgeUnderTest, home: Datacenter) -> None:
    async def huge(call: Upcall) -> None:
        await call.answer(200, whole_answer("x" * 20_000_000))

    home.script = huge
    async with edge.client.connection() as connection:
        await connection.send(edge.client.request())
        for _ in range(4):
            connection.writer.transport.pause_reading()  # type: ignore[attr-defined]
            await asyncio.sleep(0.3)
            connection.writer.transport.resume_reading()  # type: ignore[attr-defined]
            await asyncio.sleep(0.02)
        assert len((await connection.read_answer()).json["choices"][0]["message"]["content"]) == 20_000_000


@pytest.mark.parametrize("half", ["head", "body"])
async def test_on_shutdown_a_request_that_does_not_arrive_is_told_so_and_holds_nothing(
        edge: EdgeUnderTest, half: str) -> None:
    whole = edge.client.request()
    async with edge.client.connection() as connection:
        await connection.send(whole[:60] if half == "head" else whole[:-5])
        await until(lambda: edge.server.server_state.connections)
        await asyncio.sleep(0.05)
        edge.server.should_exit = True
        answer = await connection.read_answer()
        assert (answer.status, answer.error["code"], answer.headers["connection"]) == (503, "not_ready", "close")
        assert await connection.is_closed()
    await until(lambda: not edge.server.server_state.connections, patience_s=2)


@pytest.mark.parametrize("cut_at", [60, -5])
async def test_on_shutdown_a_request_that_still_arrives_is_served_and_its_connection_closed(
        edge: EdgeUnderTest, cut_at: int) -> None:
    whole = edge.client.request()
    async with edge.client.connection() as connection:
        await connection.send(whole[:cut_at])
        await asyncio.sleep(0.05)
        edge.server.should_exit = True
        await asyncio.sleep(0.2)
        await connection.send(whole[cut_at:])
        assert (await connection.read_answer()).status == 200
        assert await connection.is_closed()


async def test_on_shutdown_half_a_request_behind_a_stream_does_not_harm_it(
        edge: EdgeUnderTest, home: Datacenter) -> None:
    home.script = streams(*(chunk(" a", [n], completion=n) for n in range(1, 30)),
                          chunk("", [], finish="stop", completion=29), pause_s=0.03)
    async with edge.client.connection() as connection:
        await connection.send(edge.client.request(stream=True) + edge.client.request()[:60])
        answer = await connection.read_head()
        edge.server.should_exit = True
        while data := await connection.read_chunk():
            answer.body += data
        assert answer.events[-1] == "[DONE]"
        assert await connection.is_closed()

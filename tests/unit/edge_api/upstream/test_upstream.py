"""The pool and its connections, over real loopback sockets to a scripted server."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from control_plane.contracts.clock import ManualClock
from edge_api.upstream.connection import Headers, UpstreamConnection
from edge_api.upstream.pool import PoolFull, PoolLimits, UpstreamPool

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
REQUEST = b"POST / HTTP/1.1\r\ncontent-length: 0\r\n\r\n"
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Taken:
    """A sink that writes down what it is told."""

    def __init__(self) -> None:
        self.status, self.body, self.pieces = 0, b"", 0
        self.headers: Headers = {}
        self.lost: tuple[str, bool] | None = None
        self.over = asyncio.Event()
        self.begun = asyncio.Event()

    def on_head(self, status: int, headers: Headers) -> None:
        self.status, self.headers = status, headers

    def on_body(self, data: bytes) -> None:
        self.body += data
        self.pieces += 1
        self.begun.set()

    def on_end(self) -> None:
        self.over.set()

    def on_lost(self, reason: str, answered: bool) -> None:
        self.lost = (reason, answered)
        self.over.set()


class Server:
    """A listening socket whose answers a test may change."""

    def __init__(self) -> None:
        self.serve: Serve = answer_with(OK)
        self.port = 0
        self.connections = 0

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            await self.serve(reader, writer)
        finally:
            writer.close()


def answer_with(*pieces: bytes, close: bool = False) -> Serve:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.read(65536):
            for piece in pieces:
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(0.005)
            if close:
                return
    return serve


def answer_in_turn(*answers: bytes) -> Serve:
    """Each answer once, over however many connections."""
    left = iter(answers)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.read(65536):
            writer.write(next(left))
    return serve


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    it = Server()
    listener = await asyncio.start_server(it.handle, "127.0.0.1", 0)
    it.port = listener.sockets[0].getsockname()[1]
    yield it
    listener.close()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def pool(clock: ManualClock) -> AsyncIterator[UpstreamPool]:
    it = UpstreamPool(PoolLimits(connect_timeout_s=0.5, idle_s=10, max_idle=2, max_open=3), clock)
    yield it
    it.close()
    await asyncio.sleep(0.01)


async def ask(connection: UpstreamConnection) -> Taken:
    taken = Taken()
    connection.send(REQUEST, [], 0, taken)
    await asyncio.wait_for(taken.over.wait(), 3)
    return taken


async def test_an_answer_comes_in_parts(pool: UpstreamPool, server: Server) -> None:
    taken = await ask(await pool.connect(("127.0.0.1", server.port, False)))
    assert (taken.status, taken.headers, taken.body) == (200, {b"content-length": b"2"}, b"ok")


async def test_chunks_of_one_read_are_one_piece(pool: UpstreamPool, server: Server) -> None:
    server.serve = answer_with(
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n1\r\nb\r\n1\r\nc\r\n0\r\n\r\n")
    taken = await ask(await pool.connect(("127.0.0.1", server.port, False)))
    assert (taken.body, taken.pieces) == (b"abc", 1)


async def test_a_connection_is_used_again_last_in_first_out(pool: UpstreamPool, server: Server) -> None:
    address = ("127.0.0.1", server.port, False)
    first, second = await pool.connect(address), await pool.connect(address)
    await ask(first)
    await ask(second)
    assert pool.take(address) is second
    assert pool.take(address) is first
    assert pool.take(address) is None
    assert first.is_reused


async def test_an_old_idle_connection_is_not_used_again(
        pool: UpstreamPool, server: Server, clock: ManualClock) -> None:
    address = ("127.0.0.1", server.port, False)
    await ask(await pool.connect(address))
    clock.advance(11)
    assert pool.take(address) is None


async def test_a_connection_closed_by_its_server_leaves_the_pool(pool: UpstreamPool, server: Server) -> None:
    server.serve = answer_with(OK, close=True)
    address = ("127.0.0.1", server.port, False)
    await ask(await pool.connect(address))
    await asyncio.sleep(0.05)
    assert pool.take(address) is None


async def test_an_idle_connection_that_speaks_is_dropped(pool: UpstreamPool, server: Server) -> None:
    server.serve = answer_with(OK, b"HTTP/1.1 200 OK\r\n")
    address = ("127.0.0.1", server.port, False)
    await ask(await pool.connect(address))
    await asyncio.sleep(0.05)
    assert pool.take(address) is None


async def test_a_second_answer_in_the_same_read_spoils_the_connection(pool: UpstreamPool, server: Server) -> None:
    server.serve = answer_with(OK + OK)
    address = ("127.0.0.1", server.port, False)
    assert (await ask(await pool.connect(address))).body.startswith(b"ok")
    assert pool.take(address) is None


async def test_not_more_idle_connections_are_kept_than_allowed(pool: UpstreamPool, server: Server) -> None:
    address = ("127.0.0.1", server.port, False)
    for connection in [await pool.connect(address) for _ in range(3)]:
        await ask(connection)
    assert [pool.take(address) is None for _ in range(3)] == [False, False, True]


async def test_connections_to_one_frontend_are_bounded(pool: UpstreamPool, server: Server) -> None:
    address = ("127.0.0.1", server.port, False)
    held = [await pool.connect(address) for _ in range(3)]
    with pytest.raises(PoolFull):
        await pool.connect(address)
    held[0].abort()
    await asyncio.sleep(0.01)
    assert (await pool.connect(address)).is_open
    for connection in held:
        connection.abort()


async def test_a_refused_connection_is_an_os_error_and_not_counted(pool: UpstreamPool) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = ("127.0.0.1", taken.getsockname()[1], False)
        for _ in range(5):
            with pytest.raises(OSError, match="onnect"):
                await pool.connect(address)


async def test_a_connection_that_does_not_come_about_is_given_up(pool: UpstreamPool) -> None:
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        address = full.getsockname()
        # The first fills the queue of those that wait to be accepted.
        with socket.create_connection(address), pytest.raises(TimeoutError):
            await pool.connect((*address, False))


async def test_the_connection_sends_small_pieces_at_once(pool: UpstreamPool, server: Server) -> None:
    connection = await pool.connect(("127.0.0.1", server.port, False))
    assert connection.transport is not None
    raw = connection.transport.get_extra_info("socket")
    assert raw.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    connection.abort()


@pytest.mark.parametrize(("answer", "answered"), [
    (b"", False), (b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nok", True), (b"HTTP/1.1 200", True)])
async def test_a_connection_lost_early_is_told(
        pool: UpstreamPool, server: Server, answer: bytes, answered: bool) -> None:
    server.serve = answer_with(answer, close=True)
    taken = await ask(await pool.connect(("127.0.0.1", server.port, False)))
    assert taken.lost is not None
    assert taken.lost[1] is answered


async def test_an_answer_without_length_ends_with_its_connection(pool: UpstreamPool, server: Server) -> None:
    server.serve = answer_with(b"HTTP/1.1 200 OK\r\n\r\nabc", close=True)
    taken = await ask(await pool.connect(("127.0.0.1", server.port, False)))
    assert (taken.body, taken.lost) == (b"abc", None)


async def test_an_interim_answer_is_passed_over(pool: UpstreamPool, server: Server) -> None:
    server.serve = answer_with(b"HTTP/1.1 100 Continue\r\n\r\n", OK)
    taken = await ask(await pool.connect(("127.0.0.1", server.port, False)))
    assert (taken.status, taken.body) == (200, b"ok")


@pytest.mark.parametrize("answer", [
    b"nonsense\r\n\r\n", b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ntransfer-encoding: chunked\r\n\r\n",
    b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n"])
async def test_what_is_no_http_is_a_loss(pool: UpstreamPool, server: Server, answer: bytes) -> None:
    server.serve = answer_with(answer)
    taken = await ask(await pool.connect(("127.0.0.1", server.port, False)))
    assert taken.lost == ("its answer is not valid HTTP", True)


async def test_an_abandoned_request_is_silent_and_closes_the_connection(pool: UpstreamPool, server: Server) -> None:
    server.serve = answer_with(b"HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\nabc")
    connection, taken = await pool.connect(("127.0.0.1", server.port, False)), Taken()
    connection.send(REQUEST, [], 0, taken)
    await asyncio.wait_for(taken.begun.wait(), 3)
    connection.abandon(Taken())
    assert connection.is_open, "somebody else's request is not theirs to give up"
    connection.abandon(taken)
    await asyncio.sleep(0.02)
    assert not connection.is_open
    assert not taken.over.is_set()


async def test_a_paused_connection_reads_nothing_until_it_is_resumed(pool: UpstreamPool, server: Server) -> None:
    server.serve = answer_with(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nab", b"cd")
    connection, taken = await pool.connect(("127.0.0.1", server.port, False)), Taken()
    connection.send(REQUEST, [], 0, taken)
    connection.pause()
    await asyncio.sleep(0.05)
    assert not taken.over.is_set()
    connection.resume()
    await asyncio.wait_for(taken.over.wait(), 3)
    assert taken.body == b"abcd"


async def test_a_large_body_is_sent_whole(pool: UpstreamPool, server: Server) -> None:
    got = 0

    async def count(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal got
        head = await reader.readuntil(b"\r\n\r\n")
        got = len(await reader.readexactly(3_000_000))
        assert head
        writer.write(OK)

    server.serve = count
    connection, taken = await pool.connect(("127.0.0.1", server.port, False)), Taken()
    body = memoryview(b"x" * 3_000_000)
    connection.send(b"POST / HTTP/1.1\r\ncontent-length: 3000000\r\n\r\n", [body[:5], body[5:]], len(body), taken)
    await asyncio.wait_for(taken.over.wait(), 3)
    assert got == 3_000_000


async def ask_next(server: Server, pool: UpstreamPool) -> Taken:
    """Over the connection that was used last, if it is still there."""
    address = ("127.0.0.1", server.port, False)
    taken = await ask(pool.take(address) or await pool.connect(address))
    await asyncio.sleep(0.01)  # what comes behind the answer comes now
    return taken


async def test_answers_with_one_head_are_each_given_whole(server: Server, pool: UpstreamPool) -> None:
    bodies = [b"ok", b"a longer one", b"", b"x" * 5_000, b"ok"]
    server.serve = answer_in_turn(*(b"HTTP/1.1 200 OK\r\nx-a: b\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)
                                    for body in bodies))
    for body in bodies:
        sink = await ask_next(server, pool)
        assert (sink.status, sink.body, sink.lost, sink.headers[b"x-a"]) == (200, body, None, b"b")
    assert server.connections == 1


async def test_an_answer_with_another_head_is_told_as_it_is(server: Server, pool: UpstreamPool) -> None:
    heads = [b"200 OK\r\nx-a: b", b"200 OK\r\nx-a: b", b"503 No\r\nx-a: b", b"200 OK\r\nx-a: c", b"200 OK\r\nx-a: b"]
    server.serve = answer_in_turn(*(b"HTTP/1.1 %b\r\ncontent-length: 2\r\n\r\nok" % head for head in heads))
    told = [await ask_next(server, pool) for _ in heads]
    assert [(sink.status, sink.headers[b"x-a"]) for sink in told] == [
        (200, b"b"), (200, b"b"), (503, b"b"), (200, b"c"), (200, b"b")]


async def test_a_known_head_does_not_hide_what_follows_its_body(server: Server, pool: UpstreamPool) -> None:
    server.serve = answer_in_turn(OK, OK + OK, OK)
    for _ in range(3):
        assert (await ask_next(server, pool)).body.startswith(b"ok")
    assert server.connections == 2


async def test_a_known_head_that_says_that_the_connection_ends_is_heeded(server: Server, pool: UpstreamPool) -> None:
    closing = OK.replace(b"content-length", b"connection: close\r\ncontent-length")
    server.serve = answer_in_turn(closing, closing, closing)
    for _ in range(3):
        assert (await ask_next(server, pool)).body == b"ok"
    assert server.connections == 3

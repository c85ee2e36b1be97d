"""What a client makes of an answer, whatever comes: every verdict, on real sockets and on bytes."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from tests.chaos.client import Answer, Heard, ask, dechunked, judge, may_retry
from tests.chaos.history import Verdict
from tests.chaos.ways import WAYS, text_of

DONE = b"data: [DONE]\n\n"
CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\nx-request-id: req_1"


def event(**fields: object) -> bytes:
    return b"data: " + json.dumps(fields).encode() + b"\n\n"


def delta(text: str) -> bytes:
    return event(choices=[{"delta": {"content": text}}])


def chunks(*pieces: bytes, end: bool = True) -> bytes:
    framed = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces)
    return framed + (b"0\r\n\r\n" if end else b"")


def heard(body: bytes, way: str = "chat stream", head: bytes = CHUNKED, wanted: int = 2) -> Heard:
    answer = Answer()
    answer.head, answer.body = head, bytearray(body)
    return judge(WAYS[way], answer, wanted)


def whole(content: bytes, status: bytes = b"200 OK", headers: bytes = b"") -> tuple[bytes, bytes]:
    return b"HTTP/1.1 %b\r\ncontent-length: %d%b" % (status, len(content), headers), content


def test_a_whole_stream_of_as_many_words_as_were_asked_for_is_finished() -> None:
    answer = heard(chunks(delta(" one"), delta(" two"), DONE))
    assert (answer.verdict, answer.tokens, answer.retry) == (Verdict.FINISHED, 2, False)


def test_a_stream_with_a_word_too_few_is_wrong() -> None:
    assert heard(chunks(delta(" one"), DONE)).verdict is Verdict.WRONG


def test_a_stream_that_ends_without_its_mark_is_wrong_and_no_client_could_know_to_retry() -> None:
    answer = heard(chunks(delta(" one"), delta(" two")))
    assert (answer.verdict, answer.retry) == (Verdict.WRONG, False)


def test_a_stream_whose_connection_ended_is_cut_and_its_words_are_counted() -> None:
    answer = heard(chunks(delta(" one"), end=False))
    assert (answer.verdict, answer.tokens, answer.retry) == (Verdict.CUT, 1, True)


@pytest.mark.parametrize("retryable", [True, False])
def test_a_streams_error_says_whether_to_retry(retryable: bool) -> None:
    error = b'data: {"choices":[],"error":{"code":"upstream_unavailable","metadata":{"retryable":%b}}}\n\n'
    answer = heard(chunks(delta(" one"), error % (b"true" if retryable else b"false")))
    assert (answer.verdict, answer.retry) == (Verdict.REFUSED, retryable)
    assert "upstream_unavailable" in answer.fault


def test_an_error_says_by_its_header_whether_to_retry() -> None:
    head, body = whole(b'{"error":{"code":"not_ready"}}', b"503 X", b"\r\nx-should-retry: true\r\nretry-after-ms: 250")
    answer = heard(body, head=head)
    assert (answer.verdict, answer.retry, answer.wait_s, answer.fault) == (Verdict.REFUSED, True, 0.25, "not_ready")


@pytest.mark.parametrize(("status", "headers", "retry"), [
    (500, {}, True), (429, {}, True), (400, {}, False), (401, {}, False),
    (502, {"x-should-retry": "false"}, False), (400, {"x-should-retry": "true"}, True)])
def test_what_may_be_tried_again_is_what_an_sdk_would_try_again(
        status: int, headers: dict[str, str], retry: bool) -> None:
    assert may_retry(status, headers) is retry


@pytest.mark.parametrize(("way", "content"), [
    ("chat", {"choices": [{"message": {"content": "one two"}}]}),
    ("message", {"content": [{"type": "text", "text": "one two"}]}),
    ("response", {"output": [{"content": [{"type": "output_text", "text": "one two"}]}]})])
def test_a_unary_answer_is_counted_in_every_dialect(way: str, content: dict[str, object]) -> None:
    head, body = whole(json.dumps(content).encode())
    assert heard(body, way, head).verdict is Verdict.FINISHED


@pytest.mark.parametrize(("way", "body"), [
    ("completion stream", event(choices=[{"text": "one two"}]) + DONE),
    ("message stream", event(type="content_block_delta", delta={"text": "one two"})
     + b"event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"),
    ("response stream", event(type="response.output_text.delta", delta="one two")
     + b"event: response.incomplete\ndata: {\"type\":\"response.incomplete\"}\n\n")])
def test_a_stream_is_counted_in_every_dialect(way: str, body: bytes) -> None:
    assert text_of(WAYS[way], body) == "one two"
    assert heard(chunks(body), way).verdict is Verdict.FINISHED


def test_a_cut_chunk_is_taken_as_far_as_it_came() -> None:
    assert dechunked(b"5\r\nhello\r\n5\r\nwo") == b"hellowo"
    assert dechunked(b"") == b""


@asynccontextmanager
async def server(answer: Callable[[asyncio.StreamWriter], None] | None) -> AsyncIterator[str]:
    """Reads a request, lets `answer` write, and closes; without one it is silent until the client leaves."""
    served: list[asyncio.Task[None]] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"}")
        if answer is not None:
            answer(writer)
        else:
            await reader.read()
        writer.close()

    running = await asyncio.start_server(
        lambda reader, writer: served.append(asyncio.create_task(serve(reader, writer))), "127.0.0.1", 0)
    async with running:
        yield f"http://127.0.0.1:{running.sockets[0].getsockname()[1]}"
        await asyncio.gather(*served)


async def asked(url: str, deadline_s: float = 5.0) -> Heard:
    return await ask(url, "key", "model", WAYS["chat stream"], "hi", 2, deadline_s)


async def test_an_answer_over_a_socket_is_finished_and_its_first_byte_was_timed() -> None:
    async with server(lambda writer: writer.write(
            CHUNKED + b"\r\n\r\n" + chunks(delta(" one"), delta(" two"), DONE))) as url:
        answer = await asked(url)
    assert answer.verdict is Verdict.FINISHED
    assert answer.first_s is not None
    assert answer.headers["x-request-id"] == "req_1"


async def test_nobody_there_is_unreached() -> None:
    async with server(None) as url:
        pass
    assert (await asked(url)).verdict is Verdict.UNREACHED


async def test_a_reset_before_the_head_is_cut_and_may_be_tried_again() -> None:
    async with server(lambda writer: writer.transport.abort()) as url:
        answer = await asked(url)
    assert (answer.verdict, answer.retry, answer.status) == (Verdict.CUT, True, 0)


async def test_a_reset_within_an_answer_is_cut_with_what_came() -> None:
    async with server(lambda writer: writer.write(CHUNKED + b"\r\n\r\n" + chunks(delta(" one"), end=False))) as url:
        answer = await asked(url)
    assert (answer.verdict, answer.tokens) == (Verdict.CUT, 1)


async def test_silence_is_hung() -> None:
    async with server(None) as url:
        assert (await asked(url, 0.1)).verdict is Verdict.HUNG

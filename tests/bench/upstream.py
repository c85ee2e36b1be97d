"""A frontend that costs next to nothing and answers in Dynamo's shapes: chunked unary answers, and streams paced as an
engine paces them, with usage and token ids in every event. `python -m tests.bench.upstream PORT PACE_MS`.
"""

import asyncio
import sys
from typing import cast

import msgspec
import uvloop

WORDS = (" the", " quick", " brown", " fox", " jumps", " over", " lazy", " dogs")
CREATED = 1_796_000_000
STREAM_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
JSON_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"
END = b"0\r\n\r\n"
LIVE = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}"


class Asked(msgspec.Struct):
    """What of a request shapes its answer."""

    model: str
    stream: bool = False
    max_tokens: int = 16
    nvext: dict[str, msgspec.Raw] | None = None


_decode = msgspec.json.Decoder(Asked).decode


def usage(tokens: int) -> str:
    return (f'{{"prompt_tokens":16,"completion_tokens":{tokens},"total_tokens":{16 + tokens},'
            '"prompt_tokens_details":{"cached_tokens":0}}')


def event(model: str, number: int, last: int, with_ids: bool) -> bytes:
    """Chunk `number` of a stream of `last` tokens; the one after the last finishes it."""
    is_last = number > last
    text, finish = ("", '"length"') if is_last else (WORDS[number % len(WORDS)], "null")
    extras = ""
    if with_ids:
        ids = "" if is_last else str(1000 + number)
        extras = f',"usage":{usage(min(number, last))},"nvext":{{"completion_token_ids":[{ids}]}}'
    return (f'data: {{"id":"chatcmpl-0f4e2c7a9b","choices":[{{"index":0,"delta":{{"content":"{text}",'
            f'"role":"assistant"}},"finish_reason":{finish},"logprobs":null}}],"created":{CREATED},"model":"{model}",'
            f'"object":"chat.completion.chunk"{extras}}}\n\n').encode()


def final_usage(model: str, tokens: int) -> bytes:
    return (f'data: {{"id":"chatcmpl-0f4e2c7a9b","choices":[],"created":{CREATED},"model":"{model}",'
            f'"object":"chat.completion.chunk","usage":{usage(tokens)}}}\n\n').encode()


def whole(model: str, tokens: int) -> bytes:
    text = "".join(WORDS[n % len(WORDS)] for n in range(1, tokens + 1))
    return (f'{{"id":"chatcmpl-0f4e2c7a9b","choices":[{{"index":0,"message":{{"content":"{text}","role":"assistant"}},'
            f'"finish_reason":"length","logprobs":null}}],"created":{CREATED},"model":"{model}",'
            f'"object":"chat.completion","usage":{usage(tokens)}}}').encode()


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


class Frontend(asyncio.Protocol):
    """One connection; requests come with a length and one at a time."""

    def __init__(self, pace_s: float) -> None:
        self._pace_s = pace_s
        self._held = bytearray()
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._loop = asyncio.get_running_loop()

    def connection_lost(self, error: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def data_received(self, data: bytes) -> None:
        self._held += data
        head_end = self._held.find(b"\r\n\r\n")
        if head_end < 0:
            return
        head = bytes(self._held[:head_end]).lower()
        if head.startswith(b"get "):  # a probe
            self._held.clear()
            self._transport.write(LIVE)
            return
        length = int(head.partition(b"content-length:")[2].split(b"\r\n", 1)[0])
        if len(self._held) >= head_end + 4 + length:
            body = bytes(self._held[head_end + 4:])
            self._held.clear()
            self._answer(_decode(body))

    def _answer(self, asked: Asked) -> None:
        if not asked.stream:
            self._transport.write(JSON_HEAD + chunk(whole(asked.model, asked.max_tokens)) + END)
            return
        self._transport.write(STREAM_HEAD)
        self._tick(asked, 1)

    def _tick(self, asked: Asked, number: int) -> None:
        self._transport.write(chunk(event(asked.model, number, asked.max_tokens, asked.nvext is not None)))
        if number > asked.max_tokens:
            self._transport.write(chunk(final_usage(asked.model, asked.max_tokens)) + chunk(b"data: [DONE]\n\n") + END)
            return
        self._timer = self._loop.call_later(self._pace_s, self._tick, asked, number + 1)


async def main(port: int, pace_s: float) -> None:
    """Serves until it is killed."""
    server = await asyncio.get_running_loop().create_server(lambda: Frontend(pace_s), "127.0.0.1", port)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[1]), float(sys.argv[2]) / 1000))

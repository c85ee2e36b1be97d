"""A whole edge without a socket: the real protocol and hot path between a client's bytes and a datacenter's, and what
must hold of it whatever both of them send.
"""

import asyncio
import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import uvicorn
from structlog.testing import capture_logs
from uvicorn.server import ServerState

from control_plane.contracts import ids
from control_plane.contracts.deployment import EngineFacts
from control_plane.contracts.keys import LimitScope, Principal, Scope
from control_plane.contracts.usage import UsageOpen, UsageRecord
from edge_api.app import ColdParts, build_app
from edge_api.dialects.routes import HOT_ROUTES
from edge_api.hot.hotpath import HotPath
from edge_api.hot.protocol import EdgeProtocol, hot_protocol
from edge_api.hot.services import Limits, Need, Services
from edge_api.metrics import Metrics
from edge_api.open_requests import OpenRequests
from edge_api.routing.choose import Chooser
from edge_api.routing.health import Health
from edge_api.routing.retry import RetryBudget
from edge_api.routing.session import session_key
from edge_api.snapshot.holder import TableHolder
from tests.fuzz.skipped_time import Answerer, ClientTransport, SkippedTime, UpstreamTransport
from tests.unit.edge_api.builders import MODEL, snapshot

KEY = "sk_meridian_fuzz"
LIMITS = Limits(max_body_bytes=4_096, max_header_bytes=2_048, max_answer_bytes=8_192, max_event_bytes=4_096,
                max_pipelined=4)
FACTS = EngineFacts(identity="sha", tool_parser="hermes")
LONG_ENOUGH_S = 3_000.0  # past every deadline of the edge, one after the other
ALLOWED_UPSTREAM = frozenset({
    "host", "content-type", "accept", "content-length", "x-request-id", "x-dynamo-session-id",
    "x-dynamo-parent-session-id", "traceparent", "tracestate"})
_is_answer = re.compile(rb"HTTP/1\.1 (\d{3}) [^\r\n]*\r\n((?:[!-9;-~]+: [^\r\n]*\r\n)*)\r\n").match


@dataclass
class Ledger:
    """Takes usage frames and grants: each request that is opened is settled once, and holds nothing in the end."""

    opened: list[UUID] = field(default_factory=list)
    records: list[UsageRecord] = field(default_factory=list)
    held: int = 0

    def open(self, frame: UsageOpen) -> None:
        self.opened.append(frame.request_id)

    def record(self, frame: UsageRecord) -> None:
        self.records.append(frame)

    def admit_now(self, need: Need) -> "Held":
        self.held += 1
        return Held(self)

    async def admit(self, need: Need) -> "Held":
        return self.admit_now(need)


class Held:
    """A grant; giving it back twice is one too many only for the ledger's tests, not for the edge."""

    headers = b""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger: Ledger | None = ledger

    def settle(self, tokens: int, cost_nusd: int) -> None:
        """Nobody counts here."""

    def release(self) -> None:
        if self._ledger is not None:
            self._ledger.held -= 1
            self._ledger = None


class OneKey:
    """Knows one key."""

    _principal = Principal(key_id="key_1", team_id="team_1", key_name="fuzz", scopes=[Scope.INFERENCE],
                           money_scopes=[LimitScope.TEAM])  # so that admission is asked
    _digest = ids.secret_digest(KEY)

    def cached(self, digest: str) -> Principal | None:
        return self._principal if digest == self._digest else None

    async def find(self, digest: str, client_address: str) -> Principal | None:
        return None


@dataclass
class Answer:
    """One answer that a client got. `is_whole`: it came as long as its head says."""

    status: int
    headers: dict[str, str]
    body: bytes
    is_whole: bool


class FuzzedEdge:
    """Everything that outlives a request. `talk` has one client say something, and waits for the end of it."""

    def __init__(self) -> None:
        self.loop = SkippedTime(lambda transport, data: self.upstream(transport, data))
        self.answers: Answerer = healthy
        self.asked: list[tuple[str, dict[str, str], bytes]] = []
        self.ledger, self.open_requests, self._metrics = Ledger(), OpenRequests(), Metrics()
        self._holder = TableHolder()
        self._holder.take(snapshot(ports={"us-east-1": 1, "eu-north-1": 2}, engine=FACTS))
        app = build_app(ColdParts(self._holder, self.open_requests, self._metrics, lambda: "",
                                  [path.decode() for path in HOT_ROUTES]))
        self._config = uvicorn.Config(app, log_config=None, access_log=False, lifespan="off", ws="none")
        self._config.load()
        self._astray: list[str] = []
        self.loop.set_exception_handler(lambda _, context: self._astray.append(str(context)))

    def close(self) -> None:
        """Ends the loop."""
        self.loop.close()

    def upstream(self, transport: UpstreamTransport, data: bytes) -> None:
        """A datacenter was sent something: exactly one whole request, always."""
        head, _, body = data.partition(b"\r\n\r\n")
        lines = head.decode("ascii").split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines[1:])}
        assert len(headers) == len(lines) - 1, "a header goes upstream twice"
        assert set(headers) <= ALLOWED_UPSTREAM, f"headers go upstream: {set(headers) - ALLOWED_UPSTREAM}"
        assert re.fullmatch(r"POST /v1/[a-z/]+ HTTP/1\.1", lines[0]), lines[0]
        assert int(headers["content-length"]) == len(body)
        assert isinstance(json.loads(body), dict)
        assert KEY.encode() not in head
        self.asked.append((lines[0].split(" ")[1], headers, body))
        self.answers(transport, body)

    def talk(self, pieces: Iterable[bytes], takes: int = 1 << 30, leaves: bool = False, pause_s: float = 0.0) -> bytes:
        """What the edge wrote to a client that sends these pieces, with a pause after each, in the end."""
        self.ledger, self.asked, self._astray = Ledger(), [], []
        hot = HotPath(Services(
            table=self._holder, keyring=OneKey(), chooser=Chooser(Health(self.loop), self._metrics),
            retries=RetryBudget(), outbox=self.ledger, open_requests=self.open_requests, clock=self.loop,
            limits=LIMITS, metrics=self._metrics, session_key=session_key, admission=self.ledger,
            client_address=lambda peer, _: peer))
        state = ServerState()
        protocol = hot_protocol(hot)(config=self._config, server_state=state, app_state={}, _loop=self.loop)
        transport = ClientTransport(self.loop, protocol, takes)
        with capture_logs() as logged:
            self.loop.run_until_complete(_conversation(protocol, transport, pieces, leaves, pause_s))
        hot.pool.close()
        assert not [entry for entry in logged if "exc_info" in entry], "the edge met a fault of its own"
        assert not self._astray, f"nobody caught {self._astray}"
        self._nothing_is_left(transport, state)
        return bytes(transport.written)

    def _nothing_is_left(self, transport: ClientTransport, state: ServerState) -> None:
        assert transport.is_closed, "a connection outlived every deadline"
        assert not state.connections
        assert not any(self.open_requests.counts().values()), "a request is still open in a datacenter"
        assert self.ledger.held == 0, "a grant was never given back"
        assert sorted(record.request_id for record in self.ledger.records) == sorted(self.ledger.opened)


async def _conversation(protocol: EdgeProtocol, transport: ClientTransport, pieces: Iterable[bytes], leaves: bool,
                        pause_s: float) -> None:
    protocol.connection_made(transport)
    for piece in pieces:
        for _ in range(200):
            if not transport.is_paused or transport.is_closed:
                break
            await asyncio.sleep(0.05)
        if transport.is_closed:
            break
        if piece:
            protocol.data_received(piece)
        await asyncio.sleep(pause_s)
    if leaves:
        transport.abort()
    await asyncio.sleep(LONG_ENOUGH_S)


def answers_in(written: bytes) -> list[Answer]:
    """The answers of a conversation. Raises AssertionError for bytes that are none."""
    found, at = [], 0
    while at < len(written):
        match = _is_answer(written, at)
        assert match is not None, f"no answer begins with {written[at:at + 60]!r}"
        at = match.end()
        lines = [line.partition(b": ") for line in match[2].splitlines()]
        headers = {name.decode().lower(): value.decode("latin1") for name, _, value in lines}
        if match[1] == b"100":
            continue
        if "content-length" in headers:
            end = at + int(headers["content-length"])
            body, at, is_whole = written[at:end], end, end <= len(written)
        elif headers.get("transfer-encoding") == "chunked":
            body, at, is_whole = _chunks(written, at)
        else:
            body, at, is_whole = written[at:], len(written), True
        found.append(Answer(int(match[1]), headers, body, is_whole))
    return found


def check_error(answer: Answer) -> None:
    """An error has the shape of OpenAI's or of Anthropic's, and says whose request it was."""
    assert answer.status != 500, "the edge says that it failed"
    told: Any = json.loads(answer.body)
    error = told["error"]
    assert isinstance(error["message"], str)
    assert isinstance(error["type"], str)
    assert error["code"]
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["x-request-id"] == answer.headers["request-id"]
    assert "param" in error or told["type"] == "error"


def _chunks(data: bytes, at: int) -> tuple[bytes, int, bool]:
    body = b""
    while True:
        line_end = data.find(b"\r\n", at)
        if line_end < 0:
            return body, len(data), False
        size = int(data[at:line_end], 16)
        end = line_end + 2 + size
        body += data[line_end + 2:end]
        if data[end:end + 2] != b"\r\n":
            assert end + 2 > len(data), "a chunk is not as long as it says"
            return body, len(data), False
        at = end + 2
        if size == 0:
            return body, at, True


def event(**fields: Any) -> bytes:
    """One SSE event of a chat stream."""
    head = {"id": "chatcmpl-1", "created": 5, "model": MODEL, "object": "chat.completion.chunk"}
    return b"data: " + json.dumps({**head, **fields}, separators=(",", ":")).encode() + b"\n\n"


USAGE = {"prompt_tokens": 9, "completion_tokens": 2, "total_tokens": 11}
STREAM = b"".join([
    event(choices=[{"index": 0, "delta": {"role": "assistant", "content": " a"}, "text": " a", "finish_reason": None}],
          usage=USAGE, nvext={"completion_token_ids": [7]}),
    event(choices=[{"index": 0, "delta": {"content": " b"}, "text": " b", "finish_reason": "stop"}], usage=USAGE,
          nvext={"completion_token_ids": [8]}),
    event(choices=[], usage=USAGE), b"data: [DONE]\n\n"])
WHOLE = json.dumps({
    "id": "chatcmpl-1", "object": "chat.completion", "created": 5, "model": MODEL, "usage": USAGE, "data": [],
    "choices": [{"index": 0, "message": {"role": "assistant", "content": " a b"}, "text": " a b",
                 "finish_reason": "stop"}]}).encode()
STREAM_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


def chunked(body: bytes) -> bytes:
    """A whole chunked answer with this body."""
    return STREAM_HEAD + b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)


def healthy(transport: UpstreamTransport, body: bytes) -> None:
    """Answers as a datacenter does that nothing is wrong with."""
    if json.loads(body).get("stream"):
        transport.say(chunked(STREAM))
    else:
        transport.say(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b"
                      % (len(WHOLE), WHOLE))


def tells_prompt(transport: UpstreamTransport, body: bytes) -> bool:
    """Answers the question for a prompt's token ids, if that is what was asked."""
    asked = json.loads(body).get("nvext", {}).get("annotations")
    if asked:
        transport.say(STREAM_HEAD + b"1e\r\nevent: token_ids\n: \"[1,2,3]\"\n\n\r\n")
    return bool(asked)


def _refuses(status: int) -> Answerer:
    def answers(transport: UpstreamTransport, body: bytes) -> None:
        transport.say(b"HTTP/1.1 %d X\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}" % status)
    return answers


def _resets(transport: UpstreamTransport, body: bytes) -> None:
    transport.say(b"", then=transport.abort)


def _cuts(transport: UpstreamTransport, body: bytes) -> None:
    transport.say(chunked(STREAM)[:300], then=transport.abort)


def _is_silent(transport: UpstreamTransport, body: bytes) -> None:
    """Says nothing, ever."""


FAULTS: list[Answerer] = [healthy, healthy, healthy, _refuses(400), _refuses(429), _refuses(500), _resets, _cuts,
                          _is_silent]
Harness = Callable[[bytes], None]

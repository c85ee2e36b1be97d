"""What is fuzzed, by name: each takes any bytes and raises AssertionError, or worse, when a promise is broken."""

import json
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from uuid import UUID

from edge_api.dialects.routes import HOT_ROUTES
from edge_api.errors import Refusal
from edge_api.hot.meter import StreamMeter
from edge_api.hot.request import prepare
from edge_api.hot.sse import EVENT_END, EventSplitter, EventTooLong
from edge_api.metering.frames import MAGIC, Unreadable, decode, encode, scan
from edge_api.resume.journal import Watch
from edge_api.resume.stitch import BadContinuation, Stitch
from edge_api.routing.table import RoutedModel, build_table
from tests.fuzz.requests_read import hot_requests
from tests.fuzz.skipped_time import UpstreamTransport
from tests.fuzz.small_edge import FAULTS, KEY, Answer, FuzzedEdge, Harness, answers_in, check_error, tells_prompt
from tests.unit.edge_api.builders import MODEL, PRICE, snapshot, usage_record

REQUEST_ID = UUID("019ad000-0000-7000-8000-0123456789ab")
MAX_BYTES = 4_096
NEXT = b"\xff\xff"
MAX_EVENT_BYTES = 1_024
RECORD = encode(usage_record(REQUEST_ID))
CHAT = {"model": MODEL, "messages": [{"role": "user", "content": "hi"}], "max_tokens": 9, "temperature": 0}
ASKED: list[tuple[str, Mapping[str, object]]] = [
    ("/v1/chat/completions", CHAT), ("/v1/chat/completions", CHAT | {"stream": True}),
    ("/v1/chat/completions", CHAT | {"stream": True, "stream_options": {"include_usage": True}}),
    ("/v1/completions", {"model": MODEL, "prompt": "hi", "stream": True, "temperature": 0}),
    ("/v1/messages", CHAT), ("/v1/messages", CHAT | {"stream": True}), ("/v1/messages/count_tokens", CHAT),
    ("/v1/responses", {"model": MODEL, "input": "hi"}),
    ("/v1/responses", {"model": MODEL, "input": "hi", "stream": True}),
    ("/v1/embeddings", {"model": MODEL, "input": "hi"})]
DIALECTS = sorted(HOT_ROUTES.items())


def client(data: bytes) -> None:
    """A client sends `data` behind three bytes that say how: which fault the datacenter has, how it is cut, whether the
    client reads or leaves; or a piece after the other, each after the last one's answer, cut at `NEXT`."""
    fault, cut, manner, sent = _at(data, 0), _at(data, 1), _at(data, 2), data[3:]
    edge = _edge()
    edge.answers = FAULTS[fault % len(FAULTS)]
    if manner & 0x10:
        pieces = sent.split(NEXT)
        sent = b"".join(pieces)
        written = edge.talk(pieces, pause_s=1.0)
    else:
        written = edge.talk(_pieces(sent, cut), takes=50 if manner % 8 == 1 else 1 << 30, leaves=manner % 8 == 2)
    named = {headers["x-request-id"].partition(".")[0] for _, headers, _ in edge.asked if "x-request-id" in headers}
    assert len(named) == len(edge.ledger.opened)  # prompts that are only counted have neither
    assert len(edge.ledger.opened) <= hot_requests(sent)
    if b"HEAD" in sent:
        return  # its answer has no body, whatever its head says
    for answer in answers_in(written):
        if answer.status >= 400 and answer.is_whole:
            check_error(answer)


def upstream(data: bytes, edge: FuzzedEdge | None = None) -> None:
    """A datacenter answers `data` behind two bytes that say what it is asked and how the answer is cut; behind `NEXT`
    stands what it answers the next time. The client may ask twice."""
    kind, cut, said = _at(data, 0), _at(data, 1), data[2:].split(NEXT)
    path, body = ASKED[(kind & 0x1F) % len(ASKED)]
    edge = edge or _edge()

    def answers(transport: UpstreamTransport, sent: bytes) -> None:
        if body.get("stream") and tells_prompt(transport, sent):
            return
        pieces = _pieces(said.pop(0) if len(said) > 1 else said[0], cut)
        for piece in pieces[:-1]:
            transport.say(piece)
        transport.say(pieces[-1], then=transport.close if kind & 0x40 else None)

    edge.answers = answers
    raw, times = json.dumps(body).encode(), 2 if kind & 0x20 else 1
    asks = [b"POST %b HTTP/1.1\r\nhost: e\r\nauthorization: Bearer %b\r\ncontent-length: %d\r\n\r\n%b"
            % (path.encode(), KEY.encode(), len(raw), raw)] * times
    answered = answers_in(edge.talk(asks, pause_s=20.0 if times > 1 else 0.0))
    assert 1 <= len(answered) <= times
    assert len(edge.asked) <= 9 * times
    for answer in answered:
        _check_relayed(answer, bool(body.get("stream")))


def _check_relayed(answer: Answer, is_stream: bool) -> None:
    """It is whole: a well-formed error, or an answer that comes to an end."""
    assert answer.is_whole
    if answer.status != 200:
        check_error(answer)
    elif is_stream:
        ends = (b"data: [DONE]\n\n", b'"type":"message_stop"}\n\n', b"event: response.completed\n",
                b"event: response.incomplete\n")
        assert b"error" in answer.body or any(end in answer.body for end in ends), "a stream that never ends"


def events(data: bytes) -> None:
    """A stream's bytes through splitter and meter, cut in two ways; then all of it as its own continuation."""
    cut, stream = _at(data, 0), data[1:]
    meters = [StreamMeter(PRICE, True, bool(cut & 1), Watch(cut % 8)) for _ in range(2)]
    told = [_metered(meter, pieces) for meter, pieces in zip(meters, ([stream], _pieces(stream, cut)), strict=True)]
    if None not in told:
        assert told[0] == told[1], "it matters how a stream was cut"
    meter = meters[0]
    assert meter.partial_counts().completion >= 0
    assert meter.complete_counts().completion >= 0
    seam = meter.journal.seam(None, ("x",))
    if seam is not None and meter.journal.last:
        assert seam.tokens <= meter.journal.tokens
        _stitched(Stitch(meter.journal.last, b"", seam), stream)
        meter.journal.go_on(seam)


def frames(data: bytes) -> None:
    """A segment with damage in it: every byte is looked at once, and the whole frame behind it is found."""
    for at_end in (False, True):
        at = 0
        for stretch in scan(data, at_end):
            assert stretch.start == at < stretch.end <= len(data)
            at = stretch.end
            if stretch.payload is not None:
                with suppress(Unreadable):
                    encode(decode(stretch.payload))
        assert at == len(data) or not at_end
    if MAGIC not in data and not any(data.endswith(MAGIC[:length]) for length in range(1, len(MAGIC))):
        whole = [stretch for stretch in scan(data + RECORD, at_end=True) if stretch.payload is not None]
        assert [decode(stretch.payload or b"") for stretch in whole] == [usage_record(REQUEST_ID)]


def dialects(data: bytes) -> None:
    """A request's body, in the dialect that the first byte says: it becomes one JSON object, or a refusal in shape."""
    _, dialect = DIALECTS[_at(data, 0) % len(DIALECTS)]
    body = data[1:]
    try:
        asked = dialect.read(body, {}, REQUEST_ID)
        prepared = prepare(asked, _model(), always_usage=False)
    except Refusal as refused:
        status, told = dialect.refusal(refused, REQUEST_ID)
        assert 400 <= status < 500
        assert json.loads(told)["error"]["message"]
        return
    sent = b"".join(prepared.pieces)
    assert len(sent) == prepared.length
    assert isinstance(json.loads(sent), dict)
    if asked.streamed and asked.voice is not None:
        voice = asked.voice()
        assert isinstance(voice.begin() + voice.end(b""), bytes)


HARNESSES: Mapping[str, Harness] = {
    "client": client, "upstream": upstream, "events": events, "frames": frames, "dialects": dialects}


@cache
def _edge() -> FuzzedEdge:
    return FuzzedEdge()


@cache
def _model() -> RoutedModel:
    return build_table(snapshot()).models[MODEL]


def _at(data: bytes, index: int) -> int:
    return data[index] if index < len(data) else 0


def _pieces(data: bytes, cut: int) -> list[bytes]:
    """`data` in pieces of `cut` bytes, whole if that is nothing."""
    return [data[at:at + cut] for at in range(0, len(data), cut)] or [b""] if cut else [data]


def _metered(meter: StreamMeter, pieces: list[bytes]) -> tuple[bytes, int] | None:
    """What a client is told, and how many tokens; none if an event was too long, which depends on the cuts."""
    splitter, out = EventSplitter(MAX_EVENT_BYTES), []
    try:
        for piece in pieces:
            for event in splitter.feed(piece):
                assert event.endswith(EVENT_END)
                out.append(meter.pass_on(event))
                if meter.is_over:
                    return b"".join(out), meter.journal.tokens
    except EventTooLong:
        return None
    return b"".join(out), meter.journal.tokens


def _stitched(stitch: Stitch, stream: bytes) -> None:
    with suppress(BadContinuation, EventTooLong):
        for event in EventSplitter(MAX_EVENT_BYTES).feed(stream):
            stitch.take(event)

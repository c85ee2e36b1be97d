"""A request for several choices: one request upstream for each, one answer for the client.

Engines answer one choice at a time where token ids are counted, so each choice is a dispatch of its own, with its own
attempts, and this is the client of all of them. The prompt is billed once, as the first choice's datacenter counted it,
and the completions together; there is one usage record. A choice that fails for good ends them all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any
from uuid import UUID

import msgspec
from msgspec import json

from control_plane.contracts.keys import Principal
from control_plane.contracts.pricing import Cost
from control_plane.contracts.usage import Attempt, MeterSource, Outcome
from edge_api.dialects.base import ChunkHead, StreamVoice
from edge_api.dialects.plain import EMPTY, KEEP_ALIVE, OBJECTS, PlainVoice
from edge_api.errors import Refusal
from edge_api.hot import respond, sse
from edge_api.hot.answer import TOOL_CALLS
from edge_api.hot.client import CLIENT_GONE_STATUS, Client
from edge_api.hot.dispatch import Dispatch
from edge_api.hot.hotpath import HotPath
from edge_api.hot.request import Prepared, choice_of, one_choice
from edge_api.hot.services import RouteNeed
from edge_api.hot.settle import Journal
from edge_api.hot.usage import NOTHING_DELIVERED, UNKNOWN, Counts, cost_of, usage_of, with_cost
from edge_api.routing.table import RoutedModel
from edge_api.tool_calls.verdict import Called

_decode_object = json.Decoder(dict[str, msgspec.Raw]).decode
_decode_choices = json.Decoder(list[dict[str, msgspec.Raw]]).decode
_decode_head = json.Decoder(ChunkHead).decode


class Fanout:
    """Owns the choices of one request. `index` of a choice is its place among them, whoever of them is first; the first
    `_opened` have been told of."""

    def __init__(self, client: Client, hot: HotPath, principal: Principal, model: RoutedModel, prepared: Prepared,
                 session: str, need: RouteNeed, journal: Journal) -> None:
        self._client, self._model, self._prepared, self._journal = client, model, prepared, journal
        asked = prepared.asked
        self._voice: StreamVoice = PlainVoice(asked.upstream) if asked.voice is None else asked.voice()
        self._head: ChunkHead | None = None
        self._named = b""
        self._numbered = 0
        self._has_begun = self._is_over = False
        self._opened = 0
        alone = one_choice(prepared, model)
        self._choices = [
            Choice(self, client, index, hot, principal, model, choice_of(alone, index, self._voice_of(index)), session,
                   need)
            for index in range(prepared.choices)]

    def begin(self) -> None:
        """Sends all of them on their way.

        Raises:
            Refusal: one of them cannot be sent, so none is.
        """
        self._journal.open()
        try:
            for choice in self._choices:
                choice.dispatch.begin()
        except Refusal as refused:
            self._stop()
            self._settle(Outcome.UPSTREAM_LOST, refused.status, NOTHING_DELIVERED)
            raise

    def client_gone(self) -> int:
        """The client left: nothing more is generated, and what was delivered is billed."""
        status = 200 if self._has_begun else CLIENT_GONE_STATUS
        self._stop()
        self._settle(Outcome.CLIENT_GONE, status)
        return status

    def pause(self) -> None:
        for choice in self._choices:
            choice.dispatch.pause()

    def resume(self) -> None:
        for choice in self._choices:
            choice.dispatch.resume()

    # what the choices tell

    def next_attempt(self) -> int:
        """The number of an attempt that is new: each goes upstream under its own name, by which its engine's count is
        found."""
        self._numbered += 1
        return self._numbered

    def stream_begun(self, named: bytes) -> None:
        """A datacenter accepted one of them: the client gets the answer's head now."""
        if not self._has_begun and not self._is_over:
            self._has_begun, self._named = True, named
            self._client.write(self._client.begin_stream(named) + self._framed(self._voice.begin()))

    def write(self, events: bytes, /) -> None:
        """Events of a stream that has begun, told as this request's."""
        if events and not self._is_over:
            self._client.write(self._framed(self._voice.tell(events)))

    def first_byte(self, index: int) -> None:
        if not any(choice.has_byte for choice in self._choices):
            self._journal.first_byte()
        self._choices[index].has_byte = True

    def told(self, index: int, event: bytes) -> bytes:
        """A chunk of one choice as a chunk of this answer: its place, and what is the same in all chunks."""
        fields = _decode_object(sse.payload(event))
        if self._head is None:
            self._head = _decode_head(sse.payload(event))
        fields["id"], fields["created"] = _raw(self._head.id), _raw(self._head.created)
        fields.pop("usage", None)
        choices = _decode_choices(fields.get("choices", msgspec.Raw(b"[]")))
        if not choices:
            return b""
        # OpenAI's client tells choices apart by the order in which they first come: none is told before a lower one.
        earlier = [_chunk(fields, {"index": lower, "finish_reason": None, **EMPTY[self._prepared.asked.upstream]})
                   for lower in range(self._opened, index)]
        self._opened = max(self._opened, index + 1)
        return b"".join([*earlier, *(_chunk(fields, choice | {"index": _raw(index)}) for choice in choices)])

    def failed(self, refused: Refusal) -> None:
        """One of them fails for good: so do all."""
        if self._is_over:
            return
        has_begun = self._has_begun
        self._stop()
        self._settle(Outcome.UPSTREAM_LOST, 200 if has_begun else refused.status,
                     None if has_begun else NOTHING_DELIVERED)
        if has_begun:
            self._client.write(self._framed(self._voice.fail(refused, self._head or ChunkHead()), is_last=True))
            self._client.finish(200)
        else:
            self._client.refuse(refused, self._named)

    def settled(self) -> None:
        """One of them is in its journal. Once all are, so is the request, before the client sees its end."""
        if not self._is_over and all(choice.counts is not None for choice in self._choices):
            self._settle(Outcome.COMPLETED, 200)

    def finished(self) -> None:
        """One of them told all it had to tell."""
        if self._is_over or not all(choice.is_finished for choice in self._choices):
            return
        self._is_over = True
        if self._prepared.asked.streamed:
            usage = self._usage_event() if self._prepared.wants_usage else b""
            self._client.write(self._framed(self._voice.end(usage), is_last=True))
        else:
            self._client.answer(self._choices[0].named, self._merged())
        self._client.finish(200)

    # settling and telling

    def _settle(self, outcome: Outcome, status: int, counts: Counts | None = None) -> None:
        """A request of which any choice ended with calls did."""
        numbered = [(choice.attempt_number(nth), attempt) for choice in self._choices
                    for nth, attempt in enumerate(choice.attempts, 1)]
        attempts = [attempt for _, attempt in sorted(numbered, key=itemgetter(0))]
        called = [choice for choice in self._choices if choice.finish_reason == TOOL_CALLS]
        self._journal.settle(outcome, self._counts() if counts is None else counts, status, attempts,
                             (called or self._choices)[0].finish_reason, None,
                             [call for choice in called for call in choice.calls])

    def _counts(self) -> Counts:
        """What all of them used. Where one waits for the engine's witness, so do they together."""
        known = [choice.counts for choice in self._choices if choice.counts is not None]
        first = next((counts for counts in known if counts.prompt), NOTHING_DELIVERED)
        meters = {counts.meter for counts in known if counts.prompt or counts.completion or counts == UNKNOWN}
        meter = meters.pop() if len(meters) == 1 else NOTHING_DELIVERED.meter
        if MeterSource.PROVISIONAL in meters:
            meter = MeterSource.PROVISIONAL
        return Counts(first.prompt, first.cached, sum(counts.completion for counts in known),
                      sum(counts.reasoning for counts in known), meter)

    def _usage(self) -> bytes:
        counts = self._counts()
        return with_cost(usage_of(counts), self._model.price, cost_of(self._model.price, counts))

    def _usage_event(self) -> bytes:
        head = self._head or ChunkHead()
        return b"data: " + json.encode({
            "id": head.id, "object": OBJECTS[self._prepared.asked.upstream], "created": head.created,
            "model": head.model, "choices": [], "usage": msgspec.Raw(self._usage())}) + sse.EVENT_END

    def _merged(self) -> bytes:
        """The unary answers as one: the first one's, with everybody's choices."""
        answers = [_decode_object(choice.body) for choice in self._choices]
        choices = [choice | {"index": _raw(index)} for index, answer in enumerate(answers)
                   for choice in _decode_choices(answer.get("choices", msgspec.Raw(b"[]")))]
        return json.encode(answers[0] | {"choices": _raw(choices), "usage": msgspec.Raw(self._usage())})

    def _stop(self) -> None:
        """What is still generated is not wanted; what it was so far is known after that."""
        self._is_over = True
        for choice in self._choices:
            if choice.counts is None:
                choice.dispatch.client_gone()

    def _framed(self, data: bytes, is_last: bool = False) -> bytes:
        if not self._client.chunked:
            return data
        return (respond.chunk(data) if data else b"") + (respond.LAST_CHUNK if is_last else b"")

    def _voice_of(self, index: int) -> Callable[[], ChoiceVoice]:
        return lambda: ChoiceVoice(self, index)


class Choice:
    """One choice: the client of its dispatch, and the journal that it writes into. `counts` is null until it is over.
    """

    chunked = False

    def __init__(self, fanout: Fanout, client: Client, index: int, hot: HotPath, principal: Principal,
                 model: RoutedModel, prepared: Prepared, session: str, need: RouteNeed) -> None:
        self._fanout, self._index = fanout, index
        self.request_id: UUID = client.request_id
        self.headers: dict[bytes, bytes] = client.headers
        self.started_s = client.started_s
        self.write: Callable[[bytes], None] = fanout.write
        self.counts: Counts | None = None
        self.attempts: list[Attempt] = []
        self._numbers: list[int] = []
        self.finish_reason, self.named, self.body = "", b"", b""
        self.calls: Sequence[Called] = ()
        self.has_byte = self.is_finished = False
        self.dispatch = Dispatch(self, hot, principal, model, prepared, session, need, self)

    # as a client

    def attempt_number(self, nth: int) -> int:
        while len(self._numbers) < nth:
            self._numbers.append(self._fanout.next_attempt())
        return self._numbers[nth - 1]

    def begin_stream(self, named: bytes) -> bytes:
        self._fanout.stream_begun(named)
        return b""

    def answer(self, named: bytes, body: bytes) -> None:
        self.named, self.body = named, body

    def refuse(self, refused: Refusal, datacenter: bytes = b"") -> None:
        self._fanout.failed(refused)

    def finish(self, status: int) -> None:
        self.is_finished = True
        self._fanout.finished()

    # as a journal

    def open(self) -> None:
        """The request was journalled before any of its choices was sent."""

    def first_byte(self) -> None:
        self._fanout.first_byte(self._index)

    def settle(self, outcome: Outcome, counts: Counts, http_status: int, attempts: list[Attempt],
               finish_reason: str = "", cost: Cost | None = None, calls: Sequence[Called] = ()) -> None:
        if self.counts is None:
            self.counts, self.attempts, self.finish_reason, self.calls = counts, attempts, finish_reason, calls
            if outcome is Outcome.COMPLETED and http_status == 200:
                self._fanout.settled()


class ChoiceVoice:
    """Tells one choice's events as the whole answer's."""

    keep_alive = KEEP_ALIVE

    def __init__(self, fanout: Fanout, index: int) -> None:
        self._fanout, self._index = fanout, index

    def begin(self) -> bytes:
        return b""

    def tell(self, events: bytes) -> bytes:
        told = []
        for event in events.split(sse.EVENT_END):
            if event.startswith(b"data:"):
                told.append(self._fanout.told(self._index, event))
            elif event:
                told.append(event + sse.EVENT_END)  # a comment
        return b"".join(told)

    def end(self, events: bytes) -> bytes:
        return self.tell(events)

    def fail(self, refused: Refusal, head: ChunkHead) -> bytes:
        self._fanout.failed(refused)
        return b""


def _chunk(fields: Mapping[str, msgspec.Raw], choice: Mapping[str, object]) -> bytes:
    return b"data: " + json.encode({**fields, "choices": [choice]}) + sse.EVENT_END


def _raw(value: Mapping[str, Any] | list[Any] | str | int) -> msgspec.Raw:
    return msgspec.Raw(json.encode(value))

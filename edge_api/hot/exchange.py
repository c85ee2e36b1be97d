"""One request of one client, from its headers to its last byte: admitted, sent, answered, settled and let go once.

Driven by the protocol's callbacks: nothing here is a coroutine but the look-up of an unknown key and the wait for what
this edge must ask for first, so a common request costs no task. The client's connection is reached through `ClientSide`
only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from enum import StrEnum
from typing import Protocol

import structlog

from control_plane.contracts import ids
from control_plane.contracts.keys import Principal, Scope
from edge_api import errors
from edge_api.admission.grants import UNLIMITED
from edge_api.dialects.base import Asked
from edge_api.errors import Refusal
from edge_api.hot import respond
from edge_api.hot.counting import Counting
from edge_api.hot.dispatch import Dispatch
from edge_api.hot.fanout import Fanout
from edge_api.hot.head import Credential, Head
from edge_api.hot.hotpath import HotPath
from edge_api.hot.request import Prepared, allowed_regions, prepare, prompt_tokens, worst_case
from edge_api.hot.services import Grant, KeyDirectoryAway, Need, RouteNeed, TooManyUnknownKeys
from edge_api.hot.settle import RequestJournal
from edge_api.routing.table import RoutedModel, RoutingTable
from edge_api.secret import secret_of

log = structlog.get_logger()

TEAM_HEADER = b"x-prime-team-id"


class Phase(StrEnum):
    """How far a request has come."""

    HEAD = "head"
    LOOKUP = "lookup"
    BODY = "body"
    ADMISSION = "admission"
    UPSTREAM = "upstream"
    DONE = "done"


TRANSITIONS: dict[Phase, frozenset[Phase]] = {
    Phase.HEAD: frozenset({Phase.LOOKUP, Phase.BODY, Phase.DONE}),
    Phase.LOOKUP: frozenset({Phase.BODY, Phase.DONE}),
    Phase.BODY: frozenset({Phase.ADMISSION, Phase.UPSTREAM, Phase.DONE}),
    Phase.ADMISSION: frozenset({Phase.UPSTREAM, Phase.DONE}),
    Phase.UPSTREAM: frozenset({Phase.DONE}),
    Phase.DONE: frozenset(),
}


class ClientSide(Protocol):
    """The client's connection. `credential` is the last one it sent, with the secret in it and that one's digest."""

    client_address: str
    credential: Credential
    write: Callable[[bytes], None]

    def server_headers(self) -> list[tuple[bytes, bytes]]:
        """Headers that the server itself puts on every answer."""
        ...

    def hold_reading(self) -> None:
        """Reads no more of the request until `go_on_reading`."""
        ...

    def go_on_reading(self) -> None: ...

    def finished(self, exchange: Exchange) -> None:
        """The answer is written whole."""
        ...


class _Ignored:
    """uvicorn wakes its own request cycles with an event; this path has nobody to wake."""

    def set(self) -> None:
        """Nothing waits."""


class Exchange:
    """Also what uvicorn's protocol takes for its request cycle: it reads and sets `response_complete`, `keep_alive`,
    `disconnected` and `message_event`."""

    message_event = _Ignored()

    __slots__ = ("_body", "_client", "_dialect", "_expects_continue", "_grant", "_has_no_room", "_held_bytes", "_hot",
                 "_sent", "_size", "_too_large", "_waiting", "body_complete", "chunked", "disconnected", "head",
                 "headers", "keep_alive", "phase", "principal", "request_id", "response_complete", "started_s", "write")

    def __init__(self, client: ClientSide, hot: HotPath, head: Head) -> None:
        self._client, self._hot, self.head = client, hot, head
        self._dialect, self.headers = head.dialect, head.headers
        self.write = client.write
        self.keep_alive, self.chunked, self._expects_continue = head.keep_alive, head.chunked, head.expects_continue
        self.phase = Phase.HEAD
        self.request_id = ids.uuid7(hot.services.clock.time_s())
        self.started_s = hot.services.clock.monotonic_s()
        self.principal: Principal | None = None
        self.response_complete = self.disconnected = self.body_complete = self._too_large = False
        self._body: list[bytes] = []
        self._size = self._held_bytes = 0
        self._has_no_room = False
        self._grant: Grant | None = None
        self._sent: Dispatch | Fanout | Counting | None = None
        self._waiting: asyncio.Task[None] | None = None

    # what the protocol tells

    def body_piece(self, data: bytes) -> None:
        """A piece of the request's body came. Past the limits nothing is kept."""
        self._size += len(data)
        if self._size > self._hot.services.limits.max_body_bytes:
            self._too_large = True
            self._body.clear()
        elif self.phase is not Phase.DONE and not self._has_no_room:
            self._body.append(data)
            if self.principal is not None:
                self._hold(self.principal, len(data))

    def advance(self) -> None:
        """Goes as far as what has come allows."""
        try:
            if self.phase is Phase.HEAD:
                self._admit()
            if self.phase is Phase.BODY:
                self._take_body()
        except Refusal as refused:
            self.refuse(refused)
        except Exception:  # a fault of ours must answer 500 in the client's shape, not kill the connection silently
            log.exception("request_failed", request_id=str(self.request_id))
            self.refuse(Refusal(errors.INTERNAL_ERROR, "the edge failed on this request"))

    def client_gone(self) -> None:
        """The client's connection is lost: nothing can be answered, and nothing more must be generated."""
        self.disconnected = True
        self.response_complete = True
        if self._waiting is not None:
            self._waiting.cancel()
        if self.phase is Phase.UPSTREAM and self._sent is not None:
            self._hot.services.metrics.answered(self._sent.client_gone())
        self._sent = None
        self._let_go()
        self._body.clear()  # the connection and this know each other: garbage that may wait long for its collector
        self.phase = Phase.DONE

    def write_paused(self) -> None:
        """The client reads slower than the datacenter writes."""
        if self._sent is not None:
            self._sent.pause()

    def write_resumed(self) -> None:
        if self._sent is not None:
            self._sent.resume()

    @property
    def is_unsent(self) -> bool:
        """Whether it may still be refused, for nothing of it went upstream."""
        return self.phase not in (Phase.UPSTREAM, Phase.DONE)

    # what is asked for on the way

    def common_headers(self) -> bytes:
        """Headers of every answer."""
        hot, principal, grant = self._hot, self.principal, self._grant
        return b"%b%bopenai-processing-ms: %d\r\n%b%b%b" % (
            hot.rendered(self._client.server_headers()),
            respond.identity_headers(self.request_id, principal.team_id if principal else ""),
            1000 * (hot.services.clock.monotonic_s() - self.started_s), grant.headers if grant else b"",
            self.head.echo, b"" if self.keep_alive else b"connection: close\r\n")

    def attempt_number(self, nth: int) -> int:
        """All attempts are those of one dispatch."""
        return nth

    def begin_stream(self, named: bytes) -> bytes:
        """The head of a stream that begins."""
        return respond.stream_head(named + self.common_headers(), self.chunked)

    def answer(self, named: bytes, body: bytes) -> None:
        """Answers with a whole body."""
        self.write(respond.unary(named, self.common_headers(), body))

    def refuse(self, refused: Refusal, datacenter: bytes = b"") -> None:
        """Answers with an error. A body that has not come whole is read and dropped, then the connection closes.
        `datacenter` is the header that names whose error it is, if it is one's."""
        if self.phase is Phase.DONE:
            return
        if not self.body_complete:
            self.keep_alive = False
        self._body.clear()
        status, body = self._dialect.refusal(refused, self.request_id)
        self.write(respond.refusal(datacenter + self.common_headers(), refused, status, body))
        self.finish(status)

    def finish(self, status: int) -> None:
        """The answer is written."""
        self._move(Phase.DONE)
        self._hot.services.metrics.answered(status)
        self._sent = None  # each knows the other: without this every request were work for the garbage collector
        self._let_go()
        self.response_complete = True
        self._client.finished(self)

    # admission

    def _admit(self) -> None:
        length = self.headers.get(b"content-length")
        if length is not None and int(length) > self._hot.services.limits.max_body_bytes:
            raise self._too_large_refusal()
        _, secret, digest = self.head.credential or self._credential()
        principal = self._hot.services.keyring.cached(digest)
        if principal is not None:
            self._admitted(principal)
        elif not ids.is_well_formed_secret(secret.decode("ascii", "replace")):
            raise Refusal(errors.INVALID_API_KEY, "the API key is not one of ours: it is mistyped or cut off")
        else:
            self._move(Phase.LOOKUP)
            if not self.body_complete:
                self._client.hold_reading()  # a stranger's body is not read before somebody vouched for the key
            self._wait_for(self._find(digest))

    def _credential(self) -> Credential:
        """What the head shows; the digest is made anew only where it is not what the connection showed last."""
        shown, key = self.headers.get(b"authorization"), self.headers.get(b"x-api-key", b"")
        credential, value = self._client.credential, shown or key
        if value != credential[0] or not value:
            secret = secret_of(shown, key)
            credential = self._client.credential = (value, secret, ids.secret_digest(secret))
        self.head.credential = credential
        return credential

    async def _find(self, digest: str) -> None:
        """Asks for an unknown key, then goes on."""
        try:
            principal = await self._hot.services.keyring.find(digest, self._client_address())
            if principal is None:
                raise Refusal(errors.INVALID_API_KEY, "the API key is unknown, revoked or expired")
            self._admitted(principal)
        except KeyDirectoryAway:
            raise Refusal(errors.KEY_CHECK_UNAVAILABLE, "the key cannot be checked at the moment") from None
        except TooManyUnknownKeys:
            raise Refusal(errors.RATE_LIMITED, "too many unknown API keys from this address") from None
        finally:
            self._client.go_on_reading()

    def _admitted(self, principal: Principal) -> None:
        self.principal = principal
        if self.head.admits is not principal:
            self._check(principal)
        if self._body:
            self._hold(principal, self._size)
        self._move(Phase.BODY)

    def _check(self, principal: Principal) -> None:
        """Whether that key may be used as the head says."""
        if Scope.INFERENCE not in principal.scopes:
            raise Refusal(errors.PERMISSION_DENIED, "this API key may not be used for inference")
        team = self.headers.get(TEAM_HEADER)
        if team is not None and team.decode("ascii", "replace") != principal.team_id:
            raise Refusal(errors.TEAM_MISMATCH, "this API key belongs to another team than X-Prime-Team-ID names; "
                                                "leave the header out, or use a key of that team")
        self.head.admits = principal

    def _client_address(self) -> str:
        services = self._hot.services
        return services.client_address(self._client.client_address, self.headers.get(b"x-forwarded-for", b""))

    # the body

    def _take_body(self) -> None:
        if self._too_large:
            raise self._too_large_refusal()
        if self._has_no_room:
            raise Refusal(errors.EDGE_AT_CAPACITY, "this edge holds as many bytes of requests as it can; a team may "
                                                   "have half of them")
        if not self.body_complete:
            if self._expects_continue and not self._size:
                self._expects_continue = False
                self.write(respond.CONTINUE)
            return
        body = self._body[0] if len(self._body) == 1 else b"".join(self._body)
        self._body.clear()
        asked = self._dialect.read(body, self.headers, self.request_id)
        principal, table = self._known()
        model = _model(table, asked, principal)
        prepared = prepare(asked, model, principal.always_usage)
        need = RouteNeed(prompt_tokens(model, prepared), allowed_regions(
            asked.fields, self.headers, principal.regions, table.regions))
        if not principal.limits and not principal.money_scopes:  # nobody has to be asked
            self._send(principal, UNLIMITED, model, prepared, need)
            return
        worst = worst_case(self.request_id, principal, model, prepared)
        grant = self._hot.services.admission.admit_now(worst)
        if grant is not None:
            self._send(principal, grant, model, prepared, need)
        else:
            self._move(Phase.ADMISSION)
            self._wait_for(self._admit_and_send(worst, model, prepared, need))

    async def _admit_and_send(self, worst: Need, model: RoutedModel, prepared: Prepared, need: RouteNeed) -> None:
        grant = await self._hot.services.admission.admit(worst)
        self._send(worst.principal, grant, model, prepared, need)

    def _send(self, principal: Principal, grant: Grant, model: RoutedModel, prepared: Prepared,
              need: RouteNeed) -> None:
        self._grant, services = grant, self._hot.services
        session = services.session_key(self.headers, prepared.asked.fields, principal.team_id)
        self._move(Phase.UPSTREAM)
        if prepared.asked.counts is not None:
            self._sent = Counting(self, self._hot, principal, model, prepared, session, need)
        else:
            journal = RequestJournal(services, self.request_id, principal, model, prepared.asked, self.started_s,
                                     self._dialect.name, session, grant)
            if prepared.choices > 1:
                self._sent = Fanout(self, self._hot, principal, model, prepared, session, need, journal)
            else:
                self._sent = Dispatch(self, self._hot, principal, model, prepared, session, need, journal)
        self._sent.begin()

    def _known(self) -> tuple[Principal, RoutingTable]:
        """Who asks, and what is known of where it can be served."""
        if self.principal is None:
            raise RuntimeError("a body was taken before its key was checked")
        table = self._hot.services.table.current
        if table is None:
            raise Refusal(errors.NOT_READY, "this edge has no routing snapshot yet")
        return self.principal, table

    def _wait_for(self, work: Coroutine[None, None, None]) -> None:
        self._waiting = asyncio.get_running_loop().create_task(self._waited(work))

    async def _waited(self, work: Coroutine[None, None, None]) -> None:
        try:
            await work
        except Refusal as refused:
            self.refuse(refused)
        except Exception:  # as in advance()
            log.exception("request_failed", request_id=str(self.request_id))
            self.refuse(Refusal(errors.INTERNAL_ERROR, "the edge failed on this request"))
        self._waiting = None
        self.advance()

    def _hold(self, principal: Principal, size: int) -> None:
        """Counts bytes of the body as held; where there is no room for them none is kept."""
        if self._hot.bodies.hold(principal.team_id, size, self._hot.services.limits.max_bodies_bytes):
            self._held_bytes += size
        else:
            self._has_no_room = True
            self._body.clear()

    def _let_go(self) -> None:
        """Gives back what admission reserved, and the room that the body took."""
        if self._held_bytes and self.principal is not None:
            self._hot.bodies.let_go(self.principal.team_id, self._held_bytes)
            self._held_bytes = 0
        grant, self._grant = self._grant, None
        if grant is not None:
            grant.release()

    def _too_large_refusal(self) -> Refusal:
        limit = self._hot.services.limits.max_body_bytes
        return Refusal(errors.PAYLOAD_TOO_LARGE, f"the body is longer than {limit} bytes")

    def _move(self, phase: Phase) -> None:
        if phase not in TRANSITIONS[self.phase]:
            raise RuntimeError(f"a request cannot go from {self.phase} to {phase}")
        self.phase = phase


def _model(table: RoutingTable, asked: Asked, principal: Principal) -> RoutedModel:
    model_id = asked.fields.model
    model = table.models.get(model_id)
    if model is None or (principal.allowed_models is not None and model_id not in principal.allowed_models):
        raise Refusal(errors.MODEL_NOT_FOUND, f"the model '{model_id[:200]}' does not exist, or this key may not use "
                                              "it; GET /v1/models lists all", "model")
    return model

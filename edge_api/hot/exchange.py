"""One request of one client, from its headers to its last byte: admitted, sent, retried, answered, settled once.

Driven by the protocol's callbacks: nothing here is a coroutine but the look-up of an unknown key, so a common request
costs no task. The client's connection is reached through `ClientSide` only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from enum import StrEnum
from typing import Protocol

import structlog

from control_plane.contracts import ids
from control_plane.contracts.keys import Principal, Scope
from edge_api import errors
from edge_api.errors import Refusal
from edge_api.hot import request as chat
from edge_api.hot import respond
from edge_api.hot.dispatch import Dispatch
from edge_api.hot.hotpath import HotPath
from edge_api.hot.services import KeyDirectoryAway, TooManyUnknownKeys
from edge_api.routing.table import RoutedModel

log = structlog.get_logger()

BEARER = b"bearer "


class Phase(StrEnum):
    """How far a request has come."""

    HEAD = "head"
    LOOKUP = "lookup"
    BODY = "body"
    UPSTREAM = "upstream"
    DONE = "done"


TRANSITIONS: dict[Phase, frozenset[Phase]] = {
    Phase.HEAD: frozenset({Phase.LOOKUP, Phase.BODY, Phase.DONE}),
    Phase.LOOKUP: frozenset({Phase.BODY, Phase.DONE}),
    Phase.BODY: frozenset({Phase.UPSTREAM, Phase.DONE}),
    Phase.UPSTREAM: frozenset({Phase.DONE}),
    Phase.DONE: frozenset(),
}


Credential = tuple[bytes, bytes, str]


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

    __slots__ = ("_body", "_client", "_dispatch", "_expects_continue", "_hot", "_lookup", "_size", "_team_id",
                 "_too_large", "body_complete", "chunked", "disconnected", "headers", "keep_alive", "phase",
                 "principal", "request_id", "response_complete", "started_s", "write")

    def __init__(self, client: ClientSide, hot: HotPath, headers: dict[bytes, bytes], keep_alive: bool,
                 chunked: bool) -> None:
        self._client, self._hot, self.headers = client, hot, headers
        self.write = client.write
        self.keep_alive, self.chunked = keep_alive, chunked
        self._expects_continue = b"expect" in headers and headers[b"expect"].lower() == b"100-continue"
        self.phase = Phase.HEAD
        self.request_id = ids.uuid7(hot.services.clock.time_s())
        self.started_s = hot.services.clock.monotonic_s()
        self.principal: Principal | None = None
        self.response_complete = self.disconnected = self.body_complete = self._too_large = False
        self._team_id = ""
        self._body: list[bytes] = []
        self._size = 0
        self._dispatch: Dispatch | None = None
        self._lookup: asyncio.Task[None] | None = None

    # what the protocol tells

    def body_piece(self, data: bytes) -> None:
        """A piece of the request's body came. Past the limit nothing is kept."""
        self._size += len(data)
        if self._size > self._hot.services.limits.max_body_bytes:
            self._too_large = True
            self._body.clear()
        elif self.phase is not Phase.DONE:
            self._body.append(data)

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
        if self._lookup is not None:
            self._lookup.cancel()
        if self.phase is Phase.UPSTREAM and self._dispatch is not None:
            self._dispatch.client_gone()
        self._dispatch = None
        self._body.clear()  # the connection and this know each other: garbage that may wait long for its collector
        self.phase = Phase.DONE

    def write_paused(self) -> None:
        """The client reads slower than the datacenter writes."""
        if self._dispatch is not None:
            self._dispatch.pause()

    def write_resumed(self) -> None:
        if self._dispatch is not None:
            self._dispatch.resume()

    @property
    def is_unsent(self) -> bool:
        """Whether it may still be refused, for nothing of it went upstream."""
        return self.phase in (Phase.HEAD, Phase.LOOKUP, Phase.BODY)

    # what the dispatch asks for

    def common_headers(self) -> bytes:
        """Headers of every answer."""
        return (self._hot.rendered(self._client.server_headers())
                + respond.identity_headers(self.request_id, self._team_id)
                + (b"" if self.keep_alive else b"connection: close\r\n"))

    def refuse(self, refused: Refusal, datacenter: bytes = b"") -> None:
        """Answers with an error. A body that has not come whole is read and dropped, then the connection closes.
        `datacenter` is the header that names whose error it is, if it is one's."""
        if self.phase is Phase.DONE:
            return
        if not self.body_complete:
            self.keep_alive = False
        self._body.clear()
        self.write(respond.refusal(datacenter + self.common_headers(), refused))
        self.finish(refused.status)

    def finish(self, status: int) -> None:
        """The answer is written."""
        self._move(Phase.DONE)
        self._hot.services.metrics.answered(status)
        self._dispatch = None  # each knows the other: without this every request were work for the garbage collector
        self.response_complete = True
        self._client.finished(self)

    # admission

    def _admit(self) -> None:
        length = self.headers.get(b"content-length")
        if length is not None and int(length) > self._hot.services.limits.max_body_bytes:
            raise self._too_large_refusal()
        value = self.headers.get(b"authorization", b"")
        if value != self._client.credential[0] or not value:
            secret = _bearer(value)
            self._client.credential = (value, secret, ids.secret_digest(secret))
        _, secret, digest = self._client.credential
        principal = self._hot.services.keyring.cached(digest)
        if principal is not None:
            self._admitted(principal)
        elif not ids.is_well_formed_secret(secret.decode("ascii", "replace")):
            raise Refusal(errors.INVALID_API_KEY, "the API key is not one of ours: it is mistyped or cut off")
        else:
            self._move(Phase.LOOKUP)
            if not self.body_complete:
                self._client.hold_reading()  # a stranger's body is not read before somebody vouched for the key
            self._lookup = asyncio.get_running_loop().create_task(self._find(digest))

    async def _find(self, digest: str) -> None:
        """Asks for an unknown key, then goes on."""
        try:
            principal = await self._hot.services.keyring.find(digest, self._client.client_address)
            if principal is None:
                raise Refusal(errors.INVALID_API_KEY, "the API key is unknown, revoked or expired")
            self._admitted(principal)
        except Refusal as refused:
            self.refuse(refused)
        except KeyDirectoryAway:
            self.refuse(Refusal(errors.KEY_CHECK_UNAVAILABLE, "the key cannot be checked at the moment"))
        except TooManyUnknownKeys:
            self.refuse(Refusal(errors.RATE_LIMITED, "too many unknown API keys from this address"))
        except Exception:  # as in advance()
            log.exception("key_lookup_failed", request_id=str(self.request_id))
            self.refuse(Refusal(errors.INTERNAL_ERROR, "the edge failed on this request"))
        self._client.go_on_reading()
        self.advance()

    def _admitted(self, principal: Principal) -> None:
        if Scope.INFERENCE not in principal.scopes:
            raise Refusal(errors.PERMISSION_DENIED, "this API key may not be used for inference")
        self.principal, self._team_id = principal, principal.team_id
        self._move(Phase.BODY)

    # the body

    def _take_body(self) -> None:
        if self._too_large:
            raise self._too_large_refusal()
        if not self.body_complete:
            if self._expects_continue and not self._size:
                self._expects_continue = False
                self.write(respond.CONTINUE)
            return
        body = self._body[0] if len(self._body) == 1 else b"".join(self._body)
        self._body.clear()
        principal = self.principal
        if principal is None:
            raise RuntimeError("a body was taken before its key was checked")
        fields, options = chat.read(body)
        model = self._model(fields.model)
        chat.check_limit(fields, model.max_output_tokens)
        asked = chat.prepare(body, fields, options, principal.always_usage, model.default_max_tokens)
        self._move(Phase.UPSTREAM)
        self._dispatch = Dispatch(self, self._hot, principal, model, asked)
        self._dispatch.begin()

    def _model(self, model_id: str) -> RoutedModel:
        table = self._hot.services.table.current
        if table is None:
            raise Refusal(errors.NOT_READY, "this edge has no routing snapshot yet")
        model = table.models.get(model_id)
        if model is None:
            raise Refusal(errors.MODEL_NOT_FOUND, f"the model '{model_id[:200]}' does not exist", "model")
        return model

    def _too_large_refusal(self) -> Refusal:
        limit = self._hot.services.limits.max_body_bytes
        return Refusal(errors.PAYLOAD_TOO_LARGE, f"the body is longer than {limit} bytes")

    def _move(self, phase: Phase) -> None:
        if phase not in TRANSITIONS[self.phase]:
            raise RuntimeError(f"a request cannot go from {self.phase} to {phase}")
        self.phase = phase


def _bearer(value: bytes) -> bytes:
    """The secret in an `Authorization` header."""
    secret = value[len(BEARER):].strip()
    if value[:len(BEARER)].lower() != BEARER or not secret:
        raise Refusal(errors.INVALID_API_KEY, "no API key: send it as 'Authorization: Bearer <key>'")
    return secret

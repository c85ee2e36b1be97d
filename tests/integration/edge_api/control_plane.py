"""A small control plane for the edge's tests: real HTTP, real signatures, honest answers, and faults on demand.

It keeps the contracts that edges rely on and nothing else. The real control plane has its own test with a real edge.
"""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from uuid import UUID

import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Send
from starlette.types import Scope as AsgiScope

from control_plane.contracts.clock import SystemClock
from control_plane.contracts.edge_sync import EdgeSyncAnswer, EdgeSyncRequest
from control_plane.contracts.enrolment import UNKNOWN_IDENTITY, ControlPlaneKey, EnrolAnswer, EnrolRequest
from control_plane.contracts.ids import new_secret, secret_digest
from control_plane.contracts.keys import KeyLookup, Principal, Revocation, Scope, TeamChange
from control_plane.contracts.problem import Problem
from control_plane.contracts.signing import (
    BadSignature,
    Nonces,
    NotSigned,
    SignedRequest,
    SigningKey,
    VerifyKey,
    claimed_identity,
)
from control_plane.contracts.snapshot import SignedSnapshot, Snapshot
from control_plane.contracts.usage import UsageAnswer, UsageBatch, UsageOpen, UsageRecord, Verdict
from tests.integration.edge_api.waiting import until

TOKEN = "enrol_meridian_test_token"
IDENTITY, REGION = "edge_test", "us-east-1"
KEY = new_secret("sk_meridian_test")


def principal(team_id: str = "team_1", **changes: object) -> Principal:
    values: dict[str, object] = {"key_id": "key_1", "team_id": team_id, "key_name": "test", "scopes": [Scope.INFERENCE]}
    return Principal.model_validate(values | changes)


class UnknownIdentity(Exception):
    """Nobody of that name is enrolled."""


class ControlPlane:
    """What it knows and what it was told. `away` answers 503 to everything; `delay_s` holds look-ups back; with
    `believes_anybody` it checks no signature, as an impostor would."""

    def __init__(self) -> None:
        self.key = SigningKey.generate()
        self.identities: dict[str, VerifyKey] = {}
        self.tokens, self.tokens_shown = {TOKEN: IDENTITY}, list[str]()
        self.offered: SignedSnapshot | None = None
        self.principals: dict[str, Principal] = {secret_digest(KEY): principal()}
        self.revocations: list[Revocation] = []
        self.changes: list[TeamChange] = []
        self.live_edges = 1
        self.syncs: list[EdgeSyncRequest] = []
        self.lookups: list[str] = []
        self.batches: list[UsageBatch] = []
        self.opens: dict[UUID, UsageOpen] = {}
        self.records: dict[UUID, UsageRecord] = {}
        self.refused_requests = 0
        self.away, self.delay_s, self.usage_status, self.poison = False, 0.0, 200, UUID(int=0)
        self.url = ""
        self.closing = self.believes_anybody = False
        self.next_wait_s = 0.5
        self._news = asyncio.Event()
        self._nonces = Nonces()

    def publish(self, snapshot: Snapshot, key: SigningKey | None = None) -> None:
        """Offers a snapshot to every edge that has another one."""
        self.offer(SignedSnapshot.seal(snapshot, key or self.key))

    def offer(self, signed: SignedSnapshot) -> None:
        self.offered = signed
        self._news.set()

    def close(self) -> None:
        """Ends the polls that wait."""
        self.closing = True
        self._news.set()

    def revoke(self, digest: str) -> None:
        self.principals.pop(digest, None)
        self.revocations.append(Revocation(seq=len(self.revocations) + 1, digest=digest))
        self._news.set()

    def rotate(self, digest: str, effective_at_s: float) -> None:
        self.revocations.append(Revocation(
            seq=len(self.revocations) + 1, digest=digest, effective_at_s=effective_at_s))
        self._news.set()

    def change(self, digest: str, principal: Principal) -> None:
        self.principals[digest] = principal
        self.changes.append(TeamChange(seq=len(self.changes) + 1, team_id=principal.team_id))
        self._news.set()

    async def verified(self, request: Request) -> bytes:
        """The body of a request that is signed by a known identity.

        Raises:
            NotSigned, BadSignature: it is not.
        """
        body = await request.body()
        if self.believes_anybody:
            return body
        key = self.identities.get(claimed_identity(request.headers))
        if key is None:
            raise UnknownIdentity
        target = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        SignedRequest(request.method, target, body).check(request.headers, key, SystemClock(), self._nonces)
        return body

    async def enrol(self, request: Request) -> Response:
        asked = EnrolRequest.model_validate_json(await request.body())
        self.tokens_shown.append(asked.token)
        if asked.token not in self.tokens:
            return Response(status_code=401)
        identity = self.tokens[asked.token]
        self.identities[identity] = VerifyKey.from_text(asked.public_key)
        answer = EnrolAnswer(identity=identity, subject=REGION, control_plane_keys=[
            ControlPlaneKey(key_id=self.key.public.key_id, public_key=self.key.public.text)])
        return Response(answer.model_dump_json())

    async def sync(self, request: Request) -> Response:
        asked = EdgeSyncRequest.model_validate_json(await self.verified(request))
        self.syncs.append(asked)
        if not self.closing:
            self._news.clear()
        if not self._has_news(asked):
            try:
                async with asyncio.timeout(asked.wait_s):
                    await self._news.wait()
            except TimeoutError:
                pass
        answer = EdgeSyncAnswer(
            snapshot=self.offered if self._is_other(asked) else None, next_wait_s=self.next_wait_s,
            revocations=[r for r in self.revocations if r.seq > asked.revocations_after],
            changes=self._changes(asked), live_edges=self.live_edges)
        return Response(answer.model_dump_json())

    async def look_up(self, request: Request) -> Response:
        digest = KeyLookup.model_validate_json(await self.verified(request)).digest
        self.lookups.append(digest)
        found = self.principals.get(digest)
        await asyncio.sleep(self.delay_s)
        return Response(found.model_dump_json()) if found else Response(status_code=404)

    async def usage(self, request: Request) -> Response:
        batch = msgspec.json.decode(await self.verified(request), type=UsageBatch)
        names = [frame.request_id for frame in batch.frames]
        if self.usage_status != 200 or names != sorted(names) or len(names) > 500 or self.poison in names:
            return Response(status_code=self.usage_status if self.usage_status != 200 else 400)
        self.batches.append(batch)
        return Response(msgspec.json.encode(UsageAnswer([self._store(frame) for frame in batch.frames])))

    def app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/enrol/v1", self.enrol, methods=["POST"]),
                Route("/edge/v1/sync", self.sync, methods=["POST"]),
                Route("/edge/v1/keys/lookup", self.look_up, methods=["POST"]),
                Route("/edge/v1/usage", self.usage, methods=["POST"]),
            ],
            exception_handlers={NotSigned: self._unsigned, BadSignature: self._unsigned,
                                UnknownIdentity: self._unknown})

    async def _unsigned(self, _: Request, __: Exception) -> Response:
        self.refused_requests += 1
        return Response(status_code=401)

    async def _unknown(self, _: Request, __: Exception) -> Response:
        self.refused_requests += 1
        return Response(Problem(code=UNKNOWN_IDENTITY, message="unknown").model_dump_json(), status_code=401)

    def _has_news(self, asked: EdgeSyncRequest) -> bool:
        return bool(self._is_other(asked) or self._changes(asked)
                    or any(r.seq > asked.revocations_after for r in self.revocations))

    def _changes(self, asked: EdgeSyncRequest) -> list[TeamChange]:
        return [] if asked.changes_after is None else [c for c in self.changes if c.seq > asked.changes_after]

    def _is_other(self, asked: EdgeSyncRequest) -> bool:
        if self.offered is None:
            return False
        return f'"lineage":{asked.acked_lineage},"version":{asked.acked_version},' not in self.offered.body

    def _store(self, frame: UsageOpen | UsageRecord) -> Verdict:
        stored = self.opens if isinstance(frame, UsageOpen) else self.records
        former = stored.setdefault(frame.request_id, frame)  # type: ignore[arg-type]
        if former is frame:
            return Verdict.STORED
        return Verdict.DUPLICATE if former == frame else Verdict.CONFLICT


class _Switch:
    """Lets the app be away without closing its port."""

    def __init__(self, control_plane: ControlPlane) -> None:
        self._control_plane, self._app = control_plane, control_plane.app()

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and self._control_plane.away:
            await Response(status_code=503)(scope, receive, send)
        else:
            await self._app(scope, receive, send)


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


@asynccontextmanager
async def listening(app: ASGIApp, port: int | None = None) -> AsyncIterator[str]:
    """Serves an app on the loopback, in this event loop; gives its address."""
    port = port or free_port()
    server = uvicorn.Server(uvicorn.Config(
        app, host="127.0.0.1", port=port, log_config=None, access_log=False, lifespan="off",
        timeout_graceful_shutdown=1))
    server.capture_signals = nullcontext  # type: ignore[method-assign, assignment]
    running = asyncio.create_task(server.serve())
    await until(lambda: server.started)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        await running


@asynccontextmanager
async def serving(control_plane: ControlPlane, port: int | None = None) -> AsyncIterator[ControlPlane]:
    """Serves the small control plane."""
    async with listening(_Switch(control_plane), port) as control_plane.url:
        try:
            yield control_plane
        finally:
            control_plane.close()

"""A control plane for one fleet that speaks the agent's contract over real HTTP: enrolment, signatures, one lease.

Tests set `desired`, `commands` and `next_wait_s`, and read `requests`. `is_away` makes it answer 503 to everything.
"""

import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from control_plane.contracts.agent_sync import (
    LEASE_TTL_S,
    AgentSyncAnswer,
    AgentSyncRequest,
    Command,
    CommandState,
    DesiredState,
)
from control_plane.contracts.clock import SystemClock
from control_plane.contracts.enrolment import UNKNOWN_IDENTITY, EnrolAnswer, EnrolRequest
from control_plane.contracts.problem import Problem
from control_plane.contracts.recovery import FIRST_LINEAGE, SignedRecovery
from control_plane.contracts.signing import BadSignature, Nonces, NotSigned, SignedRequest, VerifyKey, claimed_identity

TERMINAL = {CommandState.SUCCEEDED, CommandState.FAILED, CommandState.REJECTED, CommandState.EXPIRED}


class UnknownIdentity(Exception):
    """Nobody of that name is enrolled."""


class FakeControlPlane:
    """Serves from a thread of its own until it is closed; every attribute may be changed meanwhile."""

    def __init__(self, token: str, fleet_id: str = "test-a") -> None:
        self.token, self.fleet_id, self.identity = token, fleet_id, "identity_test"
        self.key: VerifyKey | None = None
        self.boot_id = ""
        self.epoch = 0
        self.desired = DesiredState(generation=0, deployments=[])
        self.commands: list[Command] = []
        self.outcomes: dict[str, CommandState] = {}
        self.next_wait_s = 0.3
        self.is_away = False
        self.superseded_by = ""
        self.requests: list[AgentSyncRequest] = []
        self._nonces = Nonces()
        self._lock = threading.Condition()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})
        self._thread.start()
        self.lineage = FIRST_LINEAGE
        self.recovery: SignedRecovery | None = None

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def want(self, desired: DesiredState) -> None:
        with self._lock:
            self.desired = desired
            self._lock.notify_all()

    def order(self, command: Command) -> None:
        with self._lock:
            self.commands.append(command)
            self._lock.notify_all()

    def wait_for(self, condition: Callable[[AgentSyncRequest], bool], timeout_s: float = 15.0) -> AgentSyncRequest:
        """The first request from now on (or the last before) that fulfils the condition."""
        give_up_s = time.monotonic() + timeout_s
        with self._lock:
            seen = max(0, len(self.requests) - 1)
            while True:
                for request in self.requests[seen:]:
                    if condition(request):
                        return request
                seen = len(self.requests)
                left_s = give_up_s - time.monotonic()
                if left_s <= 0 or not self._lock.wait(left_s):
                    raise AssertionError(f"never happened; last: {self.requests[-1:]}")

    def answer(self, method: str, path: str, headers: dict[str, str], body: bytes) -> tuple[int, str]:
        if self.is_away:
            return 503, Problem(code="away", message="away").model_dump_json()
        if path == "/enrol/v1":
            return self._enrol(EnrolRequest.model_validate_json(body))
        try:
            self._check(SignedRequest(method, path, body), headers)
        except UnknownIdentity:
            return 401, Problem(code=UNKNOWN_IDENTITY, message="unknown").model_dump_json()
        except (NotSigned, BadSignature) as error:
            return 401, Problem(code="bad_signature", message=str(error)).model_dump_json()
        return self._sync(AgentSyncRequest.model_validate_json(body))

    def _check(self, request: SignedRequest, headers: dict[str, str]) -> None:
        if claimed_identity(headers) != self.identity or self.key is None:
            raise UnknownIdentity
        request.check(headers, self.key, SystemClock(), self._nonces)

    def _enrol(self, request: EnrolRequest) -> tuple[int, str]:
        key = VerifyKey.from_text(request.public_key)
        if request.token != self.token or (self.key is not None and self.key.raw != key.raw):
            return 403, Problem(code="token_refused", message="the token is spent or unknown").model_dump_json()
        self.key = key
        answer = EnrolAnswer(identity=self.identity, subject=self.fleet_id, control_plane_keys=[])
        return 200, answer.model_dump_json()

    def _sync(self, request: AgentSyncRequest) -> tuple[int, str]:
        with self._lock:
            self.requests.append(request)
            self._lock.notify_all()
            if self.superseded_by:
                return 410, Problem(code="superseded", message="another boot").model_dump_json()
            if request.epoch is not None and (request.epoch != self.epoch or request.boot_id != self.boot_id):
                return 409, Problem(code="stale_epoch", message="the lease moved on").model_dump_json()
            if request.boot_id != self.boot_id:
                self.boot_id, self.epoch = request.boot_id, self.epoch + 1
            self._take_acks(request)
            known = len(self.commands)
            self._lock.wait_for(
                lambda: self.desired.generation > request.seen_generation or len(self.commands) > known,
                timeout=request.wait_s)
            newer = self.desired if self.desired.generation != request.seen_generation else None
            answer = AgentSyncAnswer(
                epoch=self.epoch, lease_ttl_s=LEASE_TTL_S, generation=self.desired.generation, desired=newer,
                commands=self.commands, next_wait_s=self.next_wait_s, lineage=self.lineage, recovery=self.recovery)
            return 200, answer.model_dump_json()

    def _take_acks(self, request: AgentSyncRequest) -> None:
        self.outcomes |= {ack.command_id: ack.state for ack in request.acks}
        self.commands = [c for c in self.commands if self.outcomes.get(c.id) not in TERMINAL]

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        control_plane = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                headers = {name.lower(): value for name, value in self.headers.items()}
                status, text = control_plane.answer("POST", self.path, headers, body)
                self.send_response(status)
                self.send_header("content-length", str(len(text.encode())))
                self.end_headers()
                try:
                    self.wfile.write(text.encode())
                except (BrokenPipeError, ConnectionResetError):
                    self.close_connection = True  # the agent cut its poll short

            def log_message(self, *_: object) -> None:
                """Quiet."""

        return Handler

"""An operator API and an edge in memory, on real sockets: they answer the contracts' shapes, and faults on demand."""

import json
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any, Self
from urllib.parse import parse_qs, unquote, urlsplit

from pydantic import BaseModel

from control_plane.contracts import ids
from control_plane.contracts.audit import AuditView, ChainView
from control_plane.contracts.clock import utc
from control_plane.contracts.keys import Scope
from control_plane.contracts.operations import (
    AutomationView,
    OperationAnswer,
    OperationPlan,
    OperationRequest,
    OperationState,
    OperationView,
    StepState,
    StepView,
)
from control_plane.contracts.operator import (
    EnrolmentTokenCreated,
    GenerationView,
    KeyCreated,
    KeyView,
    OperatorTokenCreated,
    Page,
    StatusView,
    TeamView,
    UsageRow,
    UsageSummary,
)
from control_plane.contracts.problem import Problem
from control_plane.contracts.recovery import LineageView, RecoveryRequest, RecoveryView
from control_plane.contracts.snapshot import TrafficState
from control_plane.contracts.topology import TopologyDocument

TOKEN = "oper_meridian_local_test"
API_KEY = "sk_meridian_local_test"
NOW = utc(1_800_000_000)
STEPS = ["ramp", "await_idle", "settle"]


@dataclass
class Call:
    """A request as it arrived."""

    method: str
    path: str
    query: dict[str, list[str]]
    headers: dict[str, str]
    body: bytes


@dataclass
class Raw:
    """An answer written out by hand; `cut` closes the connection after `body` without an end."""

    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    cut: bool = False


class Refuse(Exception):
    """Ends a handler with a problem."""

    def __init__(self, status: int, problem: Problem) -> None:
        super().__init__(problem.message)
        self.status, self.problem = status, problem


class Server(ABC):
    """Any HTTP server of this file. `scripted` answers come first, one a request, whatever is asked."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.scripted: deque[Raw] = deque()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do(self) -> None:
                outer._handle(self)

            do_GET = do_POST = do_PUT = do_DELETE = do  # noqa: N815

            def log_message(self, format: str, *args: object) -> None:
                """Quiet."""

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}"

    def __enter__(self) -> Self:
        self._thread = Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.02})
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()

    @abstractmethod
    def answer(self, call: Call) -> Raw:
        """What is answered when nothing is scripted."""

    def _handle(self, request: BaseHTTPRequestHandler) -> None:
        parts = urlsplit(request.path)
        body = request.rfile.read(int(request.headers.get("content-length", 0)))
        call = Call(request.command, unquote(parts.path), parse_qs(parts.query),
                    {name.lower(): value for name, value in request.headers.items()}, body)
        self.calls.append(call)
        raw = self.scripted.popleft() if self.scripted else self.answer(call)
        if raw.status == 0:
            return  # closes without a word
        request.send_response(raw.status)
        for name, value in {"content-type": "application/json", **raw.headers}.items():
            request.send_header(name, value)
        request.send_header("content-length", str(len(raw.body) + (10 if raw.cut else 0)))
        request.end_headers()
        request.wfile.write(raw.body)


class OperatorServer(Server):
    """The operator API. An operation moves one step on each time it is read, and ends as `ending` says."""

    def __init__(self) -> None:
        super().__init__()
        self.status = StatusView(lineage=1, snapshot_version=1, datacenters=[], edges=[], running_operations=[],
                                 as_of=NOW)
        self.topology = TopologyDocument()
        self.teams: list[TeamView] = []
        self.keys: list[KeyView] = []
        self.operations: dict[str, OperationView] = {}
        self.by_key: dict[str, str] = {}
        self.generations: list[GenerationView] = []
        self.events: list[AuditView] = []
        self.chain = [ChainView(seq=3, hash="ab" * 32, is_complete=True)]
        self.lineages: list[LineageView] = []
        self.refusal: Problem | None = None
        self.automation = AutomationView(frozen=False)
        self.plan: dict[str, Any] = {}
        self.is_truncated = False
        self.ending = OperationState.SUCCEEDED
        self.stuck = False
        self._routes: dict[tuple[str, str], Callable[[Call, list[str]], BaseModel | None]] = {
            ("GET", "status"): lambda call, rest: self.status,
            ("GET", "topology"): lambda call, rest: self.topology,
            ("PUT", "topology"): self._put_topology,
            ("GET", "teams"): self._get_teams,
            ("POST", "teams"): self._post_teams,
            ("DELETE", "keys"): self._delete_key,
            ("GET", "operations"): self._get_operations,
            ("POST", "operations"): self._post_operations,
            ("GET", "automation"): self._automation,
            ("POST", "automation"): self._automation,
            ("GET", "usage"): self._usage,
            ("GET", "generations"): lambda call, rest: self._page(call, self.generations, GenerationView),
            ("GET", "audit"): lambda call, rest: (
                self.chain.pop(0) if rest == ["verify"] else self._page(call, self.events, AuditView)),
            ("GET", "recovery"): lambda call, rest: self._lineage(),
            ("POST", "recovery"): self._post_recovery,
            ("POST", "tokens"): lambda call, rest: OperatorTokenCreated(
                id="optok_1", token="oper_meridian_local_new", expires_at=NOW),
            ("POST", "enrolment-tokens"): lambda call, rest: EnrolmentTokenCreated(
                token="enrol_meridian_local_new", expires_at=NOW),
        }

    def answer(self, call: Call) -> Raw:
        try:
            if call.headers.get("authorization") != f"Bearer {TOKEN}":
                raise Refuse(401, Problem(code="unauthenticated", message="no such token"))
            first, *rest = call.path.removeprefix("/operator/v1/").split("/", 1)
            route = self._routes.get((call.method, first))
            if route is None:
                raise Refuse(404, Problem(code="not_found", message=f"no route {call.path}"))
            found = route(call, rest)
            return Raw(204) if found is None else Raw(200, found.model_dump_json().encode())
        except Refuse as refusal:
            return Raw(refusal.status, refusal.problem.model_dump_json().encode())

    def team(self, ref: str) -> TeamView:
        """The team of a slug or an id."""
        found = next((team for team in self.teams if ref in (team.slug, team.id)), None)
        if found is None:
            raise Refuse(404, Problem(code="not_found", message=f"there is no team {ref}"))
        return found

    def _lineage(self) -> LineageView:
        """The next of `lineages`; the last one stays."""
        return self.lineages.pop(0) if len(self.lineages) > 1 else self.lineages[0]

    def _post_recovery(self, call: Call, rest: list[str]) -> BaseModel:
        if self.refusal is not None:
            raise Refuse(409, self.refusal)
        before, is_planned = self._lineage(), RecoveryRequest.model_validate_json(call.body).dry_run
        return RecoveryView(lineage=before.lineage + 1, version=None if is_planned else before.version + 1,
                            recovered_at=None if is_planned else NOW, before=before)

    def _page(self, call: Call, items: list[Any], kind: type[BaseModel]) -> BaseModel:
        start, limit = int(call.query.get("cursor", ["0"])[0]), int(call.query.get("limit", ["100"])[0])
        more = start + limit < len(items)
        return Page[kind](data=items[start:start + limit],  # type: ignore[valid-type]
                          next_cursor=str(start + limit) if more else None)

    def _put_topology(self, call: Call, rest: list[str]) -> BaseModel:
        self.topology = TopologyDocument.model_validate_json(call.body)
        return self.topology

    def _get_teams(self, call: Call, rest: list[str]) -> BaseModel:
        if not rest:
            return self._page(call, self.teams, TeamView)
        team = self.team(rest[0].removesuffix("/keys"))
        return self._page(call, [key for key in self.keys if key.team_id == team.id], KeyView)

    def _post_teams(self, call: Call, rest: list[str]) -> BaseModel:
        body = json.loads(call.body)
        if rest:
            team = self.team(rest[0].removesuffix("/keys"))
            secret = ids.new_secret("sk_meridian_local")
            key = KeyCreated(id=f"key_{len(self.keys) + 1}", team_id=team.id, name=body["name"],
                             hint=ids.secret_hint(secret), scopes=[Scope(scope) for scope in body["scopes"]],
                             created_at=NOW, expires_at=body["expires_at"], revoked_at=None, secret=secret)
            self.keys.append(KeyView(**key.model_dump(exclude={"secret"})))
            return key
        if any(team.slug == body["slug"] for team in self.teams):
            raise Refuse(409, Problem(code="conflict", message=f"there is a team {body['slug']} already"))
        self.teams.append(TeamView(id=f"team_{len(self.teams) + 1}", slug=body["slug"], name=body["name"],
                                   created_at=NOW))
        return self.teams[-1]

    def _delete_key(self, call: Call, rest: list[str]) -> None:
        key = next((key for key in self.keys if key.id == rest[0]), None)
        if key is None:
            raise Refuse(404, Problem(code="not_found", message=f"there is no key {rest[0]}"))
        self.keys[self.keys.index(key)] = key.model_copy(update={"revoked_at": NOW})

    def _get_operations(self, call: Call, rest: list[str]) -> BaseModel:
        if not rest:
            wanted = call.query.get("state")
            found = [one for one in self.operations.values() if not wanted or one.state in wanted]
            return self._page(call, found, OperationView)
        return self._advance(self._operation(rest[0]))

    def _post_operations(self, call: Call, rest: list[str]) -> BaseModel:
        if rest:
            return self._steer(*rest[0].split("/"))
        request = OperationRequest.model_validate_json(call.body)
        plan = OperationPlan(
            kind=request.kind, subject=request.datacenter or "", datacenter=request.datacenter,
            traffic_state=TrafficState.ACTIVE, steps=STEPS,
            models=["sim/glm-5.3"], open_requests=14, refusal=None if request.force else self.refusal,
            remaining_datacenters={"sim/glm-5.3": [] if self.refusal else ["eu-north-1"]}, **self.plan)
        if request.dry_run or plan.refusal:
            return OperationAnswer(plan=plan, operation=None)
        return OperationAnswer(plan=plan, operation=self._start(request, call.headers["idempotency-key"]))

    def _steer(self, identifier: str, verb: str) -> OperationView:
        operation = self._operation(identifier)
        if operation.finished_at:
            raise Refuse(409, Problem(code="illegal_transition", message=f"{operation.id} has ended"))
        states = {"cancel": OperationState.CANCELLED, "pause": OperationState.PAUSED, "resume": OperationState.RUNNING,
                  "rollback": OperationState.ROLLING_BACK}
        return self._store(operation.model_copy(update={
            "state": states[verb], "finished_at": NOW if verb == "cancel" else None,
            "paused": "paused by operator:olga" if verb == "pause" else None}))

    def _automation(self, call: Call, rest: list[str]) -> AutomationView:
        if rest:
            asked = json.loads(call.body)
            until = NOW + timedelta(seconds=asked["ttl_s"]) if asked.get("ttl_s") else None
            self.automation = AutomationView(
                frozen=True, until=until, reason=asked["reason"], by="operator:olga") if rest == [
                    "freeze"] else AutomationView(frozen=False)
        return self.automation

    def _start(self, request: OperationRequest, key: str) -> OperationView:
        if key in self.by_key:
            return self.operations[self.by_key[key]]
        steps = [StepView(seq=seq, name=name, state=StepState.PENDING, detail="", started_at=None, finished_at=None)
                 for seq, name in enumerate(STEPS, 1)]
        operation = OperationView(
            id=f"op_{len(self.operations) + 1}", kind=request.kind, subject=request.datacenter or "",
            datacenter=request.datacenter, automatic=False, paused=None, state=OperationState.PLANNED,
            reason=request.reason, requested_by="optok_1", forced=request.force,
            created_at=NOW, finished_at=None, deadline_at=NOW + timedelta(seconds=request.deadline_s), error=None,
            steps=steps)
        self.by_key[key] = operation.id
        return self._store(operation)

    def _operation(self, identifier: str) -> OperationView:
        if identifier not in self.operations:
            raise Refuse(404, Problem(code="not_found", message=f"there is no operation {identifier}"))
        return self.operations[identifier]

    def _store(self, operation: OperationView) -> OperationView:
        self.operations[operation.id] = operation
        return operation

    def _advance(self, operation: OperationView) -> OperationView:
        if operation.finished_at or self.stuck:
            return operation
        steps = list(operation.steps)
        now = next((index for index, step in enumerate(steps) if step.state is not StepState.DONE), None)
        if now is None:
            error = None if self.ending is OperationState.SUCCEEDED else "the agent is away"
            return self._store(operation.model_copy(update={
                "state": self.ending, "finished_at": NOW + timedelta(seconds=75), "error": error}))
        following = StepState.DONE if steps[now].state is StepState.RUNNING else StepState.RUNNING
        steps[now] = steps[now].model_copy(update={
            "state": following, "started_at": NOW, "detail": "14 open" if now == 1 else "",
            "finished_at": NOW if following is StepState.DONE else None})
        return self._store(operation.model_copy(update={"state": OperationState.RUNNING, "steps": steps}))

    def _usage(self, call: Call, rest: list[str]) -> BaseModel:
        names = {"model": "sim/glm-5.3", "team": "local", "key": "key_1", "datacenter": "us-east-1"}
        row = UsageRow(**{group: names[group] for group in call.query["group_by"]}, requests=1_200,
                       prompt_tokens=1_234_567, cached_tokens=0, completion_tokens=4_096,
                       cost_usd=Decimal("0.7497514"))
        total = UsageRow(requests=2_400, prompt_tokens=2_469_134, cached_tokens=0, completion_tokens=8_192,
                         cost_usd=Decimal("1.4995028"))
        return UsageSummary.model_validate({
            "start": call.query["start"][0], "end": call.query["end"][0], "rows": [row, row], "total": total,
            "truncated": self.is_truncated})


class EdgeServer(Server):
    """An edge that says what it is told to say."""

    words: tuple[str, ...] = ("calm ", "harbour")

    def answer(self, call: Call) -> Raw:
        if call.headers.get("authorization") != f"Bearer {API_KEY}":
            error = {"message": "Incorrect API key provided", "type": "authentication_error", "code": "invalid_api_key"}
            return Raw(401, json.dumps({"error": error}).encode())
        usage = {"prompt_tokens": 16, "completion_tokens": 2, "total_tokens": 18, "cost": 0.0000140,
                 "prompt_tokens_details": {"cached_tokens": 8}}
        headers = {"x-request-id": "019ac7", "x-meridian-datacenter": "us-east-1"}
        if not json.loads(call.body).get("stream"):
            message = {"role": "assistant", "content": "".join(self.words)}
            whole = {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}], "usage": usage}
            return Raw(200, json.dumps(whole).encode(), headers)
        events: list[dict[str, Any]] = [{"choices": [{"index": 0, "delta": {"content": word}}]} for word in self.words]
        events += [{"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}, {"choices": [], "usage": usage}]
        return stream(events, end=True, headers=headers)


def stream(events: list[dict[str, Any]], end: bool, headers: dict[str, str] | None = None, cut: bool = False) -> Raw:
    """Events as a server-sent stream."""
    lines = [": keep-alive", *(f"data: {json.dumps(event)}" for event in events), *(["data: [DONE]"] if end else [])]
    return Raw(200, "".join(f"{line}\n\n" for line in lines).encode(),
               {"content-type": "text/event-stream", **(headers or {})}, cut)

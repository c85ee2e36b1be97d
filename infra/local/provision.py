"""Fills a fresh control plane through the operator API, like any operator would; everything may be repeated.

Only the very first operator token cannot come from the API: `meridian bootstrap` prints it.
"""

import asyncio
import json
import subprocess
from decimal import Decimal
from types import TracebackType
from typing import Self, TypeVar

import httpx
from pydantic import BaseModel, ValidationError

from control_plane.contracts.billing import BillingRequest, CreditRequest, CreditView
from control_plane.contracts.enrolment import IdentityKind
from control_plane.contracts.keys import Scope
from control_plane.contracts.money import BillingMode
from control_plane.contracts.operator import (
    EnrolmentTokenCreated,
    EnrolmentTokenRequest,
    KeyCreated,
    KeyRequest,
    KeyView,
    Page,
    StatusView,
    TeamRequest,
)
from control_plane.contracts.override_keys import OperatorKeyRequest
from control_plane.contracts.problem import Problem
from control_plane.contracts.signing import SigningKey, write_private
from infra.local import child, history
from infra.local.child import ProcessSpec
from infra.local.errors import StackRefused
from infra.local.layout import Layout, Secrets
from infra.local.processes import enrolment_file
from infra.local.shape import TEAM, Shape, fleet_id, topology

DEADLINE_S = 15.0
ATTEMPTS = 5
PAUSE_S = 0.2
BOOTSTRAP_DEADLINE_S = 60.0
KEY_NAME = "local"
CREDIT_USD = Decimal(1_000)
OPERATOR_KEY_NAME = "local-operator"

Answer = TypeVar("Answer", bound=BaseModel)


class OperatorApi:
    """The operator API of one replica, with a deadline and a few attempts for each call."""

    def __init__(self, url: str, token: str) -> None:
        self._client = httpx.AsyncClient(
            base_url=url, timeout=DEADLINE_S, trust_env=False, headers={"authorization": f"Bearer {token}"})

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None,
                        trace: TracebackType | None) -> None:
        await self._client.aclose()

    async def status(self) -> StatusView:
        """What the control plane observes."""
        return _parse(await self._send("GET", "/operator/v1/status"), StatusView)

    async def declare(self, shape: Shape) -> None:
        """Applies the topology document."""
        await self._send("PUT", "/operator/v1/topology", topology(shape))

    async def ensure_team(self) -> None:
        """Makes the team unless it exists."""
        await self._send("POST", "/operator/v1/teams", TeamRequest(name="Local", slug=TEAM), accept=(409,))

    async def ensure_credit(self) -> None:
        """Makes the team prepaid and gives it credit, once: an operator may have changed either since."""
        credits = f"/operator/v1/teams/{TEAM}/credits?limit=1"
        if _parse(await self._send("GET", credits), Page[CreditView]).data:
            return
        await self._send("PUT", f"/operator/v1/teams/{TEAM}/billing", BillingRequest(mode=BillingMode.PREPAID))
        await self._send("POST", f"/operator/v1/teams/{TEAM}/credits",
                         CreditRequest(amount_usd=CREDIT_USD, reason="local stack"), key="local-stack")

    async def ensure_key(self, known: Secrets) -> tuple[str, str]:
        """The id and secret of the stack's key: the known one while it is valid, else a new one."""
        path = f"/operator/v1/teams/{TEAM}/keys"
        cursor: str | None = ""
        while known.api_key and cursor is not None:
            query = f"?limit=100&cursor={cursor}" if cursor else "?limit=100"
            page = _parse(await self._send("GET", path + query), Page[KeyView])
            if any(key.id == known.api_key_id and key.revoked_at is None for key in page.data):
                return known.api_key_id, known.api_key
            cursor = page.next_cursor
        request = KeyRequest(name=KEY_NAME, scopes=[Scope.INFERENCE, Scope.USAGE_READ])
        created = _parse(await self._send("POST", path, request), KeyCreated)
        return created.id, created.secret

    async def ensure_operator_key(self, public_key: str) -> None:
        """Has edges believe the stack's own operator when the control plane is off."""
        await self._send("POST", "/operator/v1/operator-keys",
                         OperatorKeyRequest(name=OPERATOR_KEY_NAME, public_key=public_key), accept=(409,))

    async def enrolment_token(self, kind: IdentityKind, subject: str) -> str:
        """A one-time token."""
        request = EnrolmentTokenRequest(kind=kind, subject=subject)
        return _parse(await self._send("POST", "/operator/v1/enrolment-tokens", request), EnrolmentTokenCreated).token

    async def _send(self, method: str, path: str, body: BaseModel | None = None,
                    accept: tuple[int, ...] = (), key: str = "") -> httpx.Response:
        content = body.model_dump_json() if body is not None else None
        headers = {"content-type": "application/json"} if content is not None else {}
        if key:
            headers["idempotency-key"] = key
        fault = ""
        for _ in range(ATTEMPTS):
            try:
                answer = await self._client.request(method, path, content=content, headers=headers)
            except httpx.TransportError as error:
                fault = type(error).__name__
            else:
                if answer.is_success or answer.status_code in accept:
                    return answer
                fault = f"HTTP {answer.status_code}: {_message(answer)}"
                if answer.status_code < 500:
                    break
            await asyncio.sleep(PAUSE_S)
        raise StackRefused(f"the control plane did not accept {method} {path} ({fault}); see "
                           "logs/control-plane-0.log in the state directory")


async def provision(api: OperatorApi, layout: Layout, shape: Shape, secrets: Secrets) -> Secrets:
    """Declares the topology, the team with its credit, and its key, and leaves a fresh enrolment token for every agent
    and edge: one that the control plane does not know, because its database was lost, enrols with it again. Nobody of
    them runs yet."""
    await asyncio.gather(api.declare(shape), api.ensure_team())
    await api.ensure_credit()
    await api.ensure_operator_key(SigningKey.load_or_create(layout.override_key).public.text)
    history.forget_lost(layout, shape, await api.status())
    key_id, secret = await api.ensure_key(secrets)
    provisioned = secrets.model_copy(update={"api_key_id": key_id, "api_key": secret})
    layout.write_secrets(provisioned)
    agents = ((IdentityKind.AGENT, fleet_id(name), layout.agent(name)) for name in shape.datacenters)
    edges = ((IdentityKind.EDGE, shape.edge_region(index), layout.edge(index)) for index in range(shape.edge_count))
    for kind, subject, state_dir in (*agents, *edges):
        state_dir.mkdir(parents=True, exist_ok=True)
        write_private(enrolment_file(state_dir), (await api.enrolment_token(kind, subject)).encode())
    return provisioned


def bootstrap(spec: ProcessSpec) -> str:
    """An operator token with every scope, from `meridian bootstrap`; blocks. Raises StackRefused when it fails."""
    with spec.log_path.open("ab") as log:
        try:
            done = subprocess.run(
                spec.argv, env=spec.env, cwd=spec.cwd, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log,
                start_new_session=True, timeout=BOOTSTRAP_DEADLINE_S, check=False)
        except subprocess.TimeoutExpired as error:
            raise StackRefused(f"'meridian bootstrap' did not end within {BOOTSTRAP_DEADLINE_S:.0f} s") from error
    try:
        return str(json.loads(done.stdout)["token"])
    except (ValueError, KeyError, TypeError) as error:
        raise StackRefused(f"'meridian bootstrap' failed: {child.log_tail(spec.log_path)}") from error


def _parse(response: httpx.Response, answer: type[Answer]) -> Answer:
    try:
        return answer.model_validate_json(response.content)
    except ValidationError as error:
        path = response.request.url.path
        raise StackRefused(f"the control plane's answer to {path} is not of this release") from error


def _message(response: httpx.Response) -> str:
    try:
        return Problem.model_validate_json(response.content).message
    except ValidationError:
        return "no reason given"

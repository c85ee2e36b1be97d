"""One replica of the control plane on a real database, without a socket: what tests speak to it with."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from fastapi import FastAPI

from control_plane.app import build_app
from control_plane.billing import service as billing
from control_plane.context import AppContext
from control_plane.contracts.clock import Clock
from control_plane.contracts.enrolment import EnrolAnswer, EnrolRequest, IdentityKind
from control_plane.contracts.keys import Scope
from control_plane.contracts.operator import (
    EnrolmentTokenRequest,
    KeyCreated,
    KeyRequest,
    OperatorScope,
    OperatorTokenRequest,
    TeamRequest,
    TeamView,
)
from control_plane.contracts.signing import SignedRequest, SigningKey
from control_plane.contracts.topology import PriceDocument
from control_plane.identity import service as identity
from control_plane.settings import Settings
from control_plane.tenancy import service as tenancy

JSON = {"content-type": "application/json"}
MODEL = "sim/glm-5.3"
PRICE = PriceDocument(
    version="pv_1", input_usd="0.0000006", cached_input_usd="0.00000011", output_usd="0.0000022")


@dataclass(frozen=True)
class Peer:
    """An enrolled machine and its private key."""

    identity: str
    key: SigningKey


@dataclass(frozen=True)
class Replica:
    """A running replica and a client of it."""

    app: FastAPI
    context: AppContext
    client: httpx.AsyncClient

    async def operator(self, *scopes: OperatorScope) -> dict[str, str]:
        """Headers of a new operator with `scopes`, all by default."""
        asked = OperatorTokenRequest(name="olga", scopes=list(scopes or OperatorScope))
        async with self.context.db.begin() as session:
            made = await identity.create_operator_token(session, asked, "local", "test")
        return bearer(made.token)

    async def enrolment_token(self, kind: IdentityKind, subject: str, ttl_s: int = 3_600) -> str:
        """A fresh one-time token."""
        asked = EnrolmentTokenRequest(kind=kind.value, subject=subject, ttl_s=ttl_s)
        async with self.context.db.begin() as session:
            return (await identity.create_enrolment_token(session, asked, "local", "test")).token

    async def enrolled(self, kind: IdentityKind, subject: str = "us-east-1") -> Peer:
        """A new machine, enrolled through the API."""
        key = SigningKey.generate()
        asked = EnrolRequest(
            token=await self.enrolment_token(kind, subject), kind=kind, public_key=key.public.text)
        answer = await self.client.post("/enrol/v1", content=asked.model_dump_json())
        assert answer.status_code == 200, answer.text
        return Peer(EnrolAnswer.model_validate_json(answer.content).identity, key)

    async def signed(self, peer: Peer, path: str, body: bytes) -> httpx.Response:
        """POSTs `body`, signed by `peer`."""
        headers = SignedRequest("POST", path, body).sign(peer.identity, peer.key, self.context.clock)
        return await self.client.post(path, content=body, headers=headers)

    async def team(self, slug: str = "acme") -> TeamView:
        """A new team."""
        async with self.context.db.begin() as session:
            return await tenancy.create_team(session, TeamRequest(name=slug.title(), slug=slug), "test")

    async def key(self, team_id: str, *scopes: Scope, **options: Any) -> KeyCreated:
        """A new key of the team, for inference by default."""
        asked = KeyRequest(name="ci", scopes=list(scopes or [Scope.INFERENCE]), **options)
        async with self.context.db.begin() as session:
            team = await tenancy.team_named(session, team_id)
            return await tenancy.create_key(session, team, asked, "local", "test")

    async def price(self, price: PriceDocument = PRICE, model_id: str = MODEL) -> None:
        """Makes sure that a price is stored."""
        async with self.context.db.begin() as session:
            await billing.ensure_price(session, model_id, price)


def bearer(token: str) -> dict[str, str]:
    """The header that carries `token`."""
    return {"authorization": f"Bearer {token}"}


@asynccontextmanager
async def running_replica(database_url: str, directory: Path, clock: Clock | None = None,
                          **settings: Any) -> AsyncIterator[Replica]:
    """A replica that started as it does in production, migrations and loops included."""
    chosen = Settings(database_url=database_url, signing_key_file=directory / "snapshot.key", **settings)
    app = build_app(chosen, clock)
    async with app.router.lifespan_context(app):
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://control-plane", headers=JSON) as client:
            yield Replica(app, app.state.context, client)

"""A replica with an edge, a team, its key and a price, and what money tests say to it."""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import httpx
import pytest

from control_plane.contracts import ids
from control_plane.contracts.enrolment import IdentityKind
from control_plane.contracts.keys import LimitScope
from control_plane.contracts.money import (
    NANO_USD,
    Interval,
    LeaseAsk,
    LeaseGrant,
    MoneyLeaseAnswer,
    MoneyLeaseRequest,
)
from control_plane.contracts.usage import UsageRecord
from tests.integration.control_plane.replica import PRICE, Peer, Replica
from tests.unit.control_plane.usage.frames import Maker, batch

LEASES = "/edge/v1/money/leases"
OPERATOR = "/operator/v1"


@dataclass(frozen=True)
class Money:
    """What money tests speak to."""

    replica: Replica
    edge: Peer
    maker: Maker
    operator: dict[str, str]

    @property
    def team(self) -> tuple[LimitScope, str]:
        return LimitScope.TEAM, self.maker.team_id

    @property
    def key(self) -> tuple[LimitScope, str]:
        return LimitScope.KEY, self.maker.key_id

    @property
    def now_s(self) -> float:
        return self.replica.context.clock.time_s()

    async def post(self, request: MoneyLeaseRequest, edge: Peer | None = None) -> httpx.Response:
        return await self.replica.signed(edge or self.edge, LEASES, request.model_dump_json().encode())

    async def lease(self, *asks: LeaseAsk, close: Sequence[str] = (), boot_id: str = "boot-1", shipped: bool = False,
                    edge: Peer | None = None) -> list[LeaseGrant]:
        """Asks for leases as this edge, or another."""
        answer = await self.post(MoneyLeaseRequest(
            boot_id=boot_id, open=list(asks), close=list(close), earlier_boots_shipped=shipped), edge)
        assert answer.status_code == 200, answer.text
        return MoneyLeaseAnswer.model_validate_json(answer.content).grants

    async def spend(self, cost_usd: str | Decimal, time_s: float | None = None, edge: Peer | None = None,
                    maker: Maker | None = None) -> UsageRecord:
        """Ships a record that costs exactly so much: a multiple of PRICE's input price."""
        tokens, rest = divmod(Decimal(cost_usd), PRICE.input_usd)
        assert not rest
        record = (maker or self.maker).record(
            self.now_s if time_s is None else time_s, prompt_tokens=int(tokens), cached_tokens=0, completion_tokens=0,
            reasoning_tokens=0)
        answer = await self.replica.signed(edge or self.edge, "/edge/v1/usage", batch(record))
        assert answer.json() == {"verdicts": ["stored"]}, answer.text
        return record

    async def order(self, method: str, path: str, body: dict[str, Any] | None = None, **headers: str) -> Any:
        """What the operator API answers; it must accept."""
        answer = await self.ask(method, path, body, **headers)
        assert answer.is_success, answer.text
        return answer.json() if answer.content else None

    async def ask(self, method: str, path: str, body: dict[str, Any] | None = None, **headers: str) -> httpx.Response:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return await self.replica.client.request(method, OPERATOR + path, json=body, headers=self.operator | named)

    async def prepaid(self, credit_usd: str, overdraft_usd: str = "0") -> None:
        """Makes the team prepaid, with a balance."""
        await self.order("PUT", "/teams/acme/billing", {"mode": "prepaid", "overdraft_usd": overdraft_usd})
        await self.order("POST", "/teams/acme/credits", {"amount_usd": credit_usd, "reason": "test"})

    async def budget(self, limit_usd: str, interval: Interval = Interval.DAILY,
                     scope: tuple[LimitScope, str] | None = None) -> None:
        """Sets a budget, of the key unless another scope is named."""
        kind, scope_id = scope or self.key
        await self.order("PUT", f"/budgets/{kind}/{scope_id}/{interval}", {"limit_usd": limit_usd})

    async def rows(self, statement: str) -> Sequence[Any]:
        async with self.replica.context.db.engine.connect() as connection:
            return (await connection.exec_driver_sql(statement)).all()


def ask(scope: tuple[LimitScope, str], want_usd: str | Decimal, at_least_usd: str | Decimal = "0",
        lease_id: str = "") -> LeaseAsk:
    """An ask in dollars."""
    return LeaseAsk(
        lease_id=lease_id or ids.new_id("lease"), scope=scope[0], scope_id=scope[1],
        want_nusd=int(Decimal(want_usd) * NANO_USD), at_least_nusd=int(Decimal(at_least_usd) * NANO_USD))


def usd(grant: LeaseGrant) -> Decimal:
    """What was granted, in dollars."""
    return Decimal(grant.granted_nusd) / NANO_USD


@pytest.fixture
async def money(replica: Replica) -> Money:
    """A replica with a team that nothing limits yet."""
    team = await replica.team()
    key = await replica.key(team.id)
    await replica.price()
    edge = await replica.enrolled(IdentityKind.EDGE)
    return Money(replica, edge, Maker(team.id, key.id), await replica.operator())

"""Random walks: edges borrow, spend, ship, crash and repeat themselves; what they spend never exceeds the limit."""

import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from decimal import Decimal

import pytest

from control_plane.contracts.enrolment import IdentityKind
from control_plane.contracts.money import MoneyLeaseAnswer, MoneyLeaseRequest
from control_plane.contracts.usage import UsageRecord
from tests.integration.control_plane.billing.conftest import Money, ask
from tests.integration.control_plane.replica import Peer
from tests.unit.control_plane.usage.frames import batch

UNIT_USD = Decimal("0.03")
UNIT_NUSD = 30_000_000
LIMIT_USD = Decimal("1.5")
STEPS = 120


@dataclass
class Block:
    """A lease as its edge sees it; it may be closed once `unshipped` is empty."""

    left_nusd: int
    unshipped: set[str] = field(default_factory=set)


@dataclass
class WalkingEdge:
    """An edge that does what edges do, in an order that chance decides. The outbox outlives a crash, leases do not."""

    money: Money
    peer: Peer
    chance: random.Random
    boot: int = 1
    blocks: dict[str, Block] = field(default_factory=dict)
    outbox: dict[str, UsageRecord] = field(default_factory=dict)
    sent: list[MoneyLeaseRequest] = field(default_factory=list)
    served: int = 0
    refused: int = 0

    async def borrow(self) -> None:
        wanted = ask(self.money.key, UNIT_USD * self.chance.randint(1, 40), UNIT_USD)
        answer = await self.send(MoneyLeaseRequest(boot_id=f"boot-{self.boot}", open=[wanted]))
        if granted_nusd := answer.grants[0].granted_nusd:
            self.blocks[wanted.lease_id] = Block(granted_nusd)
        else:
            self.refused += 1

    async def spend(self) -> None:
        """Serves a request that costs one unit, from any block that holds it."""
        rich = [block for block in self.blocks.values() if block.left_nusd >= UNIT_NUSD]
        if rich:
            block, self.served = self.chance.choice(rich), self.served + 1
            name = f"{self.served:04}"
            self.outbox[name] = self.money.maker.record(
                self.money.now_s, prompt_tokens=50_000, cached_tokens=0, completion_tokens=0, reasoning_tokens=0)
            block.left_nusd -= UNIT_NUSD
            block.unshipped.add(name)

    async def ship(self) -> None:
        """Ships half of the outbox, and now and then forgets that it did: it will come again."""
        names = self.chance.sample(sorted(self.outbox), (len(self.outbox) + 1) // 2)
        if not names:
            return
        answer = await self.money.replica.signed(
            self.peer, "/edge/v1/usage", batch(*(self.outbox[name] for name in names)))
        assert set(answer.json()["verdicts"]) <= {"stored", "duplicate"}
        if self.chance.random() < 0.8:
            for name in names:
                del self.outbox[name]
                for block in self.blocks.values():
                    block.unshipped.discard(name)

    async def close(self) -> None:
        """Gives back what is settled and shipped."""
        closing = [lease_id for lease_id, block in self.blocks.items() if not block.unshipped]
        for lease_id in closing:
            del self.blocks[lease_id]
        await self.send(MoneyLeaseRequest(boot_id=f"boot-{self.boot}", close=closing))

    async def crash(self) -> None:
        """A new boot, which says that the earlier ones are shipped once they are."""
        self.boot, self.blocks = self.boot + 1, {}
        while self.outbox:
            await self.ship()
        await self.send(MoneyLeaseRequest(boot_id=f"boot-{self.boot}", earlier_boots_shipped=True))

    async def repeat(self) -> None:
        """An old message arrives once more; nobody hears the answer."""
        if self.sent:
            await self.money.post(self.chance.choice(self.sent), self.peer)

    async def send(self, request: MoneyLeaseRequest) -> MoneyLeaseAnswer:
        self.sent.append(request)
        answer = await self.money.post(request, self.peer)
        assert answer.status_code == 200, answer.text
        return MoneyLeaseAnswer.model_validate_json(answer.content)

    def steps(self) -> list[Callable[[], Awaitable[None]]]:
        return self.chance.choices(
            [self.borrow, self.spend, self.ship, self.close, self.crash, self.repeat], [10, 40, 10, 10, 1, 5], k=STEPS)


async def spent_usd(money: Money, edges: list[WalkingEdge]) -> Decimal:
    """What was booked, and what lies in outboxes and was not booked."""
    booked = dict(await money.rows("SELECT id, cost_usd FROM usage_record"))
    waiting = {record.request_id: Decimal(record.cost_usd) for edge in edges for record in edge.outbox.values()}
    return sum((waiting | booked).values(), Decimal(0))


@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_no_order_of_borrowing_spending_shipping_and_crashing_exceeds_a_budget(money: Money, seed: int) -> None:
    await money.budget(str(LIMIT_USD))
    chance = random.Random(seed)
    peers = [money.edge, await money.replica.enrolled(IdentityKind.EDGE, "eu-north-1")]
    edges = [WalkingEdge(money, peer, random.Random(chance.random())) for peer in peers]
    for steps in zip(*(edge.steps() for edge in edges), strict=True):
        for step in steps:
            await step()
        assert await spent_usd(money, edges) <= LIMIT_USD
    assert await spent_usd(money, edges) > LIMIT_USD / 2
    assert any(edge.refused for edge in edges)


async def test_after_all_is_shipped_and_given_back_the_whole_rest_can_be_lent(money: Money) -> None:
    await money.budget(str(LIMIT_USD))
    edge = WalkingEdge(money, money.edge, random.Random(9))
    for step in edge.steps():
        await step()
    await edge.crash()
    rest_usd = LIMIT_USD - await spent_usd(money, [edge])
    (grant,) = await money.lease(ask(money.key, rest_usd, rest_usd), boot_id=f"boot-{edge.boot}")
    assert grant.granted_nusd == int(rest_usd * 10**9)

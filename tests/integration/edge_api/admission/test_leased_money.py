"""Money leased over real HTTP: never more than there is, given back in time, and honest when nobody can say."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from control_plane.contracts.clock import SystemClock
from control_plane.contracts.keys import LimitScope
from control_plane.contracts.money import MAX_LEASES, NANO_USD, LeaseGrant, MoneyRefusalReason
from edge_api.admission import money
from edge_api.errors import Refusal
from edge_api.hot.services import Grant
from edge_api.metering.frames import Position
from tests.integration.edge_api.admission.places import Edge, MoneyCounter, edge, money_counter
from tests.integration.edge_api.waiting import until
from tests.unit.edge_api.admission.parts import need, principal

CENT = NANO_USD // 100
TEAM = principal(money=[LimitScope.TEAM])


@pytest.fixture
async def counter() -> AsyncIterator[MoneyCounter]:
    async with money_counter(balance_nusd=NANO_USD) as counter:
        yield counter


@pytest.fixture
async def one(counter: MoneyCounter) -> AsyncIterator[Edge]:
    async with edge(None, control_plane_url=counter.url) as one:
        yield one


def ship(one: Edge) -> None:
    """The outbox is shipped as far as it goes."""
    one.shipped = one.written


def spend(one: Edge, granted: Grant, cost_nusd: int) -> None:
    """The request ends; its record is written, and not shipped yet."""
    one.written = Position(1, one.written.offset + 100)
    granted.settle(5, cost_nusd)
    granted.release()


async def test_the_worst_case_is_leased_before_a_request_is_let_in(counter: MoneyCounter, one: Edge) -> None:
    await one.admit(need(TEAM, cost_nusd=5 * CENT))
    assert counter.lent_nusd >= 5 * CENT


async def test_200_at_once_reserve_no_more_than_there_is(counter: MoneyCounter, one: Edge) -> None:
    granted = await asyncio.gather(*(one.try_admit(need(TEAM, cost_nusd=3 * CENT)) for _ in range(200)))
    assert sum(grant is not None for grant in granted) == 33
    assert one.refused == {"insufficient_funds": 167}
    assert counter.lent_nusd <= NANO_USD


async def test_of_eight_at_once_with_money_for_one_one_is_let_in(counter: MoneyCounter, one: Edge) -> None:
    granted = await asyncio.gather(*(one.try_admit(need(TEAM, cost_nusd=NANO_USD)) for _ in range(8)))
    assert sum(grant is not None for grant in granted) == 1


async def test_many_waiting_requests_share_few_asks(counter: MoneyCounter, one: Edge) -> None:
    counter.balance_nusd = 1000 * NANO_USD
    await asyncio.gather(*(one.admit(need(TEAM, cost_nusd=CENT)) for _ in range(200)))
    assert counter.asks <= 4


async def test_two_edges_together_spend_no_more_than_there_is(counter: MoneyCounter, one: Edge) -> None:
    async with edge(None, control_plane_url=counter.url, name="edge_2") as other:
        granted = await asyncio.gather(*(
            (one, other)[at % 2].try_admit(need(TEAM, cost_nusd=CENT)) for at in range(200)))
        reserved = sum(grant is not None for grant in granted)
        assert 90 <= reserved <= 100
        assert counter.lent_nusd <= NANO_USD


async def test_a_leased_block_is_spent_without_asking(counter: MoneyCounter, one: Edge) -> None:
    counter.balance_nusd = 1000 * NANO_USD
    for _ in range(300):
        spend(one, await one.admit(need(TEAM, cost_nusd=5 * CENT)), CENT)
    assert counter.asks <= 10


async def test_what_a_request_did_not_cost_may_be_spent_again(counter: MoneyCounter, one: Edge) -> None:
    for _ in range(30):
        spend(one, await one.admit(need(TEAM, cost_nusd=50 * CENT)), 1 * CENT)
    assert counter.lent_nusd <= NANO_USD


async def test_a_lease_is_refilled_before_it_is_used_up(counter: MoneyCounter, one: Edge) -> None:
    counter.balance_nusd = 1000 * NANO_USD
    waited = 0
    for _ in range(200):
        if (granted := one.parts.gate.admit_now(need(TEAM, cost_nusd=CENT))) is None:
            waited += 1
            granted = await one.admit(need(TEAM, cost_nusd=CENT))
        spend(one, granted, CENT)
        await asyncio.sleep(0.003)
    assert waited <= 3


async def test_at_any_moment_about_ten_minutes_of_what_is_spent_are_left(counter: MoneyCounter, one: Edge) -> None:
    """So an edge that lost its control plane goes on for as long, however short it was there before."""
    counter.balance_nusd = 100_000 * NANO_USD
    for _ in range(20):
        spend(one, await one.admit(need(TEAM, cost_nusd=CENT)), CENT)
        await asyncio.sleep(0.1)
    counter.status = 503
    for _ in range(20 * 50):  # at the pace of those two seconds that is more than a minute, taken for ten of them
        spend(one, await one.admit(need(TEAM, cost_nusd=CENT)), CENT)


async def test_a_refusal_has_the_agreed_body(counter: MoneyCounter, one: Edge) -> None:
    with pytest.raises(Refusal) as refused:
        await one.admit(need(TEAM, cost_nusd=2 * NANO_USD))
    assert refused.value.status == 402
    assert refused.value.body() == (
        b'{"error":{"message":"Insufficient balance (including overdraft). Please add funds to continue.",'
        b'"type":"insufficient_quota","param":null,"code":"insufficient_funds"}}')
    assert (b"x-should-retry", b"false") in refused.value.headers()


async def test_a_budget_says_which_and_when_it_begins_anew(counter: MoneyCounter, one: Edge) -> None:
    counter.refusal = LeaseGrant(
        lease_id="", granted_nusd=0, left_nusd=0, reason=MoneyRefusalReason.BUDGET_EXCEEDED, interval="daily",
        resets_at_s=1_800_057_600.0)
    with pytest.raises(Refusal) as refused:
        await one.admit(need(principal(money=[LimitScope.KEY]), cost_nusd=2 * NANO_USD))
    assert (refused.value.status, refused.value.fault.code) == (402, "budget_exceeded")
    assert refused.value.metadata == {"scope": "key", "interval": "daily", "resets_at": "2027-01-16T00:00:00Z"}


async def test_a_refusal_is_remembered_for_a_second(
        counter: MoneyCounter, one: Edge, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(money, "REFUSED_S", 0.4)
    for _ in range(100):
        assert await one.try_admit(need(TEAM, cost_nusd=2 * NANO_USD)) is None
    assert counter.asks == 1
    await asyncio.sleep(0.5)
    counter.balance_nusd = 5 * NANO_USD
    assert await one.try_admit(need(TEAM, cost_nusd=2 * NANO_USD)) is not None


async def test_a_smaller_request_is_let_in_where_a_larger_one_was_refused(counter: MoneyCounter, one: Edge) -> None:
    assert await one.try_admit(need(TEAM, cost_nusd=2 * NANO_USD)) is None
    assert await one.try_admit(need(TEAM, cost_nusd=NANO_USD // 2)) is not None


async def test_with_the_control_plane_away_what_is_leased_is_spent_and_then_it_is_503(
        counter: MoneyCounter, one: Edge) -> None:
    await one.admit(need(TEAM, cost_nusd=10 * CENT))
    leased = counter.lent_nusd
    assert leased > 10 * CENT
    counter.status = 503
    assert await one.try_admit(need(TEAM, cost_nusd=leased - 10 * CENT)) is not None
    with pytest.raises(Refusal) as refused:
        await one.admit(need(TEAM, cost_nusd=CENT))
    assert (refused.value.status, refused.value.fault.code) == (503, "admission_unavailable")
    assert (b"x-should-retry", b"true") in refused.value.headers()


async def test_a_silent_control_plane_is_waited_for_two_seconds_at_most(counter: MoneyCounter, one: Edge) -> None:
    counter.delay_s = 5.0
    clock = SystemClock()
    started_s = clock.monotonic_s()
    assert await one.try_admit(need(TEAM, cost_nusd=CENT)) is None
    assert clock.monotonic_s() - started_s < 2.3
    for _ in range(50):
        assert await one.try_admit(need(TEAM, cost_nusd=CENT)) is None
    assert clock.monotonic_s() - started_s < 2.5
    assert counter.asks == 1
    counter.delay_s = 0.0


async def test_a_lease_whose_answer_was_lost_is_found_again(counter: MoneyCounter, one: Edge) -> None:
    await until(lambda: counter.requests)
    counter.loses_answers = 1
    assert await one.try_admit(need(TEAM, cost_nusd=CENT)) is None
    await asyncio.sleep(1.3)
    assert await one.try_admit(need(TEAM, cost_nusd=CENT)) is not None
    assert len(counter.open) == 1


async def test_a_used_up_lease_is_closed_once_its_records_are_shipped(counter: MoneyCounter, one: Edge) -> None:
    spend(one, await one.admit(need(TEAM, cost_nusd=NANO_USD)), NANO_USD)
    await asyncio.sleep(0.6)
    assert counter.closed == []
    ship(one)
    await until(lambda: counter.closed)
    assert counter.lent_nusd == 0


async def test_a_lease_is_not_closed_while_a_request_spends_it(counter: MoneyCounter, one: Edge) -> None:
    granted = await one.admit(need(TEAM, cost_nusd=NANO_USD))
    await asyncio.sleep(0.6)
    assert counter.closed == []
    granted.release()


async def test_an_idle_lease_is_given_back(
        counter: MoneyCounter, one: Edge, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(money, "IDLE_S", 0.3)
    spend(one, await one.admit(need(TEAM, cost_nusd=CENT)), CENT)
    ship(one)
    await until(lambda: counter.lent_nusd == 0)
    assert counter.closed


async def test_where_money_is_scarce_an_idle_lease_goes_back_soon(
        counter: MoneyCounter, one: Edge, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(money, "SCARCE_IDLE_S", 0.3)
    granted = [await one.admit(need(TEAM, cost_nusd=60 * CENT)), await one.admit(need(TEAM, cost_nusd=10 * CENT))]
    for grant in granted:
        spend(one, grant, CENT)
    ship(one)
    async with edge(None, control_plane_url=counter.url, name="edge_2") as other:
        assert await other.try_admit(need(TEAM, cost_nusd=90 * CENT)) is None
        await until(lambda: counter.lent_nusd == 0)
        counter.booked_nusd = 2 * CENT
        await asyncio.sleep(money.REFUSED_S * 1.3)
        assert await other.try_admit(need(TEAM, cost_nusd=90 * CENT)) is not None


async def test_money_that_is_lent_and_booked_at_once_is_no_reason_to_refuse(counter: MoneyCounter, one: Edge) -> None:
    """A spent lease counts twice until it is closed."""
    spend(one, await one.admit(need(TEAM, cost_nusd=60 * CENT)), 30 * CENT)
    counter.booked_nusd = 30 * CENT
    asyncio.get_running_loop().call_later(0.4, ship, one)
    assert await one.try_admit(need(TEAM, cost_nusd=65 * CENT)) is not None


async def test_all_of_a_balance_can_be_spent_by_one_request_after_the_other(counter: MoneyCounter, one: Edge) -> None:
    spent = 0
    for _ in range(40):
        granted = await one.try_admit(need(TEAM, cost_nusd=10 * CENT))
        if granted is None:
            break
        spend(one, granted, 5 * CENT)
        spent += 5 * CENT
        ship(one)
        counter.booked_nusd = spent
    assert NANO_USD - 10 * CENT < spent <= NANO_USD


async def test_what_an_earlier_boot_borrowed_is_freed_once_what_it_left_is_shipped(counter: MoneyCounter) -> None:
    async with edge(None, "boot_1", control_plane_url=counter.url) as first:
        await first.admit(need(TEAM, cost_nusd=NANO_USD))
        async with edge(None, "boot_2", control_plane_url=counter.url) as second:
            ship(second)
            await until(lambda: counter.lent_nusd == 0)


async def test_earlier_boots_are_not_freed_before(counter: MoneyCounter) -> None:
    counter.open["lease_old"] = ("edge_1", "boot_0", 5 * CENT)
    async with edge(None, "boot_1", control_plane_url=counter.url) as one:
        one.shipped = Position(0, 50)
        await asyncio.sleep(0.6)
        assert counter.lent_nusd == 5 * CENT
        ship(one)
        await until(lambda: counter.lent_nusd == 0)
        told = [request for request in counter.requests if request.earlier_boots_shipped]
        await asyncio.sleep(0.6)
        assert len([request for request in counter.requests if request.earlier_boots_shipped]) == len(told) == 1


async def test_an_edge_that_ends_gives_its_leases_back(counter: MoneyCounter) -> None:
    async with edge(None, control_plane_url=counter.url) as one:
        spend(one, await one.admit(need(TEAM, cost_nusd=CENT)), CENT)
        ship(one)
    assert counter.lent_nusd == 0


async def test_leases_that_are_not_ours_any_more_do_not_stop_new_ones(counter: MoneyCounter, one: Edge) -> None:
    spend(one, await one.admit(need(TEAM, cost_nusd=NANO_USD)), NANO_USD)
    counter.open.clear()
    counter.status = 409
    ship(one)
    await until(lambda: one.parts.bank.account(LimitScope.TEAM, "team_1").purse.leases == [])
    counter.status = 200
    assert await one.try_admit(need(TEAM, cost_nusd=CENT)) is not None


async def test_many_leases_are_asked_for_and_closed_in_bounded_messages(counter: MoneyCounter, one: Edge) -> None:
    counter.balance_nusd = 10_000 * NANO_USD
    keys = [principal(money=[LimitScope.KEY], key_id=f"key_{at}") for at in range(500)]
    await asyncio.gather(*(one.admit(need(who, cost_nusd=CENT)) for who in keys))
    assert counter.asks == 500
    assert max(len(request.open) for request in counter.requests) <= MAX_LEASES


async def test_metrics_say_how_much_is_leased(counter: MoneyCounter, one: Edge) -> None:
    await one.admit(need(TEAM, cost_nusd=CENT))
    await until(lambda: one.figure("money_leased_nanodollars") == counter.lent_nusd > 0)
    assert one.figure("money_lease_asks_total", result="granted") == counter.asks

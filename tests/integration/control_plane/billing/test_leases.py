"""Money leases: never more lent than is left, whoever asks how often and in which order."""

import asyncio
from decimal import Decimal

import pytest

from control_plane.billing import service as billing
from control_plane.billing.lease import nano
from control_plane.billing.standing import Standing
from control_plane.contracts.clock import utc
from control_plane.contracts.enrolment import IdentityKind
from control_plane.contracts.keys import LimitScope
from control_plane.contracts.money import NANO_USD, Interval, MoneyLeaseRequest, MoneyRefusalReason
from tests.integration.control_plane.billing.conftest import Money, ask, usd


async def test_nobody_limits_a_postpaid_team(money: Money) -> None:
    (grant,) = await money.lease(ask(money.team, "1000"))
    assert (usd(grant), grant.reason) == (Decimal(1000), None)


async def test_a_prepaid_team_is_lent_at_most_a_quarter_of_its_balance_and_overdraft(money: Money) -> None:
    await money.prepaid("7", overdraft_usd="1")
    (grant,) = await money.lease(ask(money.team, "100"))
    assert (usd(grant), grant.left_nusd) == (Decimal(2), 6_000_000_000)


async def test_a_block_is_what_is_wanted_while_money_is_ample(money: Money) -> None:
    await money.prepaid("100")
    (grant,) = await money.lease(ask(money.team, "5", "1"))
    assert usd(grant) == Decimal(5)


async def test_blocks_shrink_down_to_one_exact_reservation(money: Money) -> None:
    await money.prepaid("1")
    granted = []
    while (grant := (await money.lease(ask(money.team, "1", "0.1")))[0]).granted_nusd:
        granted.append(usd(grant))
    assert granted == sorted(granted, reverse=True)
    assert granted[-3:] == [Decimal("0.1")] * 3
    assert Decimal(1) - sum(granted) < Decimal("0.1")


async def test_a_team_without_money_is_refused_for_its_funds(money: Money) -> None:
    await money.prepaid("1")
    await money.spend("0.9996")
    (grant,) = await money.lease(ask(money.team, "1", "0.001"))
    assert (grant.granted_nusd, grant.left_nusd, grant.reason) == (0, 400_000, MoneyRefusalReason.INSUFFICIENT_FUNDS)
    assert (grant.interval, grant.resets_at_s) == (None, None)


async def test_a_key_beyond_its_budget_is_told_which_and_when_it_resets(money: Money) -> None:
    await money.budget("1")
    await money.spend("0.9996")
    (grant,) = await money.lease(ask(money.key, "1", "0.001"))
    assert (grant.granted_nusd, grant.reason, grant.interval) == (
        0, MoneyRefusalReason.BUDGET_EXCEEDED, Interval.DAILY)
    assert grant.resets_at_s is not None
    assert 0 < grant.resets_at_s - money.now_s <= 86_400
    assert grant.resets_at_s % 86_400 == 0


async def test_of_several_exceeded_budgets_the_widest_is_named(money: Money) -> None:
    await money.budget("2", Interval.LIFETIME)
    await money.budget("1", Interval.DAILY)
    await money.spend("3")
    (grant,) = await money.lease(ask(money.key, "1"))
    assert (grant.interval, grant.resets_at_s) == (Interval.LIFETIME, None)


async def test_what_was_spent_yesterday_leaves_todays_budget_whole(money: Money) -> None:
    await money.budget("1")
    await money.spend("3", time_s=money.now_s - 86_400)
    (grant,) = await money.lease(ask(money.key, "0.1"))
    assert usd(grant) == Decimal("0.1")


async def test_a_teams_budget_binds_all_its_keys_together(money: Money) -> None:
    await money.budget("1", scope=money.team)
    other = await money.replica.key(money.maker.team_id)
    await money.spend("0.6")
    await money.spend("0.39", maker=type(money.maker)(money.maker.team_id, other.id))
    (grant,) = await money.lease(ask(money.team, "1", "0.02"))
    assert grant.reason == MoneyRefusalReason.BUDGET_EXCEEDED


async def test_asks_of_one_request_share_what_is_left(money: Money) -> None:
    await money.prepaid("1")
    grants = await money.lease(*(ask(money.team, "1", "0.3") for _ in range(5)))
    assert [usd(grant) for grant in grants] == [Decimal("0.3")] * 3 + [Decimal(0)] * 2


async def test_the_same_ask_again_gets_the_same_grant_and_lends_nothing_more(money: Money) -> None:
    await money.prepaid("1")
    first = ask(money.team, "1")
    grants = [(await money.lease(first))[0].granted_nusd for _ in range(3)]
    assert grants == [250_000_000] * 3
    assert await money.rows("SELECT count(*), sum(granted_nusd) FROM money_lease") == [(1, 250_000_000)]


async def test_the_same_ask_many_times_at_once_lends_once(money: Money) -> None:
    await money.prepaid("1")
    first = ask(money.team, "1")
    grants = await asyncio.gather(*(money.lease(first) for _ in range(20)))
    assert {grant.granted_nusd for (grant,) in grants} == {250_000_000}
    assert await money.rows("SELECT count(*) FROM money_lease") == [(1,)]


async def test_a_closed_lease_is_free_to_be_lent_again(money: Money) -> None:
    await money.prepaid("1")
    held = ask(money.team, "1", "1")
    await money.lease(held)
    (grant,) = await money.lease(ask(money.team, "1", "1"), close=[held.lease_id])
    assert usd(grant) == Decimal(1)


async def test_closing_twice_frees_once(money: Money) -> None:
    await money.prepaid("1")
    held = ask(money.team, "1", "0.6")
    await money.lease(held)
    await money.lease(close=[held.lease_id])
    await money.lease(close=[held.lease_id])
    grants = await money.lease(*(ask(money.team, "1", "0.6") for _ in range(2)))
    assert [usd(grant) for grant in grants] == [Decimal("0.6"), Decimal(0)]


async def test_a_closed_lease_is_not_granted_again_under_its_id(money: Money) -> None:
    await money.prepaid("1")
    held = ask(money.team, "1")
    await money.lease(held)
    await money.lease(close=[held.lease_id])
    assert usd((await money.lease(held))[0]) == 0


async def test_an_ask_that_arrives_after_its_own_close_opens_nothing(money: Money) -> None:
    await money.prepaid("1")
    late = ask(money.team, "1")
    await money.lease(close=[late.lease_id])
    assert usd((await money.lease(late))[0]) == 0
    assert await money.rows("SELECT count(*) FROM money_lease WHERE closed_at IS NULL") == [(0,)]


async def test_a_refusal_leaves_no_trace(money: Money) -> None:
    await money.prepaid("0.1")
    refused = ask(money.team, "1", "0.5")
    assert usd((await money.lease(refused))[0]) == 0
    await money.order("POST", "/teams/acme/credits", {"amount_usd": "1", "reason": "test"})
    assert usd((await money.lease(refused))[0]) == Decimal("0.5")


@pytest.mark.parametrize("is_closing", [True, False])
async def test_another_edges_lease_cannot_be_touched(money: Money, is_closing: bool) -> None:
    await money.prepaid("1")
    held = ask(money.team, "1")
    await money.lease(held)
    thief = await money.replica.enrolled(IdentityKind.EDGE, "eu-north-1")
    request = MoneyLeaseRequest(boot_id="boot-9", close=[held.lease_id]) if is_closing else MoneyLeaseRequest(
        boot_id="boot-9", open=[ask(money.team, "0.1"), held])
    answer = await money.post(request, thief)
    assert (answer.status_code, answer.json()["code"]) == (409, "lease_of_another_edge")
    assert await money.rows("SELECT count(*), count(closed_at) FROM money_lease") == [(1, 0)]


async def test_an_id_cannot_move_to_another_scope(money: Money) -> None:
    await money.lease(ask(money.team, "1", lease_id="lease_1"))
    answer = await money.post(MoneyLeaseRequest(boot_id="boot-1", open=[ask(money.key, "1", lease_id="lease_1")]))
    assert (answer.status_code, answer.json()["code"]) == (409, "lease_of_another_scope")


async def test_an_id_asked_for_twice_in_one_request_is_refused(money: Money) -> None:
    twice = [ask(money.team, "1", lease_id="lease_1")] * 2
    answer = await money.post(MoneyLeaseRequest(boot_id="boot-1", open=twice))
    assert (answer.status_code, answer.json()["code"]) == (409, "lease_repeated")


async def test_an_unsigned_ask_is_nobodys(money: Money) -> None:
    answer = await money.replica.client.post("/edge/v1/money/leases", json={"boot_id": "boot-1"})
    assert answer.status_code == 401


async def test_a_dead_boots_leases_stay_open_until_what_it_left_is_shipped(money: Money) -> None:
    await money.prepaid("1")
    await money.lease(ask(money.team, "1", "0.8"), boot_id="boot-1")
    assert usd((await money.lease(ask(money.team, "1", "0.8"), boot_id="boot-2"))[0]) == 0
    assert usd((await money.lease(ask(money.team, "1", "0.8"), boot_id="boot-2", shipped=True))[0]) == Decimal("0.8")


async def test_the_leases_of_the_own_boot_and_of_other_edges_stay_open(money: Money) -> None:
    other = await money.replica.enrolled(IdentityKind.EDGE, "eu-north-1")
    await money.lease(ask(money.team, "1", lease_id="own"), boot_id="boot-2")
    await money.lease(ask(money.team, "1", lease_id="other"), boot_id="boot-1", edge=other)
    await money.lease(boot_id="boot-2", shipped=True)
    assert await money.rows("SELECT id FROM money_lease WHERE closed_at IS NULL ORDER BY id") == [
        ("other",), ("own",)]


async def test_a_late_word_of_a_boot_that_is_over_never_closes_its_successors_leases(money: Money) -> None:
    await money.lease(ask(money.team, "1", lease_id="old"), boot_id="boot-1")
    await money.lease(ask(money.team, "1", lease_id="new"), boot_id="boot-2", shipped=True)
    await money.lease(boot_id="boot-1", shipped=True)
    assert await money.rows("SELECT id FROM money_lease WHERE closed_at IS NULL") == [("new",)]


async def test_200_asks_at_once_never_lend_more_than_a_dollar(money: Money) -> None:
    await money.prepaid("1")
    edges = [money.edge, await money.replica.enrolled(IdentityKind.EDGE, "eu-north-1")]
    answers = await asyncio.gather(*(
        money.lease(ask(money.team, "0.5", "0.004"), edge=edges[number % 2]) for number in range(200)))
    lent = sum(usd(grant) for (grant,) in answers)
    assert Decimal("0.996") < lent <= Decimal(1)
    assert {grant.reason for (grant,) in answers if not grant.granted_nusd} == {MoneyRefusalReason.INSUFFICIENT_FUNDS}


async def test_leases_are_opened_closed_and_booked_at_once_without_ever_exceeding_a_budget(money: Money) -> None:
    await money.budget("1", Interval.LIFETIME)
    edges = [money.edge, await money.replica.enrolled(IdentityKind.EDGE, "eu-north-1")]

    async def life(number: int) -> None:
        """Borrows, spends all of it, ships the record and only then gives the lease back."""
        edge, wanted = edges[number % 2], ask(money.key, "0.24", "0.24")
        (grant,) = await money.lease(wanted, edge=edge)
        if grant.granted_nusd:
            await money.spend("0.24", edge=edge)
            await money.lease(close=[wanted.lease_id], edge=edge)

    await asyncio.gather(*(life(number) for number in range(80)))
    ((booked, still_open),) = await money.rows(
        "SELECT (SELECT spent_usd FROM spend WHERE scope = 'key' AND interval = 'lifetime'), "
        "(SELECT count(*) FROM money_lease WHERE closed_at IS NULL)")
    assert (booked, still_open) == (Decimal("0.96"), 0)


async def test_money_that_becomes_spend_while_it_is_read_is_never_missed(money: Money) -> None:
    await money.lease(ask(money.key, "1", "1"))
    database = money.replica.context.db

    async def read() -> Standing:
        async with database.begin() as session:
            return (await billing.standings(session, [money.key], utc(money.now_s)))[money.key]

    async with database.engine.begin() as other, asyncio.timeout(10):
        await other.exec_driver_sql("LOCK TABLE money_lease IN ACCESS EXCLUSIVE MODE")
        reading = asyncio.create_task(read())
        while await money.rows("SELECT count(*) FROM pg_locks WHERE NOT granted") == [(0,)]:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        await other.exec_driver_sql("UPDATE money_lease SET closed_at = now()")
        await other.exec_driver_sql(
            "INSERT INTO spend (scope, scope_id, interval, window_start, team_id, spent_usd) "
            "SELECT 'key', id, 'lifetime', '1970-01-01 00:00Z', team_id, 1 FROM api_key")
    standing = await reading
    assert nano(standing.spent(Interval.LIFETIME)) + standing.lent_nusd == NANO_USD


async def test_scopes_asked_for_in_any_order_at_once_do_not_deadlock(money: Money) -> None:
    await money.prepaid("100")
    await money.budget("90")
    orders = [(money.team, money.key), (money.key, money.team)]
    answers = await asyncio.gather(*(
        money.lease(*(ask(scope, "0.1") for scope in orders[number % 2])) for number in range(40)))
    assert all(grant.granted_nusd for grants in answers for grant in grants)


async def test_leases_closed_a_week_ago_are_forgotten(money: Money) -> None:
    await money.lease(ask(money.team, "1", lease_id="old"))
    await money.lease(close=["old"])
    async with money.replica.context.db.engine.begin() as connection:
        await connection.exec_driver_sql("UPDATE money_lease SET closed_at = now() - interval '8 days'")
    await money.lease(ask(money.team, "1", lease_id="new"))
    assert await money.rows("SELECT id FROM money_lease") == [("new",)]


async def test_a_scope_kind_that_is_none_is_refused(money: Money) -> None:
    body = b'{"boot_id":"b","open":[{"lease_id":"l","scope":"user","scope_id":"u","want_nusd":1,"at_least_nusd":0}]}'
    answer = await money.replica.signed(money.edge, "/edge/v1/money/leases", body)
    assert answer.status_code == 422
    assert LimitScope.TEAM in answer.json()["message"]

"""What operators do with money, through their API."""

import asyncio
from decimal import Decimal

import pytest
from sqlalchemy.exc import DBAPIError

from control_plane.billing import service as billing
from control_plane.contracts.clock import utc
from control_plane.contracts.keys import LimitScope, Principal
from control_plane.contracts.money import Interval
from control_plane.contracts.operator import OperatorScope
from control_plane.db import sqlstate
from tests.integration.control_plane.billing.conftest import Money, ask, usd

CREDIT = {"amount_usd": "5.25", "reason": "a gift"}


async def scopes(money: Money) -> list[LimitScope]:
    async with money.replica.context.db.begin() as session:
        return await billing.money_scopes(session, money.maker.team_id, money.maker.key_id)


async def changes(money: Money) -> int:
    ((seq,),) = await money.rows("SELECT changed_seq FROM team")
    return int(seq)


async def test_a_team_that_nobody_limited_leases_nothing(money: Money) -> None:
    assert await scopes(money) == []


async def test_a_prepaid_team_must_lease(money: Money) -> None:
    await money.prepaid("1")
    assert await scopes(money) == [LimitScope.TEAM]


async def test_whoever_has_a_budget_must_lease(money: Money) -> None:
    await money.budget("1")
    assert await scopes(money) == [LimitScope.KEY]
    await money.budget("2", scope=money.team)
    assert await scopes(money) == [LimitScope.KEY, LimitScope.TEAM]


async def test_a_credit_alone_makes_nobody_lease(money: Money) -> None:
    await money.order("POST", "/teams/acme/credits", CREDIT)
    assert await scopes(money) == []


async def test_the_last_budget_that_goes_ends_the_leasing(money: Money) -> None:
    await money.budget("1")
    path = f"/budgets/key/{money.maker.key_id}/daily"
    await money.order("DELETE", path)
    await money.order("DELETE", path)
    assert await scopes(money) == []


async def test_another_keys_budget_is_not_this_keys(money: Money) -> None:
    other = await money.replica.key(money.maker.team_id)
    await money.budget("1", scope=(LimitScope.KEY, other.id))
    assert await scopes(money) == []


async def test_an_edge_that_looks_the_key_up_is_told_what_to_lease(money: Money) -> None:
    await money.prepaid("1")
    key = await money.replica.key(money.maker.team_id)
    ((digest,),) = await money.rows(f"SELECT digest FROM api_key WHERE id = '{key.id}'")  # noqa: S608
    answer = await money.replica.signed(money.edge, "/edge/v1/keys/lookup", f'{{"digest":"{digest}"}}'.encode())
    assert Principal.model_validate_json(answer.content).money_scopes == [LimitScope.TEAM]


async def test_every_change_that_binds_keys_is_told_to_edges(money: Money) -> None:
    path, seen = f"/budgets/key/{money.maker.key_id}/daily", [await changes(money)]
    for method, where, body in (("PUT", "/teams/acme/billing", {"mode": "prepaid"}),
                                ("PUT", path, {"limit_usd": "1"}), ("DELETE", path, None)):
        await money.order(method, where, body)
        seen.append(await changes(money))
    assert seen == sorted(set(seen))


async def test_a_credit_is_added_to_the_balance(money: Money) -> None:
    await money.prepaid("1")
    given = await money.order("POST", "/teams/acme/credits", CREDIT)
    assert (given["amount_usd"], given["actor"]) == ("5.25", "operator:olga")
    ((balance, count),) = [(one["balance_usd"], one["open_leases"]) for one in (
        await money.order("GET", "/money?team=acme"))["data"]]
    assert (balance, count) == ("6.25", 0)


async def test_money_can_be_taken_back(money: Money) -> None:
    await money.prepaid("1")
    await money.order("POST", "/teams/acme/credits", {"amount_usd": "-0.5", "reason": "given twice"})
    assert (await money.order("GET", "/money"))["data"][0]["balance_usd"] == "0.5"


async def test_a_repeated_credit_is_given_once(money: Money) -> None:
    orders = [money.order("POST", "/teams/acme/credits", CREDIT, idempotency_key="k1") for _ in range(5)]
    assert len({given["id"] for given in await asyncio.gather(*orders)}) == 1
    assert await money.rows("SELECT sum(amount_usd) FROM credit") == [(Decimal("5.25"),)]
    assert await money.rows("SELECT count(*) FROM audit_event WHERE action = 'team.credit'") == [(1,)]


async def test_credits_without_an_idempotency_key_are_all_given(money: Money) -> None:
    for _ in range(2):
        await money.order("POST", "/teams/acme/credits", CREDIT)
    assert await money.rows("SELECT sum(amount_usd) FROM credit") == [(Decimal("10.5"),)]


async def test_an_idempotency_key_is_good_for_one_credit(money: Money) -> None:
    await money.order("POST", "/teams/acme/credits", CREDIT, idempotency_key="k1")
    answer = await money.ask("POST", "/teams/acme/credits", CREDIT | {"amount_usd": "6"}, idempotency_key="k1")
    assert (answer.status_code, answer.json()["code"]) == (409, "idempotency_key_used")


@pytest.mark.parametrize("amount", ["0", "1e10", "0.0000000000001", "NaN", "Infinity", "ten"])
async def test_an_amount_that_is_none_is_refused(money: Money, amount: str) -> None:
    answer = await money.ask("POST", "/teams/acme/credits", {"amount_usd": amount, "reason": "x"})
    assert answer.status_code in (400, 422)
    assert await money.rows("SELECT count(*) FROM credit") == [(0,)]


async def test_credits_are_listed_the_newest_first_and_paged(money: Money) -> None:
    for amount in ("1", "2", "3"):
        await money.order("POST", "/teams/acme/credits", {"amount_usd": amount, "reason": "x"})
    first = await money.order("GET", "/teams/acme/credits?limit=2")
    rest = await money.order("GET", f"/teams/acme/credits?limit=2&cursor={first['next_cursor']}")
    assert [one["amount_usd"] for one in first["data"] + rest["data"]] == ["3", "2", "1"]
    assert rest["next_cursor"] is None


@pytest.mark.parametrize("statement", ["UPDATE credit SET amount_usd = 9", "DELETE FROM credit", "TRUNCATE credit"])
async def test_the_database_refuses_to_change_a_credit(money: Money, statement: str) -> None:
    await money.order("POST", "/teams/acme/credits", CREDIT)
    with pytest.raises(DBAPIError) as refused:
        async with money.replica.context.db.engine.begin() as connection:
            await connection.exec_driver_sql(statement)
    assert sqlstate(refused.value) == "42501"


async def test_only_an_admin_may_give_money_and_change_how_a_team_pays(money: Money) -> None:
    operates = await money.replica.operator(OperatorScope.OPERATE)
    for method, path, body in (("POST", "/teams/acme/credits", CREDIT),
                               ("PUT", "/teams/acme/billing", {"mode": "prepaid"})):
        answer = await money.replica.client.request(method, f"/operator/v1{path}", json=body, headers=operates)
        assert answer.status_code == 403


async def test_what_was_spent_postpaid_is_not_taken_from_the_balance(money: Money) -> None:
    await money.spend("3")
    await money.prepaid("1")
    await money.spend("0.3")
    assert (await money.order("GET", "/money"))["data"][0]["balance_usd"] == "0.7"


async def test_a_balance_waits_while_a_team_is_postpaid(money: Money) -> None:
    await money.prepaid("1")
    await money.spend("0.3")
    await money.order("PUT", "/teams/acme/billing", {"mode": "postpaid"})
    await money.spend("6")
    back = await money.order("PUT", "/teams/acme/billing", {"mode": "prepaid", "overdraft_usd": "2"})
    assert (back["balance_usd"], back["overdraft_usd"], back["spent_usd"]) == ("0.7", "2", "6.3")


async def test_setting_the_same_billing_again_changes_no_balance(money: Money) -> None:
    await money.prepaid("1")
    await money.spend("0.3")
    again = [await money.order("PUT", "/teams/acme/billing", {"mode": "prepaid"}) for _ in range(2)]
    assert [one["balance_usd"] for one in again] == ["0.7", "0.7"]


async def test_a_postpaid_team_has_nothing_to_overdraw(money: Money) -> None:
    answer = await money.ask("PUT", "/teams/acme/billing", {"mode": "postpaid", "overdraft_usd": "1"})
    assert (answer.status_code, answer.json()["code"]) == (400, "no_balance")


async def test_budgets_and_what_is_spent_of_each_are_listed(money: Money) -> None:
    await money.budget("1", Interval.DAILY)
    await money.budget("20", Interval.LIFETIME, money.team)
    await money.spend("0.75")
    found = (await money.order("GET", "/budgets?team=acme"))["data"]
    assert [(one["scope"], one["interval"], one["limit_usd"], one["spent_usd"]) for one in found] == [
        ("key", "daily", "1", "0.75"), ("team", "lifetime", "20", "0.75")]
    assert (found[0]["resets_at"] is None, found[1]["resets_at"]) == (False, None)


async def test_budgets_are_paged_and_may_be_one_keys(money: Money) -> None:
    for limit, interval in enumerate(Interval, 1):
        await money.budget(str(limit), interval)
    await money.budget("9", scope=money.team)
    path, cursor, found = f"/budgets?limit=2&key={money.maker.key_id}", "", []
    while cursor is not None:
        page = await money.order("GET", path + (f"&cursor={cursor}" if cursor else ""))
        found, cursor = [*found, *page["data"]], page["next_cursor"]
    assert [one["interval"] for one in found] == sorted(Interval)


@pytest.mark.parametrize("path", ["/budgets", "/money", "/money/leases"])
@pytest.mark.parametrize("cursor", ["x", "a:b:c", ":", "team:team_1:hourly"])
async def test_a_cursor_of_nobody_is_refused(money: Money, path: str, cursor: str) -> None:
    answer = await money.ask("GET", f"{path}?cursor={cursor}")
    assert (answer.status_code, answer.json()["code"]) == (400, "bad_cursor")


async def test_a_narrower_budget_that_could_never_bind_is_refused(money: Money) -> None:
    await money.budget("10", Interval.WEEKLY)
    answer = await money.ask("PUT", f"/budgets/key/{money.maker.key_id}/daily", {"limit_usd": "10"})
    assert (answer.status_code, answer.json()["code"]) == (400, "budget_order")
    assert await money.rows("SELECT interval FROM budget") == [("weekly",)]


async def test_two_budgets_set_at_once_never_stand_the_wrong_way_round(money: Money) -> None:
    await money.budget("5", Interval.WEEKLY)
    path = f"/budgets/key/{money.maker.key_id}"
    await asyncio.gather(money.ask("PUT", f"{path}/daily", {"limit_usd": "4"}),
                         money.ask("PUT", f"{path}/weekly", {"limit_usd": "3"}))
    limits = dict(await money.rows("SELECT interval, limit_usd FROM budget"))
    assert limits.get("daily", Decimal(0)) < limits["weekly"]


@pytest.mark.parametrize(("path", "message"), [
    ("/budgets/team/nobody/daily", "there is no team 'nobody'"),
    ("/budgets/key/nobody/daily", "there is no key 'nobody'")])
async def test_nobodys_budget_is_not_found(money: Money, path: str, message: str) -> None:
    answer = await money.ask("PUT", path, {"limit_usd": "1"})
    assert (answer.status_code, answer.json()["message"]) == (404, message)


async def test_a_teams_budget_may_be_set_by_its_slug(money: Money) -> None:
    await money.order("PUT", "/budgets/team/acme/daily", {"limit_usd": "1"})
    assert await scopes(money) == [LimitScope.TEAM]


async def test_the_status_prints_what_is_lent(money: Money) -> None:
    await money.prepaid("8")
    await money.budget("4")
    await money.lease(ask(money.team, "1"), ask(money.key, "0.5"))
    found = {one["scope"]: one for one in (await money.order("GET", "/money?team=acme"))["data"]}
    assert {scope: (one["lent_usd"], one["open_leases"]) for scope, one in found.items()} == {
        "team": ("1", 1), "key": ("0.5", 1)}
    assert [budget["limit_usd"] for budget in found["key"]["budgets"]] == ["4"]


async def test_a_released_lease_is_free_and_audited(money: Money) -> None:
    await money.prepaid("1")
    await money.lease(ask(money.team, "1", "1", lease_id="lease_1"))
    assert [one["id"] for one in (await money.order("GET", "/money/leases"))["data"]] == ["lease_1"]
    await money.order("POST", "/money/leases/lease_1/release", {"reason": "the machine burnt"})
    assert usd((await money.lease(ask(money.team, "1", "1")))[0]) == 1
    assert await money.rows("SELECT action, target, reason FROM audit_event ORDER BY id DESC LIMIT 1") == [
        ("lease.release", "lease:lease_1", "the machine burnt")]


async def test_a_lease_is_released_once(money: Money) -> None:
    await money.lease(ask(money.team, "1", lease_id="lease_1"))
    await money.order("POST", "/money/leases/lease_1/release", {"reason": "x"})
    answer = await money.ask("POST", "/money/leases/lease_1/release", {"reason": "x"})
    assert answer.status_code == 404


async def test_the_lease_of_an_edge_that_lives_is_released_only_by_force(money: Money) -> None:
    poll = (b'{"boot_id":"boot-1","release":"0","acked_lineage":0,"acked_version":0,"revocations_after":0,'
            b'"open_requests":{},"wait_s":0}')
    assert (await money.replica.signed(money.edge, "/edge/v1/sync", poll)).status_code == 200
    await money.lease(ask(money.team, "1", lease_id="lease_1"))
    refused = await money.ask("POST", "/money/leases/lease_1/release", {"reason": "x"})
    assert (refused.status_code, refused.json()["rule"]) == (409, "lease_in_use")
    assert (refused.json()["numbers"]["edge"], refused.json()["numbers"]["granted_usd"]) == (money.edge.identity, "1")
    assert await money.rows("SELECT count(*) FROM money_lease WHERE closed_at IS NULL") == [(1,)]
    await money.order("POST", "/money/leases/lease_1/release", {"reason": "x", "force": True})


async def test_open_leases_are_paged(money: Money) -> None:
    await money.lease(*(ask(money.team, "1", lease_id=f"lease_{number}") for number in range(3)))
    first = await money.order("GET", "/money/leases?limit=2")
    rest = await money.order("GET", f"/money/leases?limit=2&cursor={first['next_cursor']}")
    assert [one["id"] for one in first["data"] + rest["data"]] == ["lease_0", "lease_1", "lease_2"]


async def test_what_a_key_spent_is_told_by_interval_with_its_narrowest_budget(money: Money) -> None:
    await money.budget("10", Interval.MONTHLY)
    await money.budget("1", Interval.DAILY)
    await money.spend("0.75")
    await money.spend("3", time_s=money.now_s - 32 * 86_400)
    async with money.replica.context.db.begin() as session:
        spend = await billing.key_spend(session, money.maker.key_id, utc(money.now_s))
    assert (spend.total_usd, spend.daily_usd, spend.monthly_usd) == (
        Decimal("3.75"), Decimal("0.75"), Decimal("0.75"))
    assert (spend.limit_usd, spend.limit_interval, spend.remaining_usd) == (
        Decimal(1), Interval.DAILY, Decimal("0.25"))


async def test_a_key_without_budgets_has_no_limit(money: Money) -> None:
    async with money.replica.context.db.begin() as session:
        spend = await billing.key_spend(session, money.maker.key_id, utc(money.now_s))
    assert (spend.total_usd, spend.limit_usd, spend.limit_interval, spend.remaining_usd) == (0, None, None, None)


async def test_a_teams_credits_are_told_with_all_it_used(money: Money) -> None:
    await money.prepaid("8")
    await money.spend("0.75")
    async with money.replica.context.db.begin() as session:
        credits = await billing.team_credits(session, money.maker.team_id)
    assert (credits.total_credits_usd, credits.total_usage_usd) == (Decimal(8), Decimal("0.75"))


async def test_a_keys_successor_is_bound_by_the_same_budgets(money: Money) -> None:
    await money.budget("10", Interval.MONTHLY)
    await money.budget("1", Interval.DAILY)
    successor = await money.replica.key(money.maker.team_id)
    async with money.replica.context.db.begin() as session:
        await billing.copy_budgets(session, money.maker.key_id, successor.id, money.maker.team_id)
    found = (await money.order("GET", f"/budgets?key={successor.id}"))["data"]
    assert [(one["interval"], one["limit_usd"], one["spent_usd"]) for one in found] == [
        ("daily", "1", "0"), ("monthly", "10", "0")]

"""Credits, budgets and leases as operators type them, against the real control plane with a real Postgres."""

import json
from decimal import Decimal
from typing import Any

import pytest

from control_plane.contracts.keys import LimitScope
from control_plane.contracts.money import LeaseAsk, MoneyLeaseAnswer, MoneyLeaseRequest
from tests.integration.control_plane.cli.conftest import Meridian
from tests.integration.control_plane.cli.test_commands import use


@pytest.fixture
async def acme(meridian: Meridian) -> dict[str, Any]:
    """A team, as JSON."""
    return dict((await meridian("teams", "create", "Acme", "-o", "json")).json)


async def lend(meridian: Meridian, scope_id: str, lease_id: str, want_nusd: int = 500_000_000) -> int:
    """Borrows as an edge does; what was granted."""
    asked = MoneyLeaseRequest(boot_id="boot-9", open=[LeaseAsk(
        lease_id=lease_id, scope=LimitScope.TEAM, scope_id=scope_id, want_nusd=want_nusd, at_least_nusd=0)])
    answer = await meridian.world.replica.signed(
        meridian.world.edges[0].peer, "/edge/v1/money/leases", asked.model_dump_json().encode())
    return MoneyLeaseAnswer.model_validate_json(answer.content).grants[0].granted_nusd


async def test_a_team_is_made_prepaid_credited_and_lent_to(meridian: Meridian, acme: dict[str, Any]) -> None:
    billed = await meridian("teams", "billing", "acme", "--mode", "prepaid", "--overdraft", "1.5")
    assert billed.code == 0, billed.err
    assert "Next: meridian teams credit acme USD --reason TEXT" in billed.out
    credited = await meridian("teams", "credit", "acme", "25", "--reason", "first payment")
    assert credited.code == 0, credited.err
    assert "$25" in credited.out
    assert await lend(meridian, acme["id"], "lease_1") == 500_000_000
    status = await meridian("money", "status", "acme")
    assert "$25 (+$1.5)" in status.out
    assert "$0.5" in status.out
    assert "LENT is what edges hold" in status.out
    assert max(map(len, status.out.splitlines())) <= 80


async def test_the_status_as_json_is_exact(meridian: Meridian, acme: dict[str, Any]) -> None:
    await meridian("teams", "billing", "acme", "--mode", "prepaid")
    await meridian("teams", "credit", "acme", "0.1", "--reason", "test")
    key = (await meridian("keys", "create", "acme", "--name", "ci", "-o", "json")).json
    await use(meridian, acme["id"], key["id"], 3)
    [money] = (await meridian("money", "status", "-o", "json")).json["data"]
    assert (money["balance_usd"], money["spent_usd"]) == ("0.03992992", "0.06007008")


async def test_money_is_taken_back_by_an_amount_below_nothing(meridian: Meridian, acme: dict[str, Any]) -> None:
    await meridian("teams", "credit", "acme", "5", "--reason", "test")
    taken = await meridian("teams", "credit", "--reason", "given to the wrong team", "--", "acme", "-5")
    assert taken.code == 0, taken.err
    listed = (await meridian("teams", "credits", "acme", "-o", "json")).json["data"]
    assert [Decimal(one["amount_usd"]) for one in listed] == [-5, 5]


@pytest.mark.parametrize("amount", ["ten", "NaN", "0.0000000000001", "99999999999"])
async def test_an_amount_that_is_none_is_a_usage_error(meridian: Meridian, acme: dict[str, Any], amount: str) -> None:
    ran = await meridian("teams", "credit", acme["id"], amount, "--reason", "test")
    assert ran.code == 2
    assert ran.err.startswith("error: amount_usd: ")


async def test_a_credit_needs_a_reason(meridian: Meridian, acme: dict[str, Any]) -> None:
    ran = await meridian("teams", "credit", acme["id"], "5")
    assert (ran.code, "--reason" in ran.err) == (2, True)


async def test_budgets_are_set_listed_and_removed(meridian: Meridian, acme: dict[str, Any]) -> None:
    key = (await meridian("keys", "create", "acme", "--name", "ci", "-o", "json")).json
    for limit, interval in (("5", "monthly"), ("1", "daily")):
        ran = await meridian("budgets", "set", "--key", key["id"], "--interval", interval, "--limit", limit)
        assert ran.code == 0, ran.err
    await meridian("budgets", "set", "--team", "acme", "--interval", "lifetime", "--limit", "100")
    listed = (await meridian("budgets", "list", "--team", acme["slug"], "-o", "json")).json["data"]
    assert [(one["scope"], one["interval"], one["limit_usd"]) for one in listed] == [
        ("key", "daily", "1"), ("key", "monthly", "5"), ("team", "lifetime", "100")]
    assert (await meridian("budgets", "remove", "--key", key["id"], "--interval", "daily")).code == 0
    left = (await meridian("budgets", "list", "--key", key["id"], "-o", "json")).json["data"]
    assert [one["interval"] for one in left] == ["monthly"]


async def test_a_budget_that_could_never_bind_says_which_is_in_its_way(
        meridian: Meridian, acme: dict[str, Any]) -> None:
    await meridian("budgets", "set", "--team", acme["id"], "--interval", "weekly", "--limit", "5")
    ran = await meridian("budgets", "set", "--team", acme["id"], "--interval", "daily", "--limit", "7.50")
    assert (ran.code, ran.err) == (2, "error: a daily budget of $7.5 must be below the weekly one of $5; a narrower "
                                      "interval has a smaller limit\n")


@pytest.mark.parametrize("whose", [[], ["--team", "acme", "--key", "key_1"]])
async def test_a_budget_binds_one_team_or_one_key(meridian: Meridian, whose: list[str]) -> None:
    ran = await meridian("budgets", "set", *whose, "--interval", "daily", "--limit", "1")
    assert (ran.code, ran.err) == (2, "error: name whose budget it is: --team TEAM or --key KEY_ID\n")


async def test_empty_lists_say_how_to_begin(meridian: Meridian) -> None:
    assert (await meridian("money", "status")).out.startswith("Nobody's money is limited: meridian teams billing")
    assert (await meridian("budgets", "list")).out.startswith("No budgets yet: meridian budgets set")
    assert (await meridian("money", "leases")).out == "No open leases.\n"


async def test_a_dead_edges_lease_is_found_and_released(meridian: Meridian, acme: dict[str, Any]) -> None:
    await lend(meridian, acme["id"], "lease_1")
    assert [one["id"] for one in (await meridian("money", "leases", "-o", "json")).json["data"]] == ["lease_1"]
    released = await meridian("money", "release", "lease_1", "--reason", "its machine burnt")
    assert released.code == 0, released.err
    assert (await meridian("money", "leases", "-o", "json")).json == {"data": []}
    assert "(its machine burnt)" in " ".join((await meridian("audit")).out.split())


async def test_a_lease_that_is_not_open_is_said_so(meridian: Meridian) -> None:
    ran = await meridian("money", "release", "lease_1", "--reason", "x")
    assert (ran.code, ran.err) == (1, "error: there is no open lease 'lease_1'\n")


async def test_spend_is_counted_anew(meridian: Meridian, acme: dict[str, Any]) -> None:
    key = (await meridian("keys", "create", "acme", "--name", "ci", "-o", "json")).json
    await use(meridian, acme["id"], key["id"], 1)
    ran = await meridian("money", "recount", "acme", "-o", "plain")
    assert ran.out == "TEAM\tSPENT\tCORRECTED BY\nacme\t$0.02002336\t$0\n"


async def test_a_refusal_in_json_is_json(meridian: Meridian) -> None:
    ran = await meridian("money", "status", "nobody", "-o", "json")
    assert (ran.code, json.loads(ran.err)["code"]) == (1, "not_found")

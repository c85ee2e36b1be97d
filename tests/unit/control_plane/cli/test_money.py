"""How money is shown: exact, aligned, and red where it is used up."""

import io
from decimal import Decimal

import pytest
from rich.console import Console
from rich.text import Text

from control_plane.cli.budgets import budget_sheet, whose
from control_plane.cli.errors import UsageFault
from control_plane.cli.money import lease_sheet, money_sheets
from control_plane.cli.render import print_sheets
from control_plane.cli.team_money import credit_sheet
from control_plane.contracts.billing import BudgetView, CreditView, MoneyLeaseView, MoneyView
from control_plane.contracts.clock import utc
from control_plane.contracts.keys import LimitScope
from control_plane.contracts.money import BillingMode, Interval
from tests.unit.control_plane.cli.conftest import Meridian
from tests.unit.control_plane.cli.servers import OperatorServer, Raw

NOW = utc(1_800_000_000)
BUDGET = BudgetView(scope=LimitScope.KEY, scope_id="key_1", interval=Interval.DAILY, limit_usd=Decimal(5),
                    spent_usd=Decimal("1.25"), resets_at=NOW)
MONEY = MoneyView(scope=LimitScope.TEAM, scope_id="team_1", team_id="team_1", mode=BillingMode.PREPAID,
                  balance_usd=Decimal("7.5"), overdraft_usd=Decimal(0), spent_usd=Decimal("2.5"),
                  lent_usd=Decimal("0.5"), open_leases=1, budgets=[])
LEASE = MoneyLeaseView(id="lease_1", edge_id="edge_1", boot_id="boot_1", scope=LimitScope.TEAM, scope_id="team_1",
                       granted_usd=Decimal("0.000000001"), opened_at=NOW)
CREDIT = CreditView(id="credit_1", team_id="team_1", amount_usd=Decimal(25), reason="gift", actor="operator:olga",
                    created_at=NOW)


def words(row: object) -> list[str]:
    assert isinstance(row, list)
    return [cell.plain if isinstance(cell, Text) else cell for cell in row]


def test_a_prepaid_team_is_shown_with_its_balance_to_the_last_digit() -> None:
    [sheet] = money_sheets([MONEY])
    assert words(sheet.rows[0]) == ["team_1", "prepaid", "$7.5", "$2.5", "$0.5"]


def test_a_postpaid_team_has_no_balance() -> None:
    [sheet] = money_sheets([MONEY.model_copy(update={"mode": BillingMode.POSTPAID, "balance_usd": None})])
    assert words(sheet.rows[0])[1:3] == ["postpaid", "–"]  # noqa: RUF001


@pytest.mark.parametrize(("balance", "style"), [("7.5", ""), ("0", "red"), ("-1", "red")])
def test_a_balance_that_is_used_up_is_red(balance: str, style: str) -> None:
    [sheet] = money_sheets([MONEY.model_copy(update={"balance_usd": Decimal(balance)})])
    cell = sheet.rows[0][2]
    assert isinstance(cell, Text)
    assert cell.style == style


def test_an_overdraft_stands_beside_the_balance() -> None:
    [sheet] = money_sheets([MONEY.model_copy(update={"overdraft_usd": Decimal("1.5")})])
    assert words(sheet.rows[0])[2] == "$7.5 (+$1.5)"


def test_budgets_stand_below_the_balances() -> None:
    sheets = money_sheets([MONEY.model_copy(update={"budgets": [BUDGET]}), MONEY])
    assert [len(sheet.rows) for sheet in sheets] == [2, 1]


def test_a_budget_says_what_is_spent_and_when_it_begins_anew(nowhere: Meridian) -> None:
    words_of = words(budget_sheet([BUDGET]).rows[0])
    assert words_of[:4] == ["key_1", "daily", "$5", "$1.25"]
    assert words_of[4].startswith("01-15")


def test_a_lifetime_budget_never_begins_anew() -> None:
    lifetime = BUDGET.model_copy(update={"interval": Interval.LIFETIME, "resets_at": None})
    assert words(budget_sheet([lifetime]).rows[0])[4] == "never"


def test_a_budget_that_is_used_up_is_red() -> None:
    cell = budget_sheet([BUDGET.model_copy(update={"spent_usd": Decimal(5)})]).rows[0][3]
    assert isinstance(cell, Text)
    assert cell.style == "red"


def test_a_lease_of_a_billionth_of_a_dollar_is_not_nothing() -> None:
    assert words(lease_sheet([LEASE]).rows[0])[:4] == ["lease_1", "team_1", "edge_1", "$0.000000001"]


def test_money_that_was_taken_back_has_its_sign_before_the_dollar() -> None:
    taken = CREDIT.model_copy(update={"amount_usd": Decimal("-0.50")})
    assert words(credit_sheet([taken], "acme").rows[0])[1] == "-$0.5"


def test_a_credit_names_who_gave_it_and_why() -> None:
    assert words(credit_sheet([CREDIT], "acme").rows[0])[1:] == ["$25", "operator:olga", "gift"]


def test_no_credits_say_how_to_give_one() -> None:
    assert credit_sheet([], "acme").empty == "No credits yet: meridian teams credit acme USD --reason TEXT"


@pytest.mark.parametrize(("team", "key", "path"), [
    ("acme", "", "team/acme"), ("", "key_1", "key/key_1"), ("a/b", "", "team/a%2Fb")])
def test_a_scope_is_one_segment_of_a_path(team: str, key: str, path: str) -> None:
    assert whose(team, key) == path


@pytest.mark.parametrize(("team", "key"), [("", ""), ("acme", "key_1")])
def test_a_budget_is_exactly_one_ones(team: str, key: str) -> None:
    with pytest.raises(UsageFault, match="--team TEAM or --key KEY_ID"):
        whose(team, key)


def test_a_credit_may_be_asked_for_again_without_being_given_twice(meridian: Meridian, api: OperatorServer) -> None:
    api.scripted.append(Raw(200, CREDIT.model_dump_json().encode()))
    assert meridian("teams", "credit", "acme", "25", "--reason", "gift").code == 0
    assert (api.calls[0].method, api.calls[0].path) == ("POST", "/operator/v1/teams/acme/credits")
    assert api.calls[0].headers["idempotency-key"]


def test_every_credit_has_a_key_of_its_own(meridian: Meridian, api: OperatorServer) -> None:
    api.scripted.extend([Raw(200, CREDIT.model_dump_json().encode())] * 2)
    for _ in range(2):
        meridian("teams", "credit", "acme", "25", "--reason", "gift")
    first, second = (call.headers["idempotency-key"] for call in api.calls)
    assert first != second


def test_a_limit_that_is_no_amount_is_never_sent(meridian: Meridian, api: OperatorServer) -> None:
    ran = meridian("budgets", "set", "--team", "acme", "--interval", "daily", "--limit", "-1")
    assert (ran.code, ran.err.startswith("error: limit_usd: ")) == (2, True)
    assert api.calls == []


def test_an_unknown_interval_is_told_which_there_are(meridian: Meridian, api: OperatorServer) -> None:
    ran = meridian("budgets", "set", "--team", "acme", "--interval", "hourly", "--limit", "1")
    assert (ran.code, "weekly" in ran.err) == (2, True)


def test_a_live_lease_is_refused_with_the_rule(meridian: Meridian, api: OperatorServer) -> None:
    api.scripted.append(Raw(409, b'{"code":"unsafe_change","message":"the edge lives","rule":"lease_in_use",'
                                 b'"numbers":{"granted_usd":"1"}}'))
    ran = meridian("money", "release", "lease_1", "--reason", "x")
    assert (ran.code, "lease_in_use" in ran.err) == (3, True)


def test_force_is_sent_with_its_reason(meridian: Meridian, api: OperatorServer) -> None:
    api.scripted.append(Raw(200, LEASE.model_dump_json().encode()))
    assert meridian("money", "release", "lease_1", "--reason", "burnt", "--force").code == 0
    assert api.calls[0].body == b'{"reason":"burnt","force":true}'


def test_the_status_asks_for_one_team_only_when_it_is_named(meridian: Meridian, api: OperatorServer) -> None:
    page = Raw(200, b'{"data":[' + MONEY.model_dump_json().encode() + b"]}")
    api.scripted.extend([page] * 2)
    assert "$7.5" in meridian("money", "status").out
    meridian("money", "status", "acme")
    assert [call.query.get("team") for call in api.calls] == [None, ["acme"]]


def test_a_lease_can_be_copied_whole_from_a_narrow_terminal() -> None:
    lease = LEASE.model_copy(update={"id": f"lease_{'1' * 32}", "scope_id": f"team_{'2' * 32}",
                                     "edge_id": f"edge_{'3' * 32}", "granted_usd": Decimal("0.000635856")})
    out = io.StringIO()
    print_sheets(Console(width=80, file=out), [lease_sheet([lease])])
    assert lease.id in out.getvalue()


@pytest.mark.parametrize(("typed", "said"), [
    (("limits", "set", "--team", "acme"),
     "error: name at least one figure: requests_per_minute, tokens_per_minute or concurrency\n"),
    (("limits", "set", "--rpm", "3"), "error: name a team or a key, one of the two\n"),
    (("budgets", "set", "--team", "acme", "--limit", "1", "--interval", "hourly"),
     "error: Invalid value for '--interval': 'hourly' is not one of 'daily', 'weekly', 'monthly', 'lifetime'.\n"),
])
def test_what_cannot_be_right_is_told_in_a_persons_words(nowhere: Meridian, typed: tuple[str, ...], said: str) -> None:
    ran = nowhere(*typed)
    assert (ran.code, ran.err) == (2, said)

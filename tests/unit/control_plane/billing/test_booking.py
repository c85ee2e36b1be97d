"""Charges summed by team, key and interval."""

from datetime import date
from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st

from control_plane.billing.booking import Charge, sums
from control_plane.contracts.money import Interval

charges = st.lists(st.builds(
    Charge, team_id=st.sampled_from(["team_1", "team_2"]), key_id=st.sampled_from(["key_1", "key_2"]),
    day=st.dates(min_value=date(2026, 1, 1), max_value=date(2026, 12, 31)),
    cost_usd=st.decimals(min_value=0, max_value=1000, places=12)), max_size=40)


def charge(cost_usd: str, day: date = date(2026, 12, 1)) -> Charge:
    return Charge("team_1", "key_1", day, Decimal(cost_usd))


def test_a_charge_counts_for_team_and_key_in_each_interval() -> None:
    rows = sums([charge("0.5")])
    assert {(row["scope"], row["scope_id"], row["interval"], row["window_start"]) for row in rows} == {
        (scope, scope_id, interval, f"{start}T00:00:00+00:00")
        for scope, scope_id in (("team", "team_1"), ("key", "key_1"))
        for interval, start in (("daily", "2026-12-01"), ("weekly", "2026-11-30"), ("monthly", "2026-12-01"),
                                ("lifetime", "1970-01-01"))}
    assert {row["spent_usd"] for row in rows} == {"0.5"}


def test_charges_of_two_days_meet_in_their_week() -> None:
    rows = sums([charge("0.5"), charge("0.25", date(2026, 11, 30))])
    weekly = {row["spent_usd"] for row in rows if row["interval"] == Interval.WEEKLY}
    daily = {row["spent_usd"] for row in rows if row["interval"] == Interval.DAILY}
    assert (weekly, daily) == ({"0.75"}, {"0.5", "0.25"})


def test_what_is_free_adds_nothing() -> None:
    assert sums([charge("0"), charge("0.000")]) == []


@given(charges)
def test_each_interval_adds_up_to_all_charges_for_teams_and_for_keys(made: list[Charge]) -> None:
    rows, total = sums(made), sum((charge.cost_usd for charge in made), Decimal(0))
    for scope in ("team", "key"):
        for interval in Interval:
            chosen = [Decimal(row["spent_usd"]) for row in rows if (row["scope"], row["interval"]) == (scope, interval)]
            assert sum(chosen, Decimal(0)) == total


@given(charges)
def test_no_row_is_named_twice(made: list[Charge]) -> None:
    keys = [tuple(row[name] for name in ("scope", "scope_id", "team_id", "interval", "window_start"))
            for row in sums(made)]
    assert len(keys) == len(set(keys))

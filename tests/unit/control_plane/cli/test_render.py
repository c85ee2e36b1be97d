"""Words for numbers and times, and tables that fit."""

import io
from datetime import UTC, datetime
from decimal import Decimal

import pytest
from rich.console import Console
from rich.text import Text

from control_plane.cli import render
from control_plane.cli.render import Column, Sheet


def printed(*sheets: Sheet, width: int = 80) -> str:
    out = io.StringIO()
    render.print_sheets(Console(file=out, width=width), sheets)
    return out.getvalue()


@pytest.mark.parametrize(("seconds", "text"), [
    (None, "–"), (0, "0.0s"), (1.23, "1.2s"), (42.4, "42s"), (60, "1m"), (75, "1m 15s"), (3_600, "1h"),  # noqa: RUF001
    (5_430, "1h 30m"), (86_400, "1d"), (90_000, "1d 1h"), (86_399, "23h 59m")])
def test_a_span_names_its_two_largest_units(seconds: float | None, text: str) -> None:
    assert render.span(seconds) == text


@pytest.mark.parametrize(("value", "text"), [(None, "–"), (0, "0"), (1_234_567, "1,234,567")])  # noqa: RUF001
def test_a_count_tells_unobserved_from_zero(value: int | None, text: str) -> None:
    assert render.count(value) == text


def test_money_is_exact_and_has_no_exponent() -> None:
    assert render.money(Decimal("0.00000011")) == "$0.00000011"
    assert render.money(Decimal("12.500")) == "$12.5"


def test_a_share_shows_what_nobody_reported() -> None:
    assert render.share(None, 2) == "–/2"  # noqa: RUF001
    assert render.share(1, 2) == "1/2"


def test_a_moment_is_in_the_readers_zone() -> None:
    at = datetime(2027, 1, 15, 8, 0, tzinfo=UTC)
    assert render.moment(at) == at.astimezone().strftime("%Y-%m-%d %H:%M:%S")
    assert render.moment(None) == "–"  # noqa: RUF001


@pytest.mark.parametrize(("identifier", "short"), [
    ("edge_019ac7aa0000700080000000deadbeef", "edge_…adbeef"), ("edge_1", "edge_1"), ("us-east-1", "us-east-1"),
    ("a_short_name", "a_short_name")])
def test_long_identifiers_keep_their_kind_and_their_end(identifier: str, short: str) -> None:
    assert render.short_id(identifier) == short


def test_an_empty_sheet_says_what_to_do() -> None:
    assert printed(Sheet([Column("A")], [], "Nothing yet: do this.")) == "Nothing yet: do this.\n"


def test_sheets_stand_apart() -> None:
    sheet = Sheet([Column("A"), Column("N", right=True)], [["x", "1"], ["y", "1,000"]], "")
    assert [line.rstrip() for line in printed(sheet, sheet).splitlines()] == [
        "A      N", "x      1", "y  1,000", "", "A      N", "x      1", "y  1,000"]


def test_a_loose_column_gives_way_on_a_narrow_terminal() -> None:
    sheet = Sheet([Column("ID"), Column("WHY", loose=True)], [["op_123456789", "a long story about nothing"]], "")
    lines = printed(sheet, width=30).splitlines()
    assert all(len(line) <= 30 for line in lines)
    assert "op_123456789" in lines[1]


def test_notes_stand_below_their_table() -> None:
    sheet = Sheet([Column("A")], [["x"]], "", [Text("look at x")])
    assert printed(sheet).splitlines()[-1].rstrip() == "  look at x"


def test_plain_lines_have_tabs_and_no_breaks() -> None:
    sheet = Sheet([Column("A"), Column("B")], [[Text("x", style="red"), "two\nlines"]], "")
    assert list(sheet.lines()) == ["A\tB", "x\ttwo lines"]


def test_markup_in_a_value_is_only_text() -> None:
    assert "[red]x[/red]" in printed(Sheet([Column("A")], [["[red]x[/red]"]], ""))


def test_a_state_is_coloured_and_an_unknown_one_is_not() -> None:
    assert render.state("active").style == render.GOOD
    assert render.state("novel").style == ""


def test_a_value_cannot_steer_the_terminal() -> None:
    sheet = Sheet([Column("A")], [["\x1b[2Jx"], [Text("\x1b[2Jy", style="red")]], "")
    assert "\x1b" not in printed(sheet)
    assert "\x1b" not in "".join(sheet.lines())

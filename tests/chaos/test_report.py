"""What people read at the end of a run: every figure, what broke, and how to run it again."""

import io

from rich.console import Console

from tests.chaos.__main__ import again, parser
from tests.chaos.checker import Property, none_of
from tests.chaos.report import Report
from tests.chaos.scenarios.every import every

GOOD = none_of("records lost", [])
BAD = none_of("records doubled", ["id1 twice", "id2 twice"])


def told(*properties: Property, command: str = "./dev chaos") -> str:
    output = io.StringIO()
    report = Report(Console(file=output, width=120))
    report.table("kills", properties)
    report.verdict(properties, command)
    return output.getvalue()


def test_a_good_run_says_how_many_properties_hold() -> None:
    assert "all 1 properties hold" in told(GOOD, Property("requests", "70"))


def test_a_broken_property_is_marked_with_its_examples() -> None:
    text = told(GOOD, BAD)
    assert "1 of 2 properties broken" in text
    assert "records doubled: id1 twice" in text
    assert "✗" in text


def test_it_ends_with_the_command_that_repeats_it() -> None:
    assert "Again: ./dev chaos --seed 7" in told(GOOD, command=again([], None, 7))


def test_a_seed_that_was_given_is_not_given_twice() -> None:
    assert again(["--seed", "7", "--kills", "3"], 7, 7) == "./dev chaos --seed 7 --kills 3"


def test_a_live_line_is_left_out_where_nobody_watches() -> None:
    output = io.StringIO()
    report = Report(Console(file=output, width=120))
    for number in range(100):
        report.now(f"look {number}")
    assert output.getvalue().count("look") <= 1


def test_help_names_every_scenario() -> None:
    assert all(name in parser(every()).format_help() for name in every())

"""Lengths of time as people type them."""

import pytest
import typer

from control_plane.cli.durations import parse_duration


@pytest.mark.parametrize(("text", "seconds"), [
    ("90s", 90), ("10m", 600), ("2h", 7_200), ("1d", 86_400), ("1h30m", 5_400), ("1.5h", 5_400), (" 5m ", 300)])
def test_a_length_of_time_is_seconds(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


def test_a_number_is_seconds_already() -> None:
    assert parse_duration(12.5) == 12.5


@pytest.mark.parametrize("text", ["", "10", "m", "10x", "-5m", "10m!", "ten minutes", "1e3s"])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="is no length of time: write 90s, 10m, 2h or 1d"):
        parse_duration(text)

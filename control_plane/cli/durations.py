"""Lengths of time as people type them: `90s`, `10m`, `2h`, `1d`."""

import re
from typing import Any

import typer

UNITS_S = {"s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}
PATTERN = re.compile(r"(\d+(?:\.\d+)?)([smhd])")


def parse_duration(text: str | float) -> float:
    """Seconds of `90s`, `10m`, `1h30m`; what is a number already (an option's default) stays.

    Raises:
        BadParameter: it is no length of time.
    """
    if isinstance(text, int | float):
        return float(text)
    parts = PATTERN.findall(text.strip())
    if not parts or "".join(number + unit for number, unit in parts) != text.strip():
        raise typer.BadParameter(f"{text!r} is no length of time: write 90s, 10m, 2h or 1d")
    return sum(float(number) * UNITS_S[unit] for number, unit in parts)


def duration(name: str, help: str) -> Any:
    """An option that takes a length of time, as seconds. `help` says the default as people would write it."""
    return typer.Option(name, parser=parse_duration, metavar="DURATION", help=help, show_default=False)



"""How long the command line takes to say something."""

import subprocess
import sys
from pathlib import Path
from statistics import median

from tests.bench.harness import CLOCK, Figures, verdict

NAME = "command-line"
SUMMARY = "meridian --help and meridian status without a stack: seconds, median of nine (yardstick 0.5 s)"

MERIDIAN = str(Path(sys.executable).with_name("meridian"))
LIMIT_S = 0.5
TIMES = 9
DEADLINE_S = 30.0


def main() -> Figures:
    """Runs both a few times and takes the medians."""
    help_s, status_s = (median(seconds(arguments) for _ in range(TIMES))
                        for arguments in (["--help"], ["status", "--state", "/nonexistent"]))
    print(f"meridian --help   {help_s:.2f} s  {verdict(help_s, LIMIT_S)} s")
    print(f"meridian status   {status_s:.2f} s  without a stack")
    return {"help_s": round(help_s, 3), "status_s": round(status_s, 3), "within": help_s <= LIMIT_S}


def seconds(arguments: list[str]) -> float:
    """How long one run takes."""
    began_s = CLOCK.monotonic_s()
    subprocess.run([MERIDIAN, *arguments], capture_output=True, timeout=DEADLINE_S, check=False)
    return CLOCK.monotonic_s() - began_s

"""Each fuzzer for a while, as anybody can run it: `python -m tests.fuzz.campaign NAME SECONDS`."""

import re
import subprocess
import sys

import pytest

from tests.fuzz.harnesses import HARNESSES

SECONDS = 20
LEAST_RUNS = 500


@pytest.mark.slow
@pytest.mark.parametrize("name", HARNESSES)
def test_a_campaign_finds_nothing(name: str) -> None:
    ran = subprocess.run([sys.executable, "-m", "tests.fuzz.campaign", name, str(SECONDS)], capture_output=True,
                         text=True, errors="replace", timeout=110, check=False)
    assert ran.returncode == 0, ran.stderr[-6_000:]
    runs = re.search(r"number_of_executed_units: (\d+)", ran.stderr)
    assert runs is not None, ran.stderr[-6_000:]
    assert int(runs[1]) > LEAST_RUNS

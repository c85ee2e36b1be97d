"""Each fuzzer for a while, as anybody can run it: `python -m tests.fuzz.campaign NAME SECONDS`."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz.harnesses import HARNESSES

SECONDS = 20
LEAST_RUNS = 500


@pytest.mark.slow
@pytest.mark.parametrize("name", HARNESSES)
def test_a_campaign_finds_nothing(name: str, tmp_path: Path) -> None:
    ran = subprocess.run([sys.executable, "-m", "tests.fuzz.campaign", name, str(SECONDS)], capture_output=True,
                         text=True, errors="replace", timeout=110, check=False,
                         env=os.environ | {"TMPDIR": str(tmp_path)})
    assert ran.returncode == 0, ran.stderr[-6_000:]
    runs = re.search(r"number_of_executed_units: (\d+)", ran.stderr)
    assert runs is not None, ran.stderr[-6_000:]
    assert int(runs[1]) > LEAST_RUNS

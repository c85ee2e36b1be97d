"""A seed is the same story every time, whoever tells it: a failure that cannot be replayed cannot be mended."""

import os
import subprocess
import sys

from tests.simulation.run import run_many, run_seed

SEED = 23


def test_a_seed_is_the_same_story_twice() -> None:
    first = run_seed(SEED)
    run_seed(SEED + 1)
    assert run_seed(SEED).digest == first.digest


def test_two_seeds_are_two_stories() -> None:
    assert run_seed(SEED).digest != run_seed(SEED + 1).digest


def test_a_seed_is_the_same_story_in_another_process_with_other_hashes() -> None:
    here = run_seed(SEED)
    for hashes in ("1", "2"):
        told = subprocess.run(
            [sys.executable, "-m", "tests.simulation", "--start", str(SEED), "--trace"], capture_output=True, text=True,
            check=True, env={**os.environ, "PYTHONHASHSEED": hashes})
        assert f"digest {here.digest}" in told.stdout


def test_seeds_side_by_side_find_what_seeds_in_a_row_find() -> None:
    together, alone = run_many(SEED, 4, jobs=2), run_many(SEED, 4, jobs=1)
    assert (together.steps, together.reached) == (alone.steps, alone.reached)


def test_the_trace_tells_a_story_that_people_can_read() -> None:
    lines: list[str] = []
    run_seed(SEED, lines.append)
    text = "\n".join(lines)
    for words in ("published 1.1 for bootstrap", "snapshot_taken lineage=1", "the faults are over"):
        assert words in text

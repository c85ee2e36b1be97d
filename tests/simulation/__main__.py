"""`./dev simulate [--seeds N] [--start S] [--trace] [--plant NAME]`: seeds of the simulated world, and what they found.

A seed that fails prints what was violated, its last events, and the command that replays it.
"""

import argparse
import sys
from contextlib import nullcontext

from tests.simulation.plants import PLANTS, planted
from tests.simulation.run import Campaign, SeedOutcome, run_many, run_seed
from tests.simulation.situations import ENOUGH_SEEDS, REQUIRED, missing


def main(arguments: list[str]) -> int:
    """Exit status 1: something was violated, or a situation was missed by a run that is long enough for all."""
    asked = _parser().parse_args(arguments)
    if asked.trace:
        with planted(asked.plant) if asked.plant else nullcontext():
            return _trace(asked.start)
    campaign = run_many(asked.start, asked.seeds, asked.jobs, asked.failures, _progress, asked.steps, asked.plant)
    if sys.stderr.isatty():
        print(file=sys.stderr)  # noqa: T201
    return tell(campaign)


def tell(campaign: Campaign) -> int:
    """Prints what came of it; the exit status."""
    for failed in campaign.failures:
        print(failure(failed))  # noqa: T201
    for situation in sorted(campaign.reached):
        mark = "*" if situation in REQUIRED else " "
        print(f"{campaign.reached[situation]:>9,} {mark} {situation}")  # noqa: T201
    missed = missing(campaign.reached)
    is_enough = campaign.seeds >= ENOUGH_SEEDS
    for situation in missed if is_enough else ():
        print(f"        0 * {situation}: NEVER REACHED")  # noqa: T201
    print(  # noqa: T201
        f"{campaign.seeds:,} seeds, {campaign.steps:,} steps in {campaign.wall_s:.0f} s: {len(campaign.failures)} "
        f"seeds violated something; {len(REQUIRED) - len(missed)} of {len(REQUIRED)} situations reached"
        + ("" if is_enough or not missed else f" (it takes {ENOUGH_SEEDS} seeds for all)"))
    return 1 if campaign.failures or (missed and is_enough) else 0


def failure(failed: SeedOutcome) -> str:
    """A seed that failed, in words."""
    assert failed.violation is not None
    invariant, words = failed.violation
    return "\n".join((f"seed {failed.seed} violated: {invariant}", f"  {words}", "  the last events:",
                      *(f"  {line}" for line in failed.last),
                      f"  to see all of it: ./dev simulate --start {failed.seed} --seeds 1 --trace", ""))


def _trace(seed: int) -> int:
    outcome = run_seed(seed, print)
    print(f"digest {outcome.digest}, {outcome.steps:,} steps")  # noqa: T201
    if outcome.violation is None:
        return 0
    print(failure(outcome))  # noqa: T201
    return 1


def _progress(campaign: Campaign) -> None:
    if sys.stderr.isatty() and campaign.seeds % 10 == 0:
        print(f"\r{campaign.seeds:,} seeds, {campaign.steps:,} steps, {campaign.wall_s:.0f} s", end="", file=sys.stderr,  # noqa: T201
              flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="./dev simulate", description="Runs seeds of the simulated world.")
    parser.add_argument("--seeds", type=int, default=ENOUGH_SEEDS, help=f"how many (default {ENOUGH_SEEDS})")
    parser.add_argument("--start", type=int, default=0, help="the first seed (default 0)")
    parser.add_argument("--steps", type=int, default=None, help="stop once so many steps were made in all")
    parser.add_argument("--trace", action="store_true", help="tell all that happens in the first seed, and stop")
    parser.add_argument("--plant", choices=sorted(PLANTS), default="", help="plant a bug, which must be found")
    parser.add_argument("--jobs", type=int, default=None, help="processes side by side (default: one a core)")
    parser.add_argument("--failures", type=int, default=3, help="stop after so many failed seeds (default 3)")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Runs seeds, side by side, and tells what came of them."""

import multiprocessing
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, field

from tests.simulation.plants import PLANTS, planted
from tests.simulation.story import Story
from tests.simulation.world import World


@dataclass(frozen=True)
class SeedOutcome:
    """What came of one seed; `violation` is null when everything held."""

    seed: int
    digest: str
    steps: int
    reached: dict[str, int]
    violation: tuple[str, str] | None = None
    last: tuple[str, ...] = ()


@dataclass
class Campaign:
    """What came of many seeds."""

    seeds: int = 0
    steps: int = 0
    wall_s: float = 0.0
    reached: Counter[str] = field(default_factory=Counter)
    failures: list[SeedOutcome] = field(default_factory=list)


def run_seed(seed: int, tell: Callable[[str], None] | None = None) -> SeedOutcome:
    """One seed, from its beginning to its end."""
    world = World(seed, tell)
    story: Story = world.run()
    found = story.violation
    return SeedOutcome(seed, story.digest, story.events, dict(story.reached),
                       None if found is None else (found.invariant, found.words), tuple(story.last) if found else ())


def run_many(start: int, seeds: int, jobs: int | None = None, most_failures: int = 3,
             on_done: Callable[[Campaign], None] = lambda campaign: None, most_steps: int | None = None,
             plant: str = "") -> Campaign:
    """`seeds` seeds from `start` on, with the bug `plant` in them; stops after `most_failures` that failed, or
    `most_steps` steps, or when it is interrupted."""
    campaign, began_s = Campaign(), time.monotonic()
    outcomes = _outcomes(range(start, start + seeds), jobs or os.cpu_count() or 1, plant)
    while (outcome := _next(outcomes)) is not None:
        campaign.seeds += 1
        campaign.steps += outcome.steps
        campaign.reached.update(outcome.reached)
        campaign.wall_s = time.monotonic() - began_s
        if outcome.violation is not None:
            campaign.failures.append(outcome)
            if len(campaign.failures) >= most_failures:
                break
        on_done(campaign)
        if most_steps is not None and campaign.steps >= most_steps:
            break
    return campaign


def _outcomes(seeds: range, jobs: int, plant: str) -> Iterator[SeedOutcome]:
    if jobs == 1 or len(seeds) == 1:
        with planted(plant) if plant else nullcontext():
            yield from map(run_seed, seeds)
        return
    workers = ProcessPoolExecutor(jobs, multiprocessing.get_context("forkserver"), _plant, (plant,))
    try:
        yield from workers.map(run_seed, seeds, chunksize=4)
    finally:
        workers.shutdown(cancel_futures=True)


def _next(outcomes: Iterator[SeedOutcome]) -> SeedOutcome | None:
    try:
        return next(outcomes, None)
    except KeyboardInterrupt:
        return None


def _plant(name: str) -> None:
    """A worker is a process of its own: what is planted here is not planted there. It leaves interrupts to this one."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if name:
        PLANTS[name]()

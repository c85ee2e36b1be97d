"""`./dev chaos`: kills, drains, darkens and unplugs a real local stack under load, and proves what must hold.

Exit code 0 if every property holds, 1 if one does not, 2 for a command line that means nothing.
"""

import argparse
import asyncio
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

from control_plane.contracts.ids import uuid7
from tests.chaos.checker import Property, failures
from tests.chaos.report import Report
from tests.chaos.scenarios.every import every
from tests.chaos.scenarios.scenario import Scenario, Size
from tests.chaos.small import small_world
from tests.chaos.world import World
from tests.e2e.stack import LocalStack, state_directory

SKIP_LOCK, SHIP_BEFORE_FSYNC, RESTAMP_ID = "skip_lock", "ship_before_fsync", "restamp_id"
RACES = "tests/integration/control_plane/operations/test_races.py"
PLANTED_KILLS = 3
DATACENTERS, EDGES, REPLICAS = 3, 2, 2


def main(arguments: list[str]) -> int:
    """Runs the scenarios that are asked for, one after the other, on one stack."""
    scenarios = every()
    asked = parser(scenarios).parse_args(arguments)
    if asked.plant:
        return planted(asked.plant, asked.seed or 0, asked.kills if "--kills" in arguments else PLANTED_KILLS)
    chosen = [scenarios[name] for name in asked.scenario or scenarios]
    seed = asked.seed if asked.seed is not None else uuid7().int % 1_000_000
    size = Size(kills=asked.kills, requests=asked.requests, outage_s=asked.outage, per_s=asked.rate)
    report = Report()
    place = Path(tempfile.mkdtemp(prefix="meridian-chaos-"))
    report.say(f"seed {seed}; the history is kept in {place}")
    found: list[Property] = []
    with state_directory() as state:
        stack = LocalStack(state, datacenters=DATACENTERS, edges=EDGES, replicas=REPLICAS)
        try:
            report.say(f"a stack of {DATACENTERS} datacenters, {EDGES} edges and {REPLICAS} replicas: up after "
                       f"{stack.start():.0f} s")
            for scenario in chosen:
                found += run(scenario, stack, place / scenario.name, seed, size, report)
        finally:
            keep_logs(state, place)
            stack.kill_all() if sys.exc_info()[0] else stop(stack)
    report.verdict(found, again(arguments, asked.seed, seed))
    return 1 if failures(found) else 0


def planted(plant: str, seed: int, kills: int) -> int:
    """A run with a known bug in it: 1, as for any other bug, if it was caught."""
    if plant == SKIP_LOCK:
        return subprocess.run([sys.executable, "-m", "pytest", "-q", "-p", f"tests.chaos.plants.{plant}", RACES],
                              check=False).returncode
    report = Report()
    with tempfile.TemporaryDirectory(prefix="meridian-chaos-") as place:
        found = asyncio.run(_small_run(Path(place), seed, plant, kills))
    report.table(f"{plant}, planted into an edge that dies {kills} times", found)
    report.verdict(found, shlex.join(["./dev", "chaos", "--plant", plant, "--seed", str(seed)]))
    return 1 if failures(found) else 0


async def _small_run(directory: Path, seed: int, plant: str, kills: int) -> list[Property]:
    async with small_world(directory, seed, plant, forgets=plant == SHIP_BEFORE_FSYNC) as world:
        await world.run(kills)
        return world.properties()


def run(scenario: Scenario, stack: LocalStack, directory: Path, seed: int, size: Size, report: Report,
        ) -> list[Property]:
    """One scenario, from a settled stack to its table."""
    stack.settle()
    world = World(stack, directory, seed, report)
    try:
        found = scenario.run(world, size)
    finally:
        world.close()
    report.table(f"{scenario.name}: {scenario.summary}", found)
    return found


def stop(stack: LocalStack) -> None:
    """As Ctrl-C does; whatever is left then, is killed."""
    try:
        stack.stop()
    finally:
        stack.kill_all()


def keep_logs(state: Path, place: Path) -> None:
    """The logs of the stack beside the history, for whoever looks for a reason."""
    for log in state.glob("**/*.log"):
        target = place / "logs" / log.relative_to(state)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(log.read_bytes())


def again(arguments: list[str], given: int | None, seed: int) -> str:
    """The command that does the same once more."""
    return shlex.join(["./dev", "chaos", *arguments, *([] if given is not None else ["--seed", str(seed)])])


def parser(scenarios: dict[str, Scenario]) -> argparse.ArgumentParser:
    """What may be asked for."""
    size = Size()
    lines = "\n".join(f"  {one.name:<12} {one.summary}" for one in scenarios.values())
    found = argparse.ArgumentParser(
        "./dev chaos", description=f"Does harm to a real local stack under load and proves what must hold.\n\n{lines}",
        formatter_class=argparse.RawDescriptionHelpFormatter)
    found.add_argument("--scenario", action="append", choices=sorted(scenarios), metavar="NAME",
                       help="only this one; may be given several times")
    found.add_argument("--plant", choices=(SKIP_LOCK, SHIP_BEFORE_FSYNC, RESTAMP_ID), metavar="NAME",
                       help="run with this known bug instead, to see it caught: %(choices)s")
    found.add_argument("--seed", type=int, help="of all chance; without it a new one, which is printed")
    found.add_argument("--kills", type=int, default=size.kills, help="how many processes die (default: %(default)s)")
    found.add_argument("--requests", type=int, default=size.requests,
                       help="requests under drains (default: %(default)s)")
    found.add_argument("--outage", type=float, default=size.outage_s, metavar="SECONDS",
                       help="how long the control plane is away (default: %(default)s)")
    found.add_argument("--rate", type=float, default=size.per_s, metavar="PER_S",
                       help="requests a second under kills (default: %(default)s)")
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""An operator drains datacenters, one after the other, and brings each back, under load: no client notices."""

import json
import time

from control_plane.contracts.clock import SystemClock
from tests.chaos import checker
from tests.chaos.checker import Property
from tests.chaos.history import Moved
from tests.chaos.scenarios.scenario import Scenario, Size
from tests.chaos.world import Running, World

CLOCK = SystemClock()
PER_S = 80.0
PAUSE_S = 0.5
COMMAND_DEADLINE_S = 120.0


def run(world: World, size: Size) -> list[Property]:
    """As many requests as the size says, with drains from the first to the last."""
    world.prepare()
    moves: list[Moved] = []
    with world.load(per_s=PER_S, at_most=size.requests, tries=1) as load:
        while not load.is_over and load.counts()["ended"] < size.requests:
            for datacenter in world.datacenters:
                moves += [order(world, kind, datacenter, load) for kind in ("drain", "restore")]
                if load.is_over:
                    break
    seen = world.history()
    found, windows = world.collect(seen), world.windows(seen)
    ended = [move for move in moves if move.state == "succeeded"]
    drains = [move.ended_s - move.at_s for move in ended if move.kind == "drain"]
    longest = f"{max(drains, default=0.0):.1f} s"
    return [
        Property("drains and restores that succeeded", f"{len(ended)} of {len(moves)}", "all",
                 bool(ended) and len(ended) == len(moves),
                 tuple(f"{one.kind} {one.datacenter}: {one.state}" for one in moves if one.state != "succeeded")),
        Property("the longest drain, as its command took", longest),
        *checker.traffic(seen), *checker.clients(seen, windows), *checker.usage(seen, found, windows),
        *checker.operations(found), *checker.rest(found)]


def order(world: World, kind: str, datacenter: str, load: Running) -> Moved:
    """Orders it as an operator does, and waits as he does."""
    at_s = CLOCK.time_s()
    world.report.now(f"{kind} {datacenter}; {load.words()}")
    done = world.stack.meridian(kind, datacenter, "--reason", "chaos", "--wait", "-y", "-o", "json",
                                deadline_s=COMMAND_DEADLINE_S)
    try:
        operation = json.loads(done.stdout)["operation"] or {}
    except (ValueError, KeyError):
        operation = {"state": done.stderr.strip()[-200:]}
    moved = Moved(kind, datacenter, at_s, CLOCK.time_s(), operation.get("state", "refused"), operation.get("id", ""),
                  done.returncode)
    world.journal.write(moved)
    time.sleep(PAUSE_S)
    return moved


SCENARIO = Scenario("drain", "drain and restore every datacenter under load: no client sees anything", run)

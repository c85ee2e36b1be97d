"""The planner against thirty days of made-up traffic: daily and weekly waves, growth, noise, bursts, and a datacenter
that is away for hours in the middle. The planner is the real one; replicas take minutes to be ready, and requests go
where edges would send them: by equal weights, and on to others where a datacenter is full.

``python -m tests.simulation.planner_traces --traces N --start S`` runs many; a seed is one trace, always the same.
"""

import argparse
import math
import random
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from control_plane.capacity.demand import DAYS, SLOTS_AHEAD, SLOTS_BEFORE, Day, Slot, forecast, observed
from control_plane.capacity.hysteresis import Limits, PastMove, PoolKey, Signals, swings
from control_plane.capacity.observed import Fleet, Observed, Policy, Pool
from control_plane.capacity.planner import Plan, plan
from control_plane.contracts.deployment import PoolRole

MINUTES_A_DAY, SLOT_MINUTES = 1_440, 10
EVERY_MINUTES = 5
READY_AFTER_MINUTES = 6
POLICY = Policy(limits=Limits(interval_s=EVERY_MINUTES * 60.0))


@dataclass
class Traffic:
    """Concurrent requests of one model, minute by minute; `prefilling` is the share that waits for a first token."""

    requests: list[float]
    prefilling: float


@dataclass
class Replicas:
    """A pool as the world runs it: wanted, and when those that are on their way will be ready."""

    pool: Pool
    wanted: int
    coming: list[int] = field(default_factory=list)

    def ready(self, minute: int) -> int:
        self.coming = [at for at in self.coming if at > minute]
        return self.wanted - len(self.coming)

    def change(self, after: int, minute: int) -> None:
        grown = after - self.wanted
        self.coming += [minute + READY_AFTER_MINUTES] * max(grown, 0)
        self.coming = self.coming[:max(0, len(self.coming) + min(grown, 0))]
        self.wanted = after


class Samples:
    """A pool's load by minute, and by ten minutes for the forecast."""

    def __init__(self) -> None:
        self.minutes: list[float] = []
        self._slots: list[Slot] = []

    def add(self, load: float) -> None:
        self.minutes.append(load)
        if len(self.minutes) % SLOT_MINUTES == 0:
            last = self.minutes[-SLOT_MINUTES:]
            self._slots.append(Slot(max(last), sum(last) / SLOT_MINUTES))

    def day(self, back: int) -> Day:
        """The slots around this time of day, `back` days ago."""
        first = len(self._slots) - back * MINUTES_A_DAY // SLOT_MINUTES - SLOTS_BEFORE
        return {at: self._slots[first + at] for at in range(SLOTS_BEFORE + SLOTS_AHEAD)
                if 0 <= first + at < len(self._slots)}


@dataclass
class Outcome:
    """What came of a trace. `short_minutes`: minutes of a model in which its ready replicas could not hold all
    requests; `static_gpu_hours`: what it takes to hold the highest peak all the time by the same rules."""

    moves: list[PastMove]
    minutes: int
    short_minutes: int
    requests: float
    short_requests: float
    gpu_hours: float
    static_gpu_hours: float
    most_step_share: float
    over_gpus: int

    @property
    def swings(self) -> int:
        """Moves that were undone within half an hour."""
        return len(swings(self.moves, 1_800.0))

    @property
    def faults(self) -> list[str]:
        """What no trace may show."""
        found = [f"{self.swings} swings"] if self.swings else []
        found += [f"{self.over_gpus} GPUs too many"] if self.over_gpus > 0 else []
        return found + ([f"{self.most_step_share:.0%} of a fleet in one step"] if self.most_step_share > 0.25 else [])


@dataclass
class Sum:
    """What came of many traces."""

    traces: int = 0
    moves: int = 0
    swings: int = 0
    minutes: int = 0
    short_minutes: int = 0
    requests: float = 0.0
    short_requests: float = 0.0
    gpu_hours: float = 0.0
    static_gpu_hours: float = 0.0

    def add(self, found: Outcome) -> None:
        self.traces += 1
        self.moves += len(found.moves)
        self.swings += found.swings
        for name in ("minutes", "short_minutes", "requests", "short_requests", "gpu_hours", "static_gpu_hours"):
            setattr(self, name, getattr(self, name) + getattr(found, name))

    @property
    def short_minute_share(self) -> float:
        return self.short_minutes / self.minutes

    @property
    def short_request_share(self) -> float:
        return self.short_requests / self.requests

    @property
    def gpu_hour_share(self) -> float:
        return self.gpu_hours / self.static_gpu_hours


class World:
    """One seed's fleets, models, traffic and planner."""

    def __init__(self, seed: int, days: int = 30, policy: Policy = POLICY) -> None:
        self.chance, self.policy = random.Random(seed), policy
        self.minutes = days * MINUTES_A_DAY
        places = self.chance.choice([2, 3, 3, 4])
        self.fleets = {f"f{n}": Fleet(f"f{n}", f"dc{n}", f"region{n % 2}", 0) for n in range(places)}
        models = [f"m{n}" for n in range(self.chance.choice([1, 2]))]
        self.pools: dict[PoolKey, Replicas] = {}
        self.traffic: dict[str, Traffic] = {}
        for model in models:
            self._deploy(model)
        each = math.ceil(self._static_gpus() / places * self.chance.uniform(1.0, 1.5))
        self.fleets = {name: replace(fleet, gpu_total=each) for name, fleet in self.fleets.items()}
        self.away = self._failover()
        self.samples = {key: Samples() for key in self.pools}
        self.signals, self.history = Signals(), list[PastMove]()

    def run(self) -> Outcome:
        """All of the trace."""
        found = Outcome([], self.minutes * len(self.traffic), 0, 0.0, 0.0, 0.0, self._static_gpus() * self.minutes / 60,
                        0.0, 0)
        for minute in range(self.minutes):
            self._serve(minute, found)
            if minute % EVERY_MINUTES == EVERY_MINUTES - 1:
                self._apply(self.plan(minute), minute, found)
        found.moves = self.history
        return found

    def plan(self, minute: int) -> Plan:
        """What the planner says now."""
        now_s = 60.0 * (minute + 1)
        fleets = {name: replace(fleet, takes_traffic=not self._is_away(name, minute))
                  for name, fleet in self.fleets.items()}
        pools = tuple(replace(one.pool, replicas=one.wanted, ready=one.ready(minute)) for one in self.pools.values())
        demand = {}
        for key, samples in self.samples.items():
            expected = forecast(samples.day(0), [samples.day(back) for back in range(1, DAYS + 1)])
            demand[key] = observed(samples.minutes[-30:], [None] * 30, expected)
        peaks = {model: math.ceil(max(map(sum, zip(*(
            self.samples[key].minutes[-30:] for key, one in self.pools.items()
            if one.pool.model_id == model and one.pool.role is PoolRole.DECODE), strict=True))))
            for model in self.traffic}
        recent = tuple(move for move in self.history if now_s - move.at_s < 3_600)
        found = plan(Observed(fleets, pools, peaks, signals=self.signals, history=recent), demand,
                     self.policy, now_s)
        self.signals = found.signals
        return found

    def _deploy(self, model: str) -> None:
        base = self.chance.uniform(60, 600)
        holds, gpus = self.chance.choice([16, 32, 64]), self.chance.choice([1, 2])
        self.traffic[model] = Traffic(list(_wave(self.chance, base, self.minutes)), self.chance.uniform(0.1, 0.3))
        for name in self.fleets:
            for role, part in ((PoolRole.DECODE, 1.0), (PoolRole.PREFILL, self.traffic[model].prefilling)):
                first = max(1, math.ceil(part * self.traffic[model].requests[0] / len(self.fleets) / holds / 0.5))
                key = (f"{name}-{model}", role)
                self.pools[key] = Replicas(Pool(key[0], model, name, role, first, first, gpus, holds), first)

    def _failover(self) -> tuple[str, int, int]:
        start = self.chance.randrange(self.minutes // 3, self.minutes * 2 // 3)
        return self.chance.choice(sorted(self.fleets)), start, start + self.chance.randrange(60, 240)

    def _is_away(self, fleet: str, minute: int) -> bool:
        name, start, end = self.away
        return fleet == name and start <= minute < end

    def _serve(self, minute: int, found: Outcome) -> None:
        """Shares a minute's requests out and notes what was asked of each pool."""
        for model, traffic in self.traffic.items():
            decode = {one.pool.fleet_id: one for one in self.pools.values()
                      if one.pool.model_id == model and one.pool.role is PoolRole.DECODE}
            room = {name: float(one.ready(minute) * (one.pool.max_inflight or 0)) for name, one in decode.items()
                    if not self._is_away(name, minute)}
            asked = traffic.requests[minute]
            loads = dict.fromkeys(decode, 0.0) | _shared(asked, room)
            for name, load in loads.items():
                self.samples[(f"{name}-{model}", PoolRole.DECODE)].add(load)
                self.samples[(f"{name}-{model}", PoolRole.PREFILL)].add(load * traffic.prefilling)
            short = max(0.0, asked - sum(room.values()))
            found.short_minutes += short > 0
            found.short_requests += short
            found.requests += asked
        found.gpu_hours += sum(one.wanted * one.pool.gpus_per_replica for one in self.pools.values()) / 60

    def _apply(self, made: Plan, minute: int, found: Outcome) -> None:
        changed: dict[str, int] = {}
        for move in made.moves:
            self.pools[move.pool.key].change(move.after, minute)
            self.history.append(move.past(made.at_s))
            changed[move.pool.fleet_id] = changed.get(move.pool.fleet_id, 0) + abs(move.gpus)
        for name, gpus in changed.items():
            total = self.fleets[name].gpu_total
            found.most_step_share = max(found.most_step_share, gpus / total)
            used = sum(one.wanted * one.pool.gpus_per_replica for one in self.pools.values()
                       if one.pool.fleet_id == name)
            found.over_gpus = max(found.over_gpus, used - total)

    def _static_gpus(self) -> float:
        """GPUs that hold each pool's highest minute at 80 % of what may be planned with, all month long."""
        places = len(self.fleets)
        share = (places - 1) / places
        total = 0
        for one in self.pools.values():
            traffic = self.traffic[one.pool.model_id]
            part = 1.0 if one.pool.role is PoolRole.DECODE else traffic.prefilling
            most = max(traffic.requests) * part / places
            total += math.ceil(most / ((one.pool.max_inflight or 1) * share * 0.8)) * one.pool.gpus_per_replica
        return float(total)


def _wave(chance: random.Random, base: float, minutes: int) -> Iterator[float]:
    """Requests of each minute: a daily and a weekly wave, growth, noise that lingers, and bursts."""
    depth, top, weekend = chance.uniform(0.3, 0.75), chance.uniform(0, MINUTES_A_DAY), chance.uniform(0.5, 1.0)
    growth, roughness = chance.uniform(-0.3, 1.0), chance.uniform(0.02, 0.10)
    noise, burst, burst_left = 0.0, 1.0, 0
    for minute in range(minutes):
        noise = 0.9 * noise + chance.gauss(0, roughness * 0.44)
        if burst_left == 0 and chance.random() < 1 / MINUTES_A_DAY:
            burst, burst_left = chance.uniform(1.2, 2.0), chance.randrange(5, 40)
        burst_left = max(0, burst_left - 1)
        daily = 1 + depth * math.cos(2 * math.pi * (minute - top) / MINUTES_A_DAY)
        week = weekend if minute // MINUTES_A_DAY % 7 >= 5 else 1.0
        jump = burst if burst_left else 1.0
        yield max(0.0, base * daily * week * jump * (1 + growth * minute / minutes) * math.exp(noise))


def _shared(asked: float, room: dict[str, float]) -> dict[str, float]:
    """Equal parts; what one datacenter has no room for goes on to the others, and waits where it came from if none
    has any."""
    loads = dict.fromkeys(room, 0.0)
    left, open_to = asked, sorted(room)
    while left > 1e-9 and open_to:
        part = left / len(open_to)
        for name in open_to:
            taken = min(part, room[name] - loads[name])
            loads[name] += taken
            left -= taken
        open_to = [name for name in open_to if room[name] - loads[name] > 1e-9]
    for name in room:
        loads[name] += left / len(room)
    return loads


def main(arguments: Sequence[str]) -> int:
    """Runs traces and prints what came of them; 1 if any pool swung or any bound was broken."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--traces", type=int, default=3)
    parser.add_argument("--start", type=int, default=0)
    parser.add_argument("--days", type=int, default=30)
    asked = parser.parse_args(arguments)
    total, bad = Sum(), 0
    for seed in range(asked.start, asked.start + asked.traces):
        found = World(seed, asked.days).run()
        total.add(found)
        if found.faults:
            bad += 1
            sys.stdout.write(f"seed {seed}: {', '.join(found.faults)}\n")
    sys.stdout.write(
        f"{total.traces} traces of {asked.days} days: {total.moves} moves, {total.swings} swings, "
        f"{total.short_minute_share:.4%} of minutes and {total.short_request_share:.4%} of requests over capacity, "
        f"{total.gpu_hour_share:.1%} of the GPU-hours of standing peak capacity\n")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

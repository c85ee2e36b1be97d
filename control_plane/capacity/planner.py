"""plan(observed, demand, policy, now): small safe moves of replicas, each told in words and numbers. Pure.

Every pool gets one verdict: a move, or the first rule that held it back. Moves never free what they need themselves: a
replica that was told to go keeps its GPUs until it may be gone, so what is taken from one pool serves another a few
steps later. The same input makes the same plan.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from control_plane.capacity import hysteresis, rules
from control_plane.capacity.demand import PoolDemand
from control_plane.capacity.headroom import SERVING_ROLES
from control_plane.capacity.hysteresis import Direction, PastMove, PoolKey, Signals
from control_plane.capacity.observed import Fleet, Observed, Policy, Pool
from control_plane.capacity.rules import Hold
from control_plane.capacity.wishes import Figures, Wish, wishes


@dataclass(frozen=True, slots=True)
class Move:
    """Replicas of a pool: `before` and `after`, why, and what is left then."""

    pool: Pool
    before: int
    after: int
    why: str
    leaves: str
    figures: Figures

    @property
    def gpus(self) -> int:
        """The GPUs that it takes; negative: that it gives back."""
        return (self.after - self.before) * self.pool.gpus_per_replica

    def past(self, at_s: float) -> PastMove:
        """The move as the planner remembers it."""
        pool = self.pool
        return PastMove(at_s, pool.model_id, pool.fleet_id, pool.key, self.after - self.before, self.gpus)


@dataclass(frozen=True, slots=True)
class Held:
    """A pool that stays; `wanted` is what it would be without `rule`, as many as now if it is content."""

    pool: Pool
    wanted: int
    rule: Hold
    why: str
    figures: Figures


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do now and why, ordered by pool; `signals` are to be remembered for the next plan."""

    at_s: float
    moves: tuple[Move, ...]
    held: tuple[Held, ...]
    signals: Signals


def plan(observed: Observed, demand: Mapping[PoolKey, PoolDemand], policy: Policy, now_s: float) -> Plan:
    """The moves that every rule allows now."""
    asked = wishes(observed, demand, policy, now_s)
    signals = hysteresis.follow(observed.signals, {wish.pool.key: wish.direction for wish in asked if wish.direction},
                                policy.limits, now_s)
    desk = _Desk(observed, policy, signals, now_s, asked)
    bundles: dict[tuple[str, ...], list[Wish]] = {}
    for wish in asked:
        bundles.setdefault((wish.pool.deployment_id,) if wish.together else wish.pool.key, []).append(wish)
    for bundle in sorted(bundles.values(), key=desk.turn):
        desk.decide(bundle)
    for wish in asked:
        desk.place_elsewhere(wish)
    held = {key: one for key, one in desk.held.items() if key not in desk.moves}
    return Plan(now_s, tuple(desk.moves[key] for key in sorted(desk.moves)),
                tuple(held[key] for key in sorted(held)), signals)


@dataclass(slots=True)
class _Desk:
    """A plan in the making. `replicas` are those that each pool would have; by fleet, `taken` are the GPUs that moves
    of this plan take, and `stepped` those that they change; `short` is what found no room, by pool."""

    observed: Observed
    policy: Policy
    signals: Signals
    now_s: float
    asked: Sequence[Wish]
    replicas: dict[PoolKey, int] = field(init=False)
    taken: dict[str, int] = field(default_factory=dict)
    stepped: dict[str, int] = field(default_factory=dict)
    moves: dict[PoolKey, Move] = field(default_factory=dict)
    held: dict[PoolKey, Held] = field(default_factory=dict)
    short: dict[PoolKey, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.replicas = {pool.key: pool.replicas for pool in self.observed.pools}

    def turn(self, bundle: Sequence[Wish]) -> tuple[int, float, PoolKey]:
        """When a bundle is decided: the most pressing first, but who gives before who takes where GPUs are short."""
        wish = bundle[0]
        use = wish.figures.utilisation or 0.0
        if wish.direction is Direction.DOWN:
            return (0 if self._free_gpus(self.observed.fleet_of(wish.pool)) <= 0 else 2), use, wish.pool.key
        return 1, -use, wish.pool.key

    def decide(self, bundle: Sequence[Wish]) -> None:
        """Notes a move for each of the bundle's pools, or for all of them what held the bundle back."""
        for wish in bundle:
            verdict = rules.standing(wish, self.observed, self.policy, self._coverage(wish)) or rules.past(
                wish, self.observed, self.policy, self.signals, self.now_s)
            if verdict:
                return self._hold(bundle, *verdict)
        before = dict(self.taken), dict(self.stepped)
        steps = []
        for wish in bundle:
            size, rule, why = self._size(wish)
            if size == 0 or (wish.together and size < abs(wish.after - wish.pool.replicas)):
                self.taken, self.stepped = before
                return self._hold(bundle, rule, why)
            self._take(wish, size)  # so that the pools of a bundle do not each count on the same GPUs
            steps.append(size)
        self.taken, self.stepped = before
        if bundle[0].direction is Direction.DOWN:
            size, rule, why = self._safe(bundle, min(steps))
            if size == 0:
                return self._hold(bundle, rule, why)
            steps = [size] * len(steps)
        for wish, size in zip(bundle, steps, strict=True):
            self._move(wish, size, wish.why)
        return None

    def place_elsewhere(self, wish: Wish) -> None:
        """Adds replicas in another fleet for what found no room in its own: in the same region before others. Where
        others have room as they are, says so: traffic can be shifted."""
        missing = self.short.get(wish.pool.key, 0)
        if not missing or wish.pool.role not in SERVING_ROLES or wish.together:
            return
        home = self.observed.fleet_of(wish.pool)
        others = [(fleet.region_id != home.region_id, -self._free_gpus(fleet), one.pool.key, one)
                  for one in self.asked for fleet in [self.observed.fleet_of(one.pool)]
                  if one.pool.model_id == wish.pool.model_id and one.pool.role is wish.pool.role
                  and fleet.id != home.id and fleet.takes_traffic]
        roomy = [self.observed.fleet_of(one.pool).datacenter_id for *_, one in sorted(others, key=lambda one: one[:3])
                 if one.pool.ready and (one.figures.utilisation or 0.0) < self.policy.limits.low]
        if roomy and wish.pool.key in self.held:
            held = self.held[wish.pool.key]
            hint = f"{held.why}; {roomy[0]} has room: traffic can be shifted there"
            self.held[wish.pool.key] = replace(held, why=hint)
        for *_, other in sorted((one for one in others if self._may_help(one[3])), key=lambda one: one[:3]):
            helping = replace(other, direction=Direction.UP, after=other.pool.replicas + missing)
            size, _, _ = self._size(helping)
            if size:
                return self._move(helping, size, f"{wish.pool.deployment_id} is {missing} replicas short and {home.id} "
                                                 f"has no room: {wish.why}")
        return None

    def _may_help(self, wish: Wish) -> bool:
        """Whether a pool may take over for another one: it is in use itself, and no rule forbids it to grow."""
        in_use = (wish.figures.utilisation or 0.0) >= self.policy.limits.low
        return bool(wish.pool.key not in self.moves and wish.pool.replicas and wish.pool.ready and in_use
                    and rules.standing(wish, self.observed, self.policy, wish.figures.coverage) is None
                    and rules.may_turn(wish.pool.key, Direction.UP, self.observed, self.policy, self.now_s))

    def _coverage(self, wish: Wish) -> float:
        """How much is known: of the pool to let it grow, of all of its model to let it shrink."""
        if not wish.pool.replicas:
            return 1.0
        if wish.direction is not Direction.DOWN:
            return wish.figures.coverage
        return min((one.figures.coverage for one in self.asked if one.pool.model_id == wish.pool.model_id
                    and one.pool.replicas and self.observed.fleet_of(one.pool).takes_traffic), default=0.0)

    def _size(self, wish: Wish) -> tuple[int, Hold, str]:
        """By how many replicas the pool may change, and what keeps it from more."""
        pool, fleet = wish.pool, self.observed.fleet_of(wish.pool)
        wanted = abs(wish.after - pool.replicas)
        bounds = [self._share_bound(pool, fleet)]
        if wish.direction is Direction.UP:
            if pool.maximum is not None:
                bounds.append((max(0, pool.maximum - pool.replicas), Hold.MAXIMUM, f"its maximum is {pool.maximum}"))
            free = max(0, self._free_gpus(fleet))
            fits = free // pool.gpus_per_replica if pool.gpus_per_replica else wanted
            bounds.append((fits, Hold.GPUS, f"{free} of {fleet.gpu_total} GPUs of {fleet.id} are free, and a replica "
                                            f"takes {pool.gpus_per_replica}"))
        size, rule, why = min(bounds, key=lambda bound: bound[0])
        if size < wanted and rule in (Hold.GPUS, Hold.MAXIMUM):
            self.short[pool.key] = wanted - size
        return min(size, wanted), rule, f"{wish.why}; {why}"

    def _share_bound(self, pool: Pool, fleet: Fleet) -> tuple[int, Hold, str]:
        """How many replicas a step may change: a quarter of the fleet's GPUs in five minutes, all models together."""
        limits = self.policy.limits
        if not pool.gpus_per_replica:
            allowed = max(1, pool.replicas * limits.step_percent // 100)
            return allowed, Hold.STEP_SHARE, f"a step may change {allowed} of its replicas"
        allowed = fleet.gpu_total * limits.step_percent // 100
        used = self.stepped.get(fleet.id, 0) + hysteresis.moved_gpus(
            self.observed.history, fleet.id, self.now_s - limits.step_interval_s)
        return max(0, allowed - used) // pool.gpus_per_replica, Hold.STEP_SHARE, (
            f"a step may change {allowed} of {fleet.gpu_total} GPUs of {fleet.id}, {used} of them were just changed, "
            f"and a replica holds {pool.gpus_per_replica}")

    def _free_gpus(self, fleet: Fleet) -> int:
        """GPUs that nothing uses: not those of replicas that may still be going."""
        used = sum(max(pool.replicas, pool.ready or 0) * pool.gpus_per_replica
                   for pool in self.observed.pools if pool.fleet_id == fleet.id)
        releasing = hysteresis.releasing_gpus(self.observed.history, fleet.id, self.now_s - self.policy.release_s)
        return fleet.gpu_total - used - releasing - self.taken.get(fleet.id, 0)

    def _safe(self, bundle: Sequence[Wish], size: int) -> tuple[int, Hold, str]:
        """The largest step down of at most `size` after which every safety rule still holds, and what forbids more."""
        rule, why = Hold.HEADROOM, ""
        while size:
            after = self.replicas | {wish.pool.key: wish.pool.replicas - size for wish in bundle}
            verdict = rules.broken(bundle[0].pool.model_id, after, self.observed, self.policy)
            if verdict is None:
                break
            rule, why = verdict
            size -= 1
        return size, rule, f"{bundle[0].why}; {why}"

    def _take(self, wish: Wish, size: int) -> None:
        """Counts a change of so many replicas against the fleet's step, and its free GPUs."""
        fleet_id, gpus = wish.pool.fleet_id, size * wish.pool.gpus_per_replica
        self.stepped[fleet_id] = self.stepped.get(fleet_id, 0) + gpus
        if wish.direction is Direction.UP:
            self.taken[fleet_id] = self.taken.get(fleet_id, 0) + gpus

    def _move(self, wish: Wish, size: int, why: str) -> None:
        """Takes a move down."""
        pool, fleet = wish.pool, self.observed.fleet_of(wish.pool)
        grows = wish.direction is Direction.UP
        after = pool.replicas + (size if grows else -size)
        gpus = size * pool.gpus_per_replica
        self.replicas[pool.key] = after
        self._take(wish, size)
        load = wish.figures.load if grows else wish.figures.quiet_load
        used = f"{load / (after * wish.figures.per_replica):.0%} used, " if (
            after and load is not None and wish.figures.per_replica) else ""
        room = (f"{self._free_gpus(fleet)} of {fleet.gpu_total} GPUs of {fleet.id} free" if grows else
                f"{gpus} GPUs of {fleet.id} free within {self.policy.release_s:.0f} s")
        self.moves[pool.key] = Move(pool, pool.replicas, after, why, used + room, wish.figures)

    def _hold(self, bundle: Sequence[Wish], rule: Hold, why: str) -> None:
        """Notes what held a bundle back."""
        for wish in bundle:
            self.held[wish.pool.key] = Held(wish.pool, wish.after, rule, why, wish.figures)

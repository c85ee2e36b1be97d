"""Whether edges' votes make a failover. Pure: votes in, one finding for each datacenter that anybody calls lost.

A datacenter fails over when at least two thirds of the live edges, in at least `min(2, regions with edges)` regions,
have called it lost for `after_s` without a gap. An edge is live while it polls. Edges that fell silent a short while
ago count as missing: too many of those, and what is left is no picture of the whole. A region whose edges are all cut
off still counts as a region for a day, so that one side of a cut never takes the other away by itself. One failover at
a time, and none of a datacenter that an operator has just brought back.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil

SHARE = 2 / 3
REGIONS = 2


@dataclass(frozen=True, slots=True)
class Rules:
    """Times in seconds. An edge is live for `silent_after_s` after its last word, and missing, not gone, until
    `gone_after_s`; `coverage` of those must be live. `again_after_s` is the wait after a datacenter's last restore or
    failover ended."""

    after_s: float = 30.0
    silent_after_s: float = 15.0
    gone_after_s: float = 900.0
    coverage: float = 0.8
    again_after_s: float = 600.0


@dataclass(frozen=True, slots=True)
class Voter:
    """An edge that was heard of within a day, and since when it has called datacenters lost. Times are Unix seconds of
    the database's clock."""

    id: str
    region: str
    seen_at_s: float
    lost: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Place:
    """A datacenter. `serves`: operators mean it to take requests. `moved_at_s` is when its last restore or failover
    ended, null if there was none; `under_way` is an operation that has it, in words, empty if none does."""

    id: str
    serves: bool
    moved_at_s: float | None = None
    under_way: str = ""


@dataclass(frozen=True, slots=True)
class Finding:
    """What the votes on a datacenter come to: `edges` of `of` live ones call it lost, the youngest vote that `needed`
    needs for `held_s`. `wanted`: enough of them for long enough, of one that serves and that no operation has.
    `blocked` says why it does not fail over, empty when it shall."""

    datacenter_id: str
    edges: int
    of: int
    needed: int
    regions: int
    held_s: float
    wanted: bool
    blocked: str


def decide(voters: Sequence[Voter], places: Sequence[Place], now_s: float, rules: Rules,
           standstill: str = "") -> list[Finding]:
    """What the votes come to, by datacenter. `standstill` says why no failover may begin at all now, if so."""
    known = [one for one in voters if now_s - one.seen_at_s <= rules.gone_after_s]
    live = [one for one in known if now_s - one.seen_at_s <= rules.silent_after_s]
    regions = len({one.region for one in voters})
    findings = [_judge(place, live, len(known), min(REGIONS, regions), now_s, rules)
                for place in places if any(place.id in one.lost for one in live)]
    ready = sorted((one for one in findings if not one.blocked), key=lambda one: (-one.held_s, one.datacenter_id))
    first = ready[0].datacenter_id if ready else ""
    return [_with_block(one, standstill or _waits_for(first, one)) if not one.blocked else one for one in findings]


def _judge(place: Place, live: Sequence[Voter], known: int, regions_needed: int, now_s: float,
           rules: Rules) -> Finding:
    against = [one for one in live if place.id in one.lost]
    needed = ceil(SHARE * len(live))
    held = sorted((now_s - one.lost[place.id] for one in against), reverse=True)
    held_s = held[needed - 1] if len(held) >= needed else 0.0
    long = {one.region for one in against if now_s - one.lost[place.id] >= rules.after_s}
    wanted = place.serves and not place.under_way and len(against) >= needed and held_s >= rules.after_s
    finding = Finding(
        place.id, len(against), len(live), needed, len({one.region for one in against}), held_s, wanted, "")
    return _with_block(finding, _fault(place, finding, len(long), known, regions_needed, now_s, rules))


def _fault(place: Place, found: Finding, regions: int, known: int, regions_needed: int, now_s: float,
           rules: Rules) -> str:
    """What keeps the votes from being enough, in words."""
    if not place.serves:
        return "it takes no requests anyway"
    if place.under_way:
        return f"{place.under_way} is under way"
    if found.edges < found.needed:
        return f"{found.needed} of {found.of} edges have to say so"
    if found.held_s < rules.after_s:
        return f"they have to say so for {rules.after_s:g} s"
    if regions < regions_needed:
        return f"edges in {regions_needed} regions have to say so; an operator may know better"
    if found.of < rules.coverage * known:
        return f"only {found.of} of {known} edges are heard from"
    rested_s = rules.again_after_s if place.moved_at_s is None else now_s - place.moved_at_s
    if rested_s < rules.again_after_s:
        return f"its last operation ended {rested_s:.0f} s ago; not again within {rules.again_after_s:g} s"
    return ""


def _waits_for(first: str, finding: Finding) -> str:
    return "" if finding.datacenter_id == first else f"one failover at a time: {first} goes first"


def _with_block(found: Finding, blocked: str) -> Finding:
    return replace(found, blocked=blocked)

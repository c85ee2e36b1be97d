"""Safety rules over plain data: what must still hold after a datacenter left. Pure.

Rules are evaluated inside the transaction that changes the state, with the datacenters of the scope locked in id order,
so that two changes that are each safe alone cannot both pass. A violation names its rule and what it counted. Which
rules bind which operation is in `judging.py`; rule 4 is the planner's, rule 7 is a wait (`playbooks/shared.py`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from control_plane.capacity.headroom import ModelHeadroom, Need


class Rule(StrEnum):
    """Rules by number: 1, 2 (in two parts), 3, 5 and 6."""

    LAST_DATACENTER = "last_datacenter"
    HEADROOM = "headroom"
    RESERVED_HEADROOM = "reserved_headroom"
    AWAY_AT_ONCE = "away_at_once"
    TELEMETRY = "telemetry"
    FROZEN = "frozen"


LAST_DATACENTER = Rule.LAST_DATACENTER.value
REQUIRED_DATACENTERS = 1
MIN_COVERAGE_PERCENT = 80
MAX_REPORT_AGE_S = 60.0


@dataclass(frozen=True, slots=True)
class Provider:
    """A datacenter that holds a model.

    `active`: takes new requests. `leaving`: an open operation takes it away. `routable`: a deployment of the model
    serves there. `observed`: that deployment's agent holds a live lease, so that what it reported is still true;
    `heard_age_s` is how long ago it last reported, null: never.
    """

    datacenter_id: str
    active: bool
    leaving: bool
    routable: bool
    observed: bool
    heard_age_s: float | None = None

    @property
    def healthy(self) -> bool:
        return self.active and not self.leaving and self.routable and self.observed

    @property
    def serves(self) -> bool:
        """Whether its leaving takes something away: it takes requests, or part of them on its way out."""
        return (self.active or self.leaving) and self.routable


@dataclass(frozen=True, slots=True)
class Place:
    """A datacenter. `away`: it is not active, or an open operation takes it away."""

    datacenter_id: str
    region_id: str
    away: bool


@dataclass(frozen=True, slots=True)
class Violation:
    """A rule that would not hold any more."""

    rule: str
    message: str
    numbers: dict[str, str] = field(default_factory=dict)


def check_leaving(datacenter_id: str, providers: Mapping[str, Sequence[Provider]],
                  required: Mapping[str, int] | None = None) -> Violation | None:
    """Rule 1: every model that a datacenter serves keeps as many healthy ones as it must have, one at least.
    `providers` are each model's datacenters; a model that is not in `required` must have one."""
    for model_id, places in sorted(providers.items()):
        if not any(place.datacenter_id == datacenter_id and place.serves for place in places):
            continue
        wanted = max(REQUIRED_DATACENTERS, (required or {}).get(model_id, REQUIRED_DATACENTERS))
        if len(remaining_datacenters(datacenter_id, places)) < wanted:
            return _last_datacenter(datacenter_id, model_id, places, wanted)
    return None


def check_headroom(datacenter_id: str, after: Mapping[str, ModelHeadroom],
                   unreserved: Mapping[str, ModelHeadroom]) -> Violation | None:
    """Rule 2: what remains holds 1.2 times the larger of peak and reservations. `after` is each model's headroom once
    the datacenter left, `unreserved` the same if nothing were reserved: what is short even then is the first part, what
    only reservations make short the second."""
    for headrooms, rule in ((unreserved, Rule.HEADROOM), (after, Rule.RESERVED_HEADROOM)):
        for model_id, headroom in sorted(headrooms.items()):
            for need in headroom.needs:
                if need.is_short:
                    return _too_little(rule, datacenter_id, model_id, need)
    return None


def check_known(datacenter_id: str, after: Mapping[str, ModelHeadroom]) -> Violation | None:
    """Rule 2 for automation: capacity that nobody knows is not enough."""
    for model_id, headroom in sorted(after.items()):
        if headroom.total.ready is None:
            return Violation(
                Rule.HEADROOM, f"nobody knows how many requests of {model_id} remain held without {datacenter_id}: "
                "declare max_inflight of its pools", {"model": model_id, "ready_after": "unknown",
                                                      "required": str(headroom.total.required)})
    return None


def check_away(datacenter_id: str, places: Sequence[Place]) -> Violation | None:
    """Rule 3: at most one datacenter of a region, and a third of all (rounded up), are away at once."""
    region = next((place.region_id for place in places if place.datacenter_id == datacenter_id), None)
    away = [place for place in places if place.away or place.datacenter_id == datacenter_id]
    here = [place for place in away if place.region_id == region]
    allowed = -(-len(places) // 3)
    others = ", ".join(place.datacenter_id for place in away if place.datacenter_id != datacenter_id)
    if len(here) > 1:
        return Violation(
            Rule.AWAY_AT_ONCE, f"{len(here)} datacenters of {region} would be away at once, 1 may be: {others} "
            f"{'is' if len(away) == 2 else 'are'} away already. Restore first, or repeat with --force",
            {"region": region or "", "away_after": str(len(here)), "allowed": "1"})
    if len(away) > allowed:
        return Violation(
            Rule.AWAY_AT_ONCE, f"{len(away)} of {len(places)} datacenters would be away at once, {allowed} may be: "
            f"{others} {'is' if len(away) == 2 else 'are'} away already. Restore first, or repeat with --force",
            {"away_after": str(len(away)), "datacenters": str(len(places)), "allowed": str(allowed)})
    return None


def check_telemetry(ages_s: Sequence[float | None]) -> Violation | None:
    """Rule 5: automation acts only where most of the others were heard of late. `ages_s` are of the newest reports of
    all fleets elsewhere, null: never."""
    fresh = sum(age_s is not None and age_s <= MAX_REPORT_AGE_S for age_s in ages_s)
    if ages_s and fresh * 100 >= MIN_COVERAGE_PERCENT * len(ages_s):
        return None
    return Violation(
        Rule.TELEMETRY, f"{fresh} of {len(ages_s)} other fleets reported within {MAX_REPORT_AGE_S:.0f} s, "
        f"{MIN_COVERAGE_PERCENT}% must have: automation does nothing by what it cannot see",
        {"fresh": str(fresh), "fleets": str(len(ages_s)), "required_percent": str(MIN_COVERAGE_PERCENT)})


def check_frozen(frozen: str) -> Violation | None:
    """Rule 6: automation does nothing while it is frozen; `frozen` says why it is, empty if it is not."""
    return Violation(Rule.FROZEN, frozen) if frozen else None


def remaining_datacenters(datacenter_id: str, places: Sequence[Provider]) -> list[str]:
    """The healthy datacenters of a model once `datacenter_id` left."""
    return sorted(place.datacenter_id for place in places if place.datacenter_id != datacenter_id and place.healthy)


def _last_datacenter(datacenter_id: str, model_id: str, places: Sequence[Provider], wanted: int) -> Violation:
    others = [place for place in places if place.datacenter_id != datacenter_id]
    remaining = len(remaining_datacenters(datacenter_id, places))
    faults = [f"{place.datacenter_id} {_fault(place)}" for place in others if not place.healthy]
    because = "; ".join(faults) or ("no other datacenter holds it" if not others else f"it has {remaining} others")
    words = (f"{datacenter_id} is the last healthy datacenter of {model_id}" if not remaining else
             f"{model_id} must keep {wanted} healthy datacenters, and would keep {remaining}")
    return Violation(
        LAST_DATACENTER, f"{words}: {because}. Restore another one first, or repeat with --force",
        {"model": model_id, "healthy_now": str(sum(place.healthy for place in places)),
         "healthy_after": str(remaining), "required": str(wanted)})


def _too_little(rule: Rule, datacenter_id: str, model_id: str, need: Need) -> Violation:
    where = f" in {', '.join(sorted(need.regions))}" if need.regions else ""
    what = "reserved capacity" if rule is Rule.RESERVED_HEADROOM else "capacity"
    option = "--override-reservations" if rule is Rule.RESERVED_HEADROOM else "--force"
    peak = "unknown" if need.peak is None else str(need.peak)
    return Violation(
        rule, f"{what} for {model_id}{where} would be too little without {datacenter_id}: {need.ready} requests at "
        f"once would be held, {need.required} must be (1.2 x the larger of peak {peak} and reserved {need.reserved}). "
        f"Add capacity first, or repeat with {option}",
        {"model": model_id, **({"regions": ",".join(sorted(need.regions))} if need.regions else {}),
         "ready_after": str(need.ready), "peak": peak, "reserved": str(need.reserved), "required": str(need.required)})


def _fault(place: Provider) -> str:
    if place.leaving:
        return "is being drained"
    if not place.active:
        return "is not active"
    if not place.routable:
        return "has no ready deployment of it"
    if place.heard_age_s is None:
        return "has an agent that was never heard from"
    return f"has not been heard from for {place.heard_age_s:.0f} s, longer than its agent's lease"

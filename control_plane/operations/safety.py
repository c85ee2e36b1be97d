"""Safety rules over plain data: what must still hold after a datacenter left.

Rules are evaluated inside the transaction that changes the state, with the datacenters of the scope locked in id order,
so that two changes that are each safe alone cannot both pass. A violation names its rule and what it counted.
"""

from dataclasses import dataclass, field

LAST_DATACENTER = "last_datacenter"
REQUIRED_DATACENTERS = 1


@dataclass(frozen=True, slots=True)
class Provider:
    """A datacenter that holds a model.

    `active`: takes new requests. `leaving`: an open operation takes it away. `routable`: a deployment of the model
    serves there. `observed`: that deployment's agent holds a live lease, so that what it reported is still true.
    """

    datacenter_id: str
    active: bool
    leaving: bool
    routable: bool
    observed: bool

    @property
    def healthy(self) -> bool:
        return self.active and not self.leaving and self.routable and self.observed


@dataclass(frozen=True, slots=True)
class Violation:
    """A rule that would not hold any more."""

    rule: str
    message: str
    numbers: dict[str, str] = field(default_factory=dict)


def check_leaving(datacenter_id: str, providers: dict[str, list[Provider]]) -> Violation | None:
    """The first rule that a datacenter's leaving would break; `providers` are each model's datacenters."""
    for model_id, places in sorted(providers.items()):
        if not any(place.datacenter_id == datacenter_id and place.active and place.routable for place in places):
            continue
        if len(remaining_datacenters(datacenter_id, places)) < REQUIRED_DATACENTERS:
            return _last_datacenter(datacenter_id, model_id, places)
    return None


def remaining_datacenters(datacenter_id: str, places: list[Provider]) -> list[str]:
    """The healthy datacenters of a model once `datacenter_id` left."""
    return sorted(place.datacenter_id for place in places if place.datacenter_id != datacenter_id and place.healthy)


def _last_datacenter(datacenter_id: str, model_id: str, places: list[Provider]) -> Violation:
    others = [place for place in places if place.datacenter_id != datacenter_id]
    remaining = len(remaining_datacenters(datacenter_id, places))
    because = "; ".join(f"{place.datacenter_id} {_fault(place)}" for place in others) or "no other datacenter holds it"
    return Violation(
        LAST_DATACENTER,
        f"{datacenter_id} is the last healthy datacenter of {model_id}: {because}. "
        "Restore another one first, or repeat with --force",
        {"model": model_id, "healthy_now": str(sum(place.healthy for place in places)),
         "healthy_after": str(remaining), "required": str(REQUIRED_DATACENTERS)})


def _fault(place: Provider) -> str:
    if not place.active:
        return "is not active"
    if place.leaving:
        return "is being drained"
    if not place.routable:
        return "has no ready deployment of it"
    return "has not been heard from within its agent's lease"

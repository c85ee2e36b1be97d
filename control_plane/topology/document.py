"""What is wrong with a topology document, told from the document and what is stored already. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from control_plane.contracts.topology import DeploymentDocument, TopologyDocument


@dataclass(frozen=True, slots=True)
class Stored:
    """The ids that are stored, with what never changes of them."""

    regions: frozenset[str]
    region_of_datacenter: Mapping[str, str]
    datacenter_of_fleet: Mapping[str, str]
    models: frozenset[str]
    place_of_deployment: Mapping[str, tuple[str, str]]


def faults(document: TopologyDocument, stored: Stored) -> list[str]:
    """Everything that is wrong, in words: twice the same id, unknown references, and moves of what cannot move."""
    return [*_duplicates(document), *_unknown(document, stored), *_moved(document, stored), *_crowded(document, stored)]


def _duplicates(document: TopologyDocument) -> list[str]:
    found = []
    for name in ("regions", "datacenters", "fleets", "models", "deployments"):
        counts = Counter(item.id for item in getattr(document, name))
        found += [f"{name}: {item} is named {count} times" for item, count in counts.items() if count > 1]
    for deployment in document.deployments:
        roles = Counter(pool.role for pool in deployment.pools)
        found += [f"deployment {deployment.id}: {role.value} has {count} pools"
                  for role, count in roles.items() if count > 1]
    return found


def _unknown(document: TopologyDocument, stored: Stored) -> list[str]:
    regions = stored.regions | {region.id for region in document.regions}
    datacenters = set(stored.region_of_datacenter) | {place.id for place in document.datacenters}
    fleets = set(stored.datacenter_of_fleet) | {fleet.id for fleet in document.fleets}
    models = stored.models | {model.id for model in document.models}
    return [
        *(f"datacenter {place.id}: unknown region {place.region}"
          for place in document.datacenters if place.region not in regions),
        *(f"fleet {fleet.id}: unknown datacenter {fleet.datacenter}"
          for fleet in document.fleets if fleet.datacenter not in datacenters),
        *(f"deployment {one.id}: unknown fleet {one.fleet}" for one in document.deployments if one.fleet not in fleets),
        *(f"deployment {one.id}: unknown model {one.model}" for one in document.deployments if one.model not in models),
    ]


def _moved(document: TopologyDocument, stored: Stored) -> list[str]:
    """Edges, agents and usage know these by id: another place is another id."""
    places: list[tuple[str, str, str | None]] = [
        *((f"datacenter {place.id}", place.region, stored.region_of_datacenter.get(place.id))
          for place in document.datacenters),
        *((f"fleet {fleet.id}", fleet.datacenter, stored.datacenter_of_fleet.get(fleet.id))
          for fleet in document.fleets),
        *((f"deployment {one.id}", _place(one.model, one.fleet), _place(*stored.place_of_deployment[one.id]))
          for one in document.deployments if one.id in stored.place_of_deployment),
    ]
    return [f"{thing}: is in {before} and cannot move to {after}"
            for thing, after, before in places if before not in (None, after)]


def _crowded(document: TopologyDocument, stored: Stored) -> list[str]:
    """A fleet holds a model once."""
    holders: dict[tuple[str, str], set[str]] = {}
    for deployment_id, place in (*stored.place_of_deployment.items(), *_places(document.deployments)):
        holders.setdefault(place, set()).add(deployment_id)
    return [f"{' and '.join(sorted(ids))}: both hold {_place(*place)}"
            for place, ids in holders.items() if len(ids) > 1]


def _places(deployments: Iterable[DeploymentDocument]) -> list[tuple[str, tuple[str, str]]]:
    return [(deployment.id, (deployment.model, deployment.fleet)) for deployment in deployments]


def _place(model: str, fleet: str) -> str:
    return f"{model} on fleet {fleet}"

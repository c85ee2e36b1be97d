"""The models of the status screen, everywhere and by region: what capacity says, joined with what edges saw. Pure."""

from collections.abc import Mapping, Sequence

from control_plane.contracts.capacity import ModelCapacity, PlaceCapacity
from control_plane.contracts.operator import ModelStatus, Quality

Seen = Mapping[tuple[str, str | None], Quality]
"""Quality by model and region; region null: everywhere."""

NOTHING_SEEN = Quality()


def models(capacity: Sequence[ModelCapacity], quality: Seen, inflight: Mapping[str, int | None]) -> list[ModelStatus]:
    """Each model everywhere, then by region if there are several. `inflight` are requests inside each deployment's
    engine, null where they could not be read."""
    found = []
    for model in capacity:
        regions = sorted({place.region for place in model.places})
        found.append(_everywhere(model, quality, inflight))
        if len(regions) > 1:
            found += [_in_region(model, region, quality, inflight) for region in regions]
    return found


def _everywhere(model: ModelCapacity, quality: Seen, inflight: Mapping[str, int | None]) -> ModelStatus:
    return ModelStatus(
        model=model.model, region=None, serving=_serving(model.places), holding=_holding(model.places),
        ready=model.ready, peak=model.peak, reserved=model.reserved, headroom=model.headroom,
        open_requests=_open(model.places, inflight), quality=quality.get((model.model, None), NOTHING_SEEN))


def _in_region(model: ModelCapacity, region: str, quality: Seen, inflight: Mapping[str, int | None]) -> ModelStatus:
    """A region's own part. Peaks are counted everywhere, because edges may send a request to any region; so a region
    has a headroom only where something is reserved in it."""
    places = [place for place in model.places if place.region == region]
    need = next((need for need in model.regions if need.regions == [region]), None)
    serving = [place.ready for place in places if place.serves]
    known = [ready for ready in serving if ready is not None]
    return ModelStatus(
        model=model.model, region=region, serving=_serving(places), holding=_holding(places),
        ready=sum(known) if len(known) == len(serving) else None, peak=None, reserved=need.reserved if need else 0,
        headroom=need.headroom if need else None, open_requests=_open(places, inflight),
        quality=quality.get((model.model, region), NOTHING_SEEN))


def _serving(places: Sequence[PlaceCapacity]) -> int:
    return len({place.datacenter for place in places if place.serves})


def _holding(places: Sequence[PlaceCapacity]) -> int:
    return len({place.datacenter for place in places})


def _open(places: Sequence[PlaceCapacity], inflight: Mapping[str, int | None]) -> int | None:
    """Those of all places; unknown if those of a place that serves are."""
    counts = [inflight.get(place.deployment) for place in places if place.serves or inflight.get(place.deployment)]
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None

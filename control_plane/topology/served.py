"""The models of the status screen, everywhere and by region: what capacity says, joined with what edges saw. Pure."""

from collections.abc import Mapping, Sequence

from control_plane.contracts.capacity import ModelCapacity, PlaceCapacity
from control_plane.contracts.operator import ModelStatus, Quality

Seen = Mapping[tuple[str, str | None], Quality]
"""Quality by model and region; region null: everywhere."""

NOTHING_SEEN = Quality()


def models(capacity: Sequence[ModelCapacity], quality: Seen, streams: Mapping[str, int] | None) -> list[ModelStatus]:
    """Each model everywhere, then by region if there are several. `streams` are the open ones by deployment, null when
    no edge was heard."""
    found = []
    for model in capacity:
        regions = sorted({place.region for place in model.places})
        found.append(_everywhere(model, quality, streams))
        if len(regions) > 1:
            found += [_in_region(model, region, quality, streams) for region in regions]
    return found


def _everywhere(model: ModelCapacity, quality: Seen, streams: Mapping[str, int] | None) -> ModelStatus:
    return ModelStatus(
        model=model.model, region=None, serving=_serving(model.places), holding=_holding(model.places),
        ready=model.ready, peak=model.peak, reserved=model.reserved, headroom=model.headroom,
        streams=_streams(model.places, streams), quality=quality.get((model.model, None), NOTHING_SEEN))


def _in_region(model: ModelCapacity, region: str, quality: Seen, streams: Mapping[str, int] | None) -> ModelStatus:
    """A region's own part. Peaks are counted everywhere, because edges may send a request to any region; so a region
    has a headroom only where something is reserved in it."""
    places = [place for place in model.places if place.region == region]
    need = next((need for need in model.regions if need.regions == [region]), None)
    serving = [place.ready for place in places if place.serves]
    known = [ready for ready in serving if ready is not None]
    return ModelStatus(
        model=model.model, region=region, serving=_serving(places), holding=_holding(places),
        ready=sum(known) if len(known) == len(serving) else None, peak=None, reserved=need.reserved if need else 0,
        headroom=need.headroom if need else None, streams=_streams(places, streams),
        quality=quality.get((model.model, region), NOTHING_SEEN))


def _serving(places: Sequence[PlaceCapacity]) -> int:
    return len({place.datacenter for place in places if place.serves})


def _holding(places: Sequence[PlaceCapacity]) -> int:
    return len({place.datacenter for place in places})


def _streams(places: Sequence[PlaceCapacity], streams: Mapping[str, int] | None) -> int | None:
    return None if streams is None else sum(streams.get(place.deployment, 0) for place in places)

"""A model on the status screen, everywhere and by region."""

from typing import Any

from control_plane.contracts.capacity import ModelCapacity
from control_plane.contracts.operator import Quality
from control_plane.topology.served import models


def place(datacenter: str, region: str, **changes: Any) -> dict[str, Any]:
    return {"datacenter": datacenter, "region": region, "fleet": f"{datacenter}-a", "deployment": f"{datacenter}-a-glm",
            "serves": True, "ready": 64, "load": 3.0, "utilisation": 0.05, "kv_usage": None, "pools": [], **changes}


def model(*places: dict[str, Any], **changes: Any) -> ModelCapacity:
    return ModelCapacity(**{
        "model": "glm", "ready": 128, "load": 6.0, "peak": 10, "expected": None, "reserved": 5, "required": 12,
        "headroom": 116, "utilisation": 0.05, "regions": [], "places": list(places), **changes})


TWO = (place("us-1", "us"), place("eu-1", "eu", ready=None))


def test_a_model_in_one_region_is_one_row() -> None:
    [row] = models([model(place("us-1", "us"), place("us-2", "us"))], {}, {"us-1-a-glm": 2, "us-2-a-glm": 3})
    assert (row.region, row.serving, row.holding, row.open_requests, row.headroom) == (None, 2, 2, 5, 116)


def test_regions_follow_the_whole() -> None:
    rows = models([model(*TWO)], {("glm", "us"): Quality(uptime_5m=99.0)}, {"us-1-a-glm": 2, "eu-1-a-glm": 0})
    assert [(row.region, row.ready, row.open_requests, row.quality.uptime_5m) for row in rows] == [
        (None, 128, 2, None), ("eu", None, 0, None), ("us", 64, 2, 99.0)]


def test_who_does_not_serve_is_held_and_not_counted() -> None:
    rows = models([model(TWO[0], place("eu-1", "eu", serves=False))], {}, {})
    assert [(row.serving, row.holding, row.ready) for row in rows[1:]] == [(0, 1, 0), (1, 1, 64)]


def test_what_one_place_cannot_tell_is_unknown_for_all() -> None:
    rows = models([model(*TWO)], {}, {"us-1-a-glm": 2, "eu-1-a-glm": None})
    assert [row.open_requests for row in rows] == [None, None, 2]


def test_a_place_that_is_gone_and_silent_is_no_unknown() -> None:
    [row, *_] = models([model(TWO[0], place("eu-1", "eu", serves=False))], {}, {"us-1-a-glm": 2})
    assert row.open_requests == 2


def test_a_region_has_headroom_only_where_something_is_reserved_in_it() -> None:
    reserved = {"regions": ["us"], "ready": 64, "reserved": 40, "required": 48, "headroom": 16}
    rows = models([model(*TWO, regions=[reserved])], {}, {})
    assert [(row.region, row.reserved, row.headroom) for row in rows[1:]] == [("eu", 0, None), ("us", 40, 16)]

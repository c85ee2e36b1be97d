"""What a topology document is refused for."""

from typing import Any

import pytest
from pydantic import ValidationError

from control_plane.contracts.topology import TopologyDocument
from control_plane.topology.document import Stored, faults

NOTHING = Stored(frozenset(), {}, {}, frozenset(), {})
STORED = Stored(
    regions=frozenset({"eu", "us"}), region_of_datacenter={"eu-1": "eu"}, datacenter_of_fleet={"eu-1-a": "eu-1"},
    models=frozenset({"glm"}), place_of_deployment={"eu-1-a-glm": ("glm", "eu-1-a")})
PRICE = {"version": "pv_1", "input_usd": "1", "cached_input_usd": "1", "output_usd": "1"}
MODEL = {"id": "glm", "display_name": "GLM", "owned_by": "us", "context_window": 8, "max_output_tokens": 8,
         "price": PRICE}
DATACENTER = {"id": "eu-1", "region": "eu"}
FLEET = {"id": "eu-1-a", "datacenter": "eu-1", "ingress_url": "http://h:1", "gpu_type": "x", "gpu_total": 1}
DEPLOYMENT = {"id": "eu-1-a-glm", "model": "glm", "fleet": "eu-1-a", "engine": {},
              "pools": [{"role": "decode", "replicas": 1}]}
WHOLE = {"regions": [{"id": "eu"}], "datacenters": [DATACENTER], "fleets": [FLEET], "models": [MODEL],
         "deployments": [DEPLOYMENT]}


def found(stored: Stored = NOTHING, **parts: Any) -> list[str]:
    return faults(TopologyDocument.model_validate(parts), stored)


def test_a_whole_document_is_right() -> None:
    assert found(**WHOLE) == []


def test_a_document_may_refer_to_what_is_stored() -> None:
    assert found(STORED, deployments=[DEPLOYMENT], fleets=[FLEET], datacenters=[DATACENTER]) == []


@pytest.mark.parametrize(("part", "item", "fault"), [
    ("datacenters", DATACENTER, "datacenter eu-1: unknown region eu"),
    ("fleets", FLEET, "fleet eu-1-a: unknown datacenter eu-1"),
    ("deployments", DEPLOYMENT, "deployment eu-1-a-glm: unknown fleet eu-1-a"),
    ("deployments", DEPLOYMENT, "deployment eu-1-a-glm: unknown model glm"),
])
def test_an_unknown_reference_is_named(part: str, item: dict[str, Any], fault: str) -> None:
    assert fault in found(**{part: [item]})


@pytest.mark.parametrize("part", list(WHOLE))
def test_an_id_that_is_named_twice_is_refused(part: str) -> None:
    repeated: Any = {**WHOLE, part: WHOLE[part] * 2}  # type: ignore[operator]
    assert any("is named 2 times" in fault for fault in found(**repeated))


@pytest.mark.parametrize("default", [0, 9])
def test_a_default_limit_beyond_the_models_limit_is_refused(default: int) -> None:
    with pytest.raises(ValidationError, match="default_max_tokens"):
        found(models=[MODEL | {"default_max_tokens": default}])


@pytest.mark.parametrize("default", [None, 1, 8])
def test_a_default_limit_within_the_models_limit_is_right(default: int | None) -> None:
    assert found(models=[MODEL | {"default_max_tokens": default}]) == []


def test_two_pools_of_one_role_are_refused() -> None:
    twice = DEPLOYMENT | {"pools": [{"role": "decode", "replicas": 1}, {"role": "decode", "replicas": 2}]}
    assert found(**WHOLE | {"deployments": [twice]}) == ["deployment eu-1-a-glm: decode has 2 pools"]


@pytest.mark.parametrize(("part", "item", "fault"), [
    ("datacenters", DATACENTER | {"region": "us"}, "datacenter eu-1: is in eu and cannot move to us"),
    ("deployments", DEPLOYMENT | {"fleet": "eu-1-b"}, "deployment eu-1-a-glm: is in glm on fleet eu-1-a and cannot move"
                                                      " to glm on fleet eu-1-b"),
])
def test_what_is_placed_cannot_move(part: str, item: dict[str, Any], fault: str) -> None:
    assert fault in found(STORED, **{part: [item]})


def test_a_fleet_cannot_move_to_another_datacenter() -> None:
    moved = FLEET | {"datacenter": "eu-2"}
    assert found(STORED, fleets=[moved], datacenters=[{"id": "eu-2", "region": "eu"}]) == [
        "fleet eu-1-a: is in eu-1 and cannot move to eu-2"]


def test_a_fleet_holds_a_model_once() -> None:
    assert found(STORED, deployments=[DEPLOYMENT | {"id": "other"}]) == [
        "eu-1-a-glm and other: both hold glm on fleet eu-1-a"]

"""What sizes are possible, and what topology is declared."""

from dataclasses import replace

import pytest

from control_plane.contracts.deployment import DesiredDeployment, PoolRole
from engine.spec import DeploymentSpec
from infra.local.errors import StackRefused
from infra.local.shape import DATACENTERS, Shape, check, deployment_id, topology

SHAPE = Shape(8700, datacenter_count=2, edge_count=1, replica_count=1, engine="sim")


@pytest.mark.parametrize("shape", [SHAPE, replace(SHAPE, datacenter_count=len(DATACENTERS), edge_count=10)])
def test_a_possible_stack_is_accepted(shape: Shape) -> None:
    check(shape)


@pytest.mark.parametrize(
    ("change", "option"),
    [
        ({"datacenter_count": 0}, "--datacenters 0"),
        ({"datacenter_count": len(DATACENTERS) + 1}, "--datacenters"),
        ({"edge_count": 11}, "--edges 11"),
        ({"replica_count": -1}, "--replicas -1"),
        ({"port_base": 80}, "--port-base 80"),
        ({"port_base": 32_600}, "--port-base 32600"),
        ({"engine": "cloud"}, "--engine cloud"),
    ],
)
def test_an_impossible_stack_is_refused_with_the_option_that_is_wrong(change: dict[str, int], option: str) -> None:
    with pytest.raises(StackRefused, match=option):
        check(replace(SHAPE, **change))


def test_the_real_model_is_refused_as_not_yet_part_of_the_release() -> None:
    with pytest.raises(StackRefused, match="not part of this release yet"):
        check(replace(SHAPE, engine="vllm"))


def test_the_highest_possible_port_base_keeps_every_port_in_range() -> None:
    with pytest.raises(StackRefused) as refusal:
        check(replace(SHAPE, port_base=65_535))
    highest = int(str(refusal.value).rsplit(" ", 1)[1])
    check(replace(SHAPE, port_base=highest))
    assert replace(SHAPE, port_base=highest).ports.datacenter(1) + 99 <= 32_767


def test_the_topology_names_one_fleet_and_deployment_a_datacenter() -> None:
    document = topology(SHAPE)
    assert [region.id for region in document.regions] == ["us-east-1", "eu-north-1"]
    assert [(fleet.id, fleet.datacenter, fleet.ingress_url) for fleet in document.fleets] == [
        ("us-east-1-a", "us-east-1", "http://127.0.0.1:8800"),
        ("eu-north-1-a", "eu-north-1", "http://127.0.0.1:8900"),
    ]
    assert [deployment.id for deployment in document.deployments] == [deployment_id(name) for name in SHAPE.datacenters]


def test_a_deployment_has_one_prefill_and_two_decode_replicas() -> None:
    pools = topology(SHAPE).deployments[0].pools
    assert [(pool.role, pool.replicas) for pool in pools] == [(PoolRole.PREFILL, 1), (PoolRole.DECODE, 2)]


def test_a_request_without_a_limit_gets_one_from_the_simulated_model() -> None:
    assert topology(SHAPE).models[0].default_max_tokens == 256


def test_the_engine_accepts_what_the_stack_declares() -> None:
    document = topology(SHAPE)
    declared, model = document.deployments[0], document.models[0]
    DeploymentSpec.from_desired(
        DesiredDeployment(
            deployment_id=declared.id, generation=1, model_id=model.id, context_window=model.context_window,
            pools=declared.pools, engine=declared.engine,
        )
    )  # fmt: skip


def test_edges_are_spread_over_the_regions_in_turn() -> None:
    assert [SHAPE.edge_region(index) for index in range(3)] == ["us-east-1", "eu-north-1", "us-east-1"]

"""Snapshots from facts."""

from dataclasses import replace
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from control_plane.contracts.agent_sync import DeploymentPhase
from control_plane.contracts.deployment import EngineFacts
from control_plane.contracts.pricing import Price
from control_plane.contracts.snapshot import ModelDetails, ModelFeature, Snapshot, TrafficState, check_meaning
from control_plane.routing.builder import (
    DatacenterFacts,
    DeploymentFacts,
    ModelFacts,
    RoutingFacts,
    build,
    content_digest,
)

PRICE = Price(version="pv_1", input_usd=Decimal("0.1"), cached_input_usd=Decimal("0.01"), output_usd=Decimal(1))
MODEL = ModelFacts("glm", "GLM", 1_700_000_000, "us", 8_192, 4_096, PRICE)
WEST = DatacenterFacts("us-east-1", "us", TrafficState.ACTIVE, 100)
EAST = DatacenterFacts("eu-north-1", "eu", TrafficState.ACTIVE, 50)
ON_WEST = DeploymentFacts("us-glm", "glm", "us-a", "us-east-1", "http://us", DeploymentPhase.READY, 3)
ON_EAST = DeploymentFacts("eu-glm", "glm", "eu-a", "eu-north-1", "http://eu", DeploymentPhase.READY, 3)
FACTS = RoutingFacts((WEST, EAST), (MODEL,), (ON_WEST, ON_EAST))


def built(facts: RoutingFacts) -> Snapshot:
    return build(facts, lineage=1, version=7, built_at_s=1.0)


def reason(*deployments: DeploymentFacts, west: DatacenterFacts = WEST) -> str | None:
    return built(RoutingFacts((west, EAST), (MODEL,), deployments)).models[0].unroutable_reason


def test_it_carries_lineage_version_and_time() -> None:
    snapshot = built(FACTS)
    assert (snapshot.lineage, snapshot.version, snapshot.built_at_s) == (1, 7, 1.0)


def test_datacenters_and_routes_are_sorted() -> None:
    snapshot = built(FACTS)
    assert [place.id for place in snapshot.datacenters] == ["eu-north-1", "us-east-1"]
    assert [route.deployment_id for route in snapshot.models[0].routes] == ["eu-glm", "us-glm"]


def test_the_order_of_the_facts_does_not_matter() -> None:
    turned = RoutingFacts(FACTS.datacenters[::-1], FACTS.models, FACTS.deployments[::-1])
    assert built(turned) == built(FACTS)


def test_details_of_a_model_reach_the_snapshot() -> None:
    details = ModelDetails(tokenizer="GLM", features=[ModelFeature.TOOLS])
    assert built(replace(FACTS, models=(replace(MODEL, details=details),))).models[0].details == details
    assert built(FACTS).models[0].details == ModelDetails()


@pytest.mark.parametrize("state", TrafficState)
def test_only_an_active_datacenter_has_weight(state: TrafficState) -> None:
    snapshot = built(replace(FACTS, datacenters=(replace(WEST, state=state), EAST)))
    assert [place.weight for place in snapshot.datacenters] == [50, 100 if state is TrafficState.ACTIVE else 0]


@pytest.mark.parametrize("phase", [None, *DeploymentPhase])
def test_a_deployment_is_routed_while_it_is_ready_or_degraded(phase: DeploymentPhase | None) -> None:
    snapshot = built(replace(FACTS, deployments=(replace(ON_WEST, phase=phase), ON_EAST)))
    routed = {route.deployment_id for route in snapshot.models[0].routes}
    assert ("us-glm" in routed) is (phase in (DeploymentPhase.READY, DeploymentPhase.DEGRADED))


def test_a_draining_datacenter_keeps_its_routes_without_weight() -> None:
    snapshot = built(replace(FACTS, datacenters=(replace(WEST, state=TrafficState.DRAINING), EAST)))
    assert len(snapshot.models[0].routes) == 2


def test_a_route_tells_what_its_engine_says_of_itself() -> None:
    facts = EngineFacts(identity="e1", grammar_url="http://us:9005", tool_parser="glm47", prefill_tokens_per_s=8000.0)
    snapshot = built(replace(FACTS, deployments=(replace(ON_WEST, engine=facts), ON_EAST)))
    assert [route.engine for route in snapshot.models[0].routes] == [EngineFacts(), facts]


@pytest.mark.parametrize("url", ["http://elsewhere:9005", "http://us.elsewhere", "http://[", "us:9005", ""])
def test_a_grammar_service_on_another_host_than_the_ingress_is_not_told(url: str) -> None:
    facts = EngineFacts(identity="e1", grammar_url=url)
    snapshot = built(replace(FACTS, deployments=(replace(ON_WEST, engine=facts),)))
    assert snapshot.models[0].routes[0].engine == EngineFacts(identity="e1")


def test_other_facts_make_another_snapshot() -> None:
    changed = replace(FACTS, deployments=(replace(ON_WEST, engine=EngineFacts(identity="e2")), ON_EAST))
    assert content_digest(built(changed)) != content_digest(built(FACTS))


def test_a_served_model_needs_no_reason() -> None:
    assert reason(ON_WEST, ON_EAST) is None


@pytest.mark.parametrize(("phase", "words"), [
    (None, "us-glm: never observed"), (DeploymentPhase.PROVISIONING, "us-glm: provisioning"),
    (DeploymentPhase.GONE, "us-glm: gone")])
def test_a_model_without_a_routable_deployment_says_why(phase: DeploymentPhase | None, words: str) -> None:
    assert reason(replace(ON_WEST, phase=phase)) == words


def test_a_model_scaled_to_zero_says_so() -> None:
    assert reason(replace(ON_WEST, replicas=0)) == "us-glm: scaled to zero"


def test_a_model_whose_only_datacenter_is_drained_says_so() -> None:
    assert reason(ON_WEST, west=replace(WEST, state=TrafficState.DRAINED)) == "us-glm: us-east-1 is drained"


def test_a_model_that_nobody_holds_says_so() -> None:
    assert reason() == "no deployment holds it"


def test_a_model_keeps_the_limit_for_requests_that_name_none_and_the_digest_sees_it() -> None:
    limited = replace(FACTS, models=(replace(MODEL, default_max_tokens=256),))
    assert [built(facts).models[0].default_max_tokens for facts in (FACTS, limited)] == [None, 256]
    assert content_digest(built(limited)) != content_digest(built(FACTS))


def test_the_digest_ignores_version_and_time() -> None:
    later = build(FACTS, lineage=2, version=8, built_at_s=2.0)
    assert content_digest(later) == content_digest(built(FACTS))


def test_the_digest_sees_a_weight() -> None:
    heavier = replace(FACTS, datacenters=(replace(WEST, weight=101), EAST))
    assert content_digest(built(heavier)) != content_digest(built(FACTS))


phases = st.none() | st.sampled_from(DeploymentPhase)
places = st.builds(lambda state, weight: (state, weight), st.sampled_from(TrafficState), st.integers(1, 10_000))


@given(st.lists(places, max_size=4), st.lists(st.tuples(phases, st.integers(0, 3)), max_size=4))
def test_whatever_the_facts_an_edge_takes_the_snapshot(
        states: list[tuple[TrafficState, int]], deployments: list[tuple[DeploymentPhase | None, int]]) -> None:
    datacenters = tuple(DatacenterFacts(f"dc-{n}", "r", state, weight) for n, (state, weight) in enumerate(states))
    held = tuple(
        DeploymentFacts(f"d-{n}", "glm", f"f-{n}", f"dc-{n}", "http://x", phase, replicas)
        for n, ((phase, replicas), _) in enumerate(zip(deployments, datacenters, strict=False)))
    snapshot = built(RoutingFacts(datacenters, (MODEL,), held))
    check_meaning(snapshot)
    assert Snapshot.model_validate_json(snapshot.model_dump_json()) == snapshot

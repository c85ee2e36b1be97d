"""The routing table: the snapshot in the form that a request needs it."""

from dataclasses import replace

import pytest

from control_plane.contracts.deployment import EngineFacts
from control_plane.contracts.snapshot import TrafficState
from edge_api.routing.table import ASSUMED_PREFILL_TOKENS_PER_S, build_table
from edge_api.snapshot.holder import TableHolder
from tests.unit.edge_api.builders import MODEL, PRICE, snapshot


def test_models_are_found_by_id_with_what_a_request_needs() -> None:
    table = build_table(snapshot(version=9, lineage=2))
    model = table.models[MODEL]
    assert (table.lineage, table.version) == (2, 9)
    assert (model.price, model.context_window, model.max_output_tokens) == (PRICE, 202_752, 131_072)


@pytest.mark.parametrize("default", [None, 256])
def test_a_model_carries_the_limit_for_requests_that_name_none(default: int | None) -> None:
    built = snapshot()
    model = built.models[0].model_copy(update={"default_max_tokens": default})
    table = build_table(built.model_copy(update={"models": [model]}))
    assert table.models[MODEL].default_max_tokens == default


def test_routes_carry_address_weight_and_state() -> None:
    built = snapshot(weights={"us-east-1": 70, "eu-north-1": 0}, ports={"us-east-1": 8800, "eu-north-1": 8900})
    routes = build_table(built).models[MODEL].routes
    assert [(r.datacenter_id, r.weight, r.state, r.host, r.port, r.tls) for r in routes] == [
        ("us-east-1", 70, TrafficState.ACTIVE, "127.0.0.1", 8800, False),
        ("eu-north-1", 0, TrafficState.DRAINED, "127.0.0.1", 8900, False)]


@pytest.mark.parametrize(("url", "address"), [
    ("http://ingress.example:8000", ("ingress.example", 8000, False)),
    ("http://ingress.example", ("ingress.example", 80, False)),
    ("https://ingress.example", ("ingress.example", 443, True)),
    ("https://[2001:db8::7]:8443", ("2001:db8::7", 8443, True)),
])
def test_ingress_urls_become_addresses(url: str, address: tuple[str, int, bool]) -> None:
    built = snapshot(weights={"us-east-1": 1})
    routed = built.models[0].routes[0].model_copy(update={"ingress_url": url})
    model = built.models[0].model_copy(update={"routes": [routed]})
    (route,) = build_table(built.model_copy(update={"models": [model]})).models[MODEL].routes
    assert (route.host, route.port, route.tls) == address


def test_routes_carry_their_deployment_and_what_its_engine_said() -> None:
    facts = EngineFacts(identity="abc", grammar_url="http://127.0.0.1:9300", prefill_tokens_per_s=8_000.0)
    built = snapshot(weights={"us-east-1": 1})
    routed = built.models[0].routes[0].model_copy(update={"engine": facts})
    model = built.models[0].model_copy(update={"routes": [routed]})
    (route,) = build_table(built.model_copy(update={"models": [model]})).models[MODEL].routes
    assert (route.deployment_id, route.engine) == ("us-east-1-a-glm", facts)


def test_the_prefill_rate_is_the_engines_own_or_assumed() -> None:
    route = build_table(snapshot(weights={"us-east-1": 1})).models[MODEL].routes[0]
    measured = replace(route, engine=EngineFacts(prefill_tokens_per_s=8_000.0))
    assert (route.prefill_tokens_per_s, measured.prefill_tokens_per_s) == (ASSUMED_PREFILL_TOKENS_PER_S, 8_000.0)


def test_the_shares_of_a_model_follow_the_weights_and_fleets_share_their_datacenters() -> None:
    built = snapshot(weights={"us-east-1": 300, "eu-north-1": 100, "ap-south-1": 0})
    second = built.models[0].routes[0].model_copy(update={"deployment_id": "us-east-1-b-glm"})
    model = built.models[0].model_copy(update={"routes": [*built.models[0].routes, second]})
    routes = build_table(built.model_copy(update={"models": [model]})).models[MODEL].routes
    assert [route.share for route in routes] == [0.375, 0.25, 0.0, 0.375]


def test_a_model_that_is_drained_everywhere_has_a_table() -> None:
    routes = build_table(snapshot(weights={"us-east-1": 0}, reason="drained")).models[MODEL].routes
    assert [route.share for route in routes] == [0.0]


def test_a_holder_has_nothing_before_the_first_snapshot_and_then_the_last() -> None:
    holder = TableHolder()
    assert holder.current is None
    for version in (1, 2):
        holder.take(snapshot(version=version))
    assert holder.current == build_table(snapshot(version=2))
    assert holder.snapshot == snapshot(version=2)

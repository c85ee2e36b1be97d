"""The routing table: the snapshot in the form that a request needs it."""

import pytest

from control_plane.contracts.deployment import EngineFacts
from control_plane.contracts.snapshot import TrafficState
from edge_api.routing.table import build_table
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


def test_a_holder_has_nothing_before_the_first_snapshot_and_then_the_last() -> None:
    holder = TableHolder()
    assert holder.current is None
    for version in (1, 2):
        holder.take(snapshot(version=version))
    assert holder.current == build_table(snapshot(version=2))
    assert holder.snapshot == snapshot(version=2)

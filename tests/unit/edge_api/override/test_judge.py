"""Which orders an edge takes."""

from collections.abc import Sequence

import pytest

from control_plane.contracts.override import MAX_ORDERS, MAX_SKEW_S, Override, OverrideOutcome
from edge_api.override.judge import judge
from tests.unit.edge_api.builders import snapshot
from tests.unit.edge_api.override.orders import EAST, EDGE, NORTH, NOW_S, lift, order


def verdict(asked: Override, held: Sequence[Override] = (), drained: Sequence[str] = (),
            now_s: float = NOW_S) -> OverrideOutcome:
    return judge(asked, EDGE, held, drained, snapshot(), now_s)[0]


def test_an_order_of_now_is_taken() -> None:
    assert verdict(order()) is OverrideOutcome.TAKEN


def test_the_same_order_again_is_known() -> None:
    assert verdict(order(), [order()]) is OverrideOutcome.KNOWN


def test_another_order_under_the_same_id_is_not_taken() -> None:
    assert verdict(order(force=True), [order()]) is OverrideOutcome.OTHER_ORDER


def test_an_order_for_another_edge_is_not_taken() -> None:
    assert verdict(order(edge="edge_2")) is OverrideOutcome.WRONG_EDGE


@pytest.mark.parametrize(("issued_at_s", "outcome"), [
    (NOW_S + MAX_SKEW_S, OverrideOutcome.TAKEN), (NOW_S + MAX_SKEW_S + 1, OverrideOutcome.NOT_YET),
    (NOW_S - 3_599, OverrideOutcome.TAKEN), (NOW_S - 3_600, OverrideOutcome.EXPIRED)])
def test_the_time_of_an_order_has_to_be_about_now(issued_at_s: float, outcome: OverrideOutcome) -> None:
    assert verdict(order(issued_at_s=issued_at_s)) is outcome


def test_a_lifted_order_that_was_never_seen_here_is_not_taken_afterwards() -> None:
    assert verdict(order(), [lift()]) is OverrideOutcome.LIFTED


def test_a_new_order_after_a_lift_is_taken() -> None:
    assert verdict(order(issued_at_s=NOW_S + 2), [lift()]) is OverrideOutcome.TAKEN


def test_a_lift_of_another_datacenter_takes_nothing_back() -> None:
    assert verdict(order(), [lift(datacenter=NORTH)]) is OverrideOutcome.TAKEN


def test_a_lift_is_taken_whatever_the_snapshot_knows() -> None:
    assert verdict(lift(datacenter="gone-1")) is OverrideOutcome.TAKEN


def test_an_unknown_datacenter_is_told_with_those_that_are_known() -> None:
    outcome, message = judge(order(datacenter="us-esat-1"), EDGE, [], [], snapshot(), NOW_S)
    assert outcome is OverrideOutcome.UNKNOWN_DATACENTER
    assert f"it knows {EAST}, {NORTH}" in message


def test_the_last_datacenter_of_a_model_is_not_drained() -> None:
    outcome, message = judge(order(), EDGE, [], [NORTH], snapshot(), NOW_S)
    assert outcome is OverrideOutcome.LEAVES_NONE
    assert "--force" in message


def test_with_force_it_is() -> None:
    assert verdict(order(force=True), drained=[NORTH]) is OverrideOutcome.TAKEN


def test_there_is_a_bound_on_orders() -> None:
    held = [order(f"ovr_{at}") for at in range(MAX_ORDERS)]
    assert verdict(order("ovr_new"), held) is OverrideOutcome.TOO_MANY

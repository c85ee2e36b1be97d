"""A status that is at rest says nothing; whatever is not, is named."""

from typing import Any

import pytest

from tests.chaos.evidence import unconverged
from tests.chaos.history import Verdict
from tests.chaos.scenarios.black_hole import new_requests
from tests.chaos.scenarios.death import around, recorded
from tests.chaos.scenarios.outage import rates, success
from tests.chaos.test_checker import history, one_try, record


def status(edge: dict[str, Any] | None = None, place: dict[str, Any] | None = None,
           deployment: dict[str, Any] | None = None) -> dict[str, Any]:
    """A fleet of one datacenter, at rest but for what is changed."""
    one = {"id": "dep", "phase": "ready", "generation": 2, "observed_generation": 2} | (deployment or {})
    return {
        "edges": [{"id": "edge_1", "live": True, "behind": 0, "nack": None} | (edge or {})],
        "datacenters": [{"id": "us-east-1", "traffic_state": "active", "fleets": [{"id": "fleet", "lease_live": True}],
                         "deployments": [one]} | (place or {})]}


def test_what_is_at_rest_has_no_fault() -> None:
    assert unconverged(status()) == ""


@pytest.mark.parametrize(("changed", "named"), [
    ({"edge": {"behind": 3}}, "edge_1 is 3 versions behind"), ({"edge": {"nack": "bad"}}, "refused a snapshot"),
    ({"place": {"traffic_state": "failed"}}, "us-east-1 is failed"),
    ({"place": {"fleets": [{"id": "fleet", "lease_live": False}]}}, "the agent of fleet has no lease"),
    ({"deployment": {"phase": "degraded"}}, "dep is degraded"),
    ({"deployment": {"observed_generation": 1}}, "generation 1 of 2")])
def test_what_is_not_at_rest_is_named(changed: dict[str, dict[str, Any]], named: str) -> None:
    assert named in unconverged(status(**changed))


def test_an_edge_that_is_gone_holds_nothing_up() -> None:
    assert unconverged(status(edge={"live": False, "behind": 9})) == ""


def test_edges_are_around_a_dead_datacenter_once_nothing_is_sent_there_first() -> None:
    sent_there = record(1, opened_s=11.5, attempts=[("us-east-1", True), ("eu-north-1", False)])
    later = record(2, opened_s=14.0, attempts=[("eu-north-1", False)])
    assert around([sent_there, later], "us-east-1", 10.0, 20.0)[0].holds
    late = record(3, opened_s=13.0, attempts=[("us-east-1", True)])
    assert not around([sent_there, late], "us-east-1", 10.0, 20.0)[0].holds
    assert not around([], "us-east-1", 10.0, 20.0)[0].holds


def test_a_failover_that_never_was_or_was_late_is_a_fault() -> None:
    assert [recorded(seconds).holds for seconds in (None, 36.0, 34.0)] == [False, False, True]


def test_only_errors_on_requests_begun_after_the_grace_break_the_promise_of_a_black_hole() -> None:
    early = one_try(1, began_s=100.5, verdict=Verdict.REFUSED)
    late = one_try(2, began_s=103.0, verdict=Verdict.REFUSED)
    assert new_requests(history(early), 100.0)[0].holds
    assert not new_requests(history(early, late), 100.0)[0].holds


def test_a_success_rate_that_falls_is_a_fault() -> None:
    tries = [one_try(number, began_s=float(number)) for number in range(4)]
    assert rates(history(*tries), 2.0, 4.0)[2].holds
    failed = one_try(9, began_s=3.0, verdict=Verdict.REFUSED)
    assert not rates(history(*tries, failed), 2.0, 4.0)[2].holds
    assert success([]) == 0.0

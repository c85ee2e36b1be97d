"""The rule that the last healthy datacenter of a model stays."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from control_plane.operations.safety import LAST_DATACENTER, Provider, check_leaving, remaining_datacenters

HEALTHY = Provider("west", active=True, leaving=False, routable=True, observed=True)
EAST = replace(HEALTHY, datacenter_id="east")


def test_one_of_two_healthy_datacenters_may_leave() -> None:
    assert check_leaving("west", {"glm": [HEALTHY, EAST]}) is None


def test_the_only_datacenter_may_not_leave() -> None:
    violation = check_leaving("west", {"glm": [HEALTHY]})
    assert violation is not None
    assert violation.rule == LAST_DATACENTER
    assert violation.numbers == {"model": "glm", "healthy_now": "1", "healthy_after": "0", "required": "1"}


@pytest.mark.parametrize(("fault", "words"), [
    ({"active": False}, "east is not active"), ({"leaving": True}, "east is being drained"),
    ({"routable": False}, "east has no ready deployment of it"),
    ({"observed": False}, "east has not been heard from within its agent's lease")])
def test_another_datacenter_that_is_not_healthy_does_not_count(fault: dict[str, bool], words: str) -> None:
    violation = check_leaving("west", {"glm": [HEALTHY, replace(EAST, **fault)]})  # type: ignore[arg-type]
    assert violation is not None
    assert words in violation.message


def test_the_refusal_names_the_option_that_overrules_it() -> None:
    violation = check_leaving("west", {"glm": [HEALTHY]})
    assert violation is not None
    assert violation.message.endswith("Restore another one first, or repeat with --force")


def test_every_model_is_counted() -> None:
    violation = check_leaving("west", {"glm": [HEALTHY, EAST], "kimi": [HEALTHY]})
    assert violation is not None
    assert violation.numbers["model"] == "kimi"


def test_a_model_that_is_not_there_does_not_matter() -> None:
    assert check_leaving("west", {"kimi": [replace(EAST, routable=False)]}) is None


@pytest.mark.parametrize("already_away", [{"active": False}, {"routable": False}])
def test_a_datacenter_that_serves_nothing_takes_nothing_away(already_away: dict[str, bool]) -> None:
    assert check_leaving("west", {"glm": [replace(HEALTHY, **already_away)]}) is None  # type: ignore[arg-type]


def test_a_datacenter_whose_agent_is_silent_still_serves_and_may_be_the_last() -> None:
    assert check_leaving("west", {"glm": [replace(HEALTHY, observed=False)]}) is not None


def test_the_remaining_datacenters_are_sorted_and_healthy() -> None:
    away = replace(HEALTHY, datacenter_id="south", active=False)
    north = replace(HEALTHY, datacenter_id="north")
    assert remaining_datacenters("west", [north, HEALTHY, away, EAST]) == ["east", "north"]


flags = st.tuples(*[st.booleans()] * 4)


@given(st.dictionaries(st.sampled_from("abcd"), flags, min_size=1), st.sampled_from("abcd"))
def test_what_may_leave_always_leaves_a_healthy_datacenter_behind(
        places: dict[str, tuple[bool, bool, bool, bool]], leaves: str) -> None:
    providers = [Provider(name, *states) for name, states in places.items()]
    served = any(place.datacenter_id == leaves and place.active and place.routable for place in providers)
    rest = [place for place in providers if place.healthy and place.datacenter_id != leaves]
    assert (check_leaving(leaves, {"m": providers}) is None) is (bool(rest) or not served)

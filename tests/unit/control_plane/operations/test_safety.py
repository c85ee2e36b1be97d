"""The rule that the last healthy datacenter of a model stays."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from control_plane.capacity.headroom import ModelHeadroom, Need
from control_plane.operations.safety import (
    LAST_DATACENTER,
    Place,
    Provider,
    Rule,
    check_away,
    check_frozen,
    check_headroom,
    check_known,
    check_leaving,
    check_telemetry,
    remaining_datacenters,
)

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
    ({"observed": False, "heard_age_s": 27.4}, "east has not been heard from for 27 s, longer than its agent's lease"),
    ({"observed": False}, "east has an agent that was never heard from")])
def test_another_datacenter_that_is_not_healthy_does_not_count(fault: dict[str, Any], words: str) -> None:
    violation = check_leaving("west", {"glm": [HEALTHY, replace(EAST, **fault)]})
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
    served = any(place.datacenter_id == leaves and (place.active or place.leaving) and place.routable
                 for place in providers)
    rest = [place for place in providers if place.healthy and place.datacenter_id != leaves]
    assert (check_leaving(leaves, {"m": providers}) is None) is (bool(rest) or not served)


def test_a_model_keeps_as_many_datacenters_as_it_must_have() -> None:
    north = replace(EAST, datacenter_id="north")
    assert check_leaving("west", {"glm": [HEALTHY, EAST, north]}, {"glm": 2}) is None
    violation = check_leaving("west", {"glm": [HEALTHY, EAST]}, {"glm": 2})
    assert violation is not None
    assert violation.message.startswith("glm must keep 2 healthy datacenters, and would keep 1")
    assert violation.numbers == {"model": "glm", "healthy_now": "2", "healthy_after": "1", "required": "2"}


def test_half_way_out_a_datacenter_still_counts_as_one_that_serves() -> None:
    assert check_leaving("west", {"glm": [replace(HEALTHY, active=False, leaving=True)]}) is not None


class TestHeadroom:
    def headroom(self, ready: int | None, peak: int | None, reserved: int) -> dict[str, ModelHeadroom]:
        return {"glm": ModelHeadroom("glm", (Need(frozenset(), ready, peak, reserved),))}

    def test_what_remains_must_hold_the_peak_and_a_fifth(self) -> None:
        assert check_headroom("west", self.headroom(12, 10, 0), self.headroom(12, 10, 0)) is None
        violation = check_headroom("west", self.headroom(11, 10, 0), self.headroom(11, 10, 0))
        assert violation is not None
        assert (violation.rule, violation.numbers) == (Rule.HEADROOM, {
            "model": "glm", "ready_after": "11", "peak": "10", "reserved": "0", "required": "12"})
        assert violation.message.endswith("repeat with --force")

    def test_what_only_reservations_make_short_is_its_own_rule(self) -> None:
        violation = check_headroom("west", self.headroom(12, 10, 20), self.headroom(12, 10, 0))
        assert violation is not None
        assert (violation.rule, violation.numbers["required"]) == (Rule.RESERVED_HEADROOM, "24")
        assert violation.message.endswith("repeat with --override-reservations")

    def test_what_nobody_knows_is_not_too_little(self) -> None:
        assert check_headroom("west", self.headroom(None, 10, 0), self.headroom(None, 10, 0)) is None

    def test_but_it_is_not_enough_for_automation(self) -> None:
        assert check_known("west", self.headroom(12, 10, 0)) is None
        violation = check_known("west", self.headroom(None, 10, 0))
        assert violation is not None
        assert violation.numbers["ready_after"] == "unknown"


class TestAwayAtOnce:
    def places(self, *away: bool, region: str = "") -> list[Place]:
        return [Place(f"dc-{number}", region or f"region-{number}", gone) for number, gone in enumerate(away)]

    @pytest.mark.parametrize(("places", "allowed"), [
        ((False,), True), ((False, False), True), ((False, True), False), ((False, False, True), False),
        ((False, False, False, True), True), ((False, False, True, True), False)])
    def test_a_third_of_all_rounded_up_may_be_away(self, places: tuple[bool, ...], allowed: bool) -> None:
        assert (check_away("dc-0", self.places(*places)) is None) is allowed

    def test_of_a_region_only_one_may_be(self) -> None:
        away = self.places(False, True, region="us") + [Place(f"far-{n}", f"far-{n}", False) for n in range(10)]
        violation = check_away("dc-0", away)
        assert violation is not None
        assert violation.numbers == {"region": "us", "away_after": "2", "allowed": "1"}

    def test_the_refusal_names_who_is_away(self) -> None:
        violation = check_away("dc-0", self.places(False, False, True))
        assert violation is not None
        assert violation.message == ("2 of 3 datacenters would be away at once, 1 may be: dc-2 is away already. "
                                     "Restore first, or repeat with --force")


class TestAutomation:
    @pytest.mark.parametrize(("ages_s", "enough"), [
        ((1.0, 60.0), True), ((1.0, 61.0), False), ((1.0, 1.0, 1.0, 1.0, None), True), ((), False), ((None,), False)])
    def test_most_of_the_others_must_have_been_heard(self, ages_s: tuple[float | None, ...], enough: bool) -> None:
        assert (check_telemetry(ages_s) is None) is enough

    def test_a_freeze_is_told_in_its_own_words(self) -> None:
        assert check_frozen("") is None
        violation = check_frozen("automation is frozen by olga: audit")
        assert violation is not None
        assert (violation.rule, violation.message) == (Rule.FROZEN, "automation is frozen by olga: audit")

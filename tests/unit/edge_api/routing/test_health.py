"""Ejections: short at first, doubling while the outage lasts, forgotten with the first success."""

import pytest

from control_plane.contracts.clock import ManualClock
from edge_api.routing.health import FIRST_EJECTION_S, LONGEST_EJECTION_S, TRIAL_S, Health

DC = "us-east-1"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def health(clock: ManualClock) -> Health:
    return Health(clock)


def test_a_datacenter_without_history_is_healthy(health: Health) -> None:
    assert not health.is_ejected(DC)


def test_one_failure_ejects_for_a_second(health: Health, clock: ManualClock) -> None:
    assert health.failed(DC)
    clock.advance(FIRST_EJECTION_S - 0.01)
    assert health.is_ejected(DC)
    clock.advance(0.01)
    assert not health.is_ejected(DC)


def test_a_failure_says_nothing_about_other_datacenters(health: Health) -> None:
    health.failed(DC)
    assert not health.is_ejected("eu-north-1")


def test_ejections_double_up_to_the_longest(health: Health, clock: ManualClock) -> None:
    lengths = []
    for _ in range(8):
        health.failed(DC)
        started_s = clock.monotonic_s()
        while health.is_ejected(DC):
            clock.advance(0.5)
        lengths.append(clock.monotonic_s() - started_s)
    assert lengths == [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0]
    assert lengths[-1] == LONGEST_EJECTION_S


def test_many_failures_at_once_are_one_outage(health: Health, clock: ManualClock) -> None:
    assert [health.failed(DC) for _ in range(50)] == [True] + 49 * [False]
    clock.advance(FIRST_EJECTION_S)
    assert not health.is_ejected(DC)


def test_a_success_forgets_the_outage(health: Health, clock: ManualClock) -> None:
    for _ in range(5):
        health.failed(DC)
        clock.advance(LONGEST_EJECTION_S)
    health.succeeded(DC)
    health.failed(DC)
    clock.advance(FIRST_EJECTION_S)
    assert not health.is_ejected(DC)


def test_a_success_during_an_ejection_ends_it(health: Health) -> None:
    health.failed(DC)
    health.succeeded(DC)
    assert not health.is_ejected(DC)


def test_while_one_request_tries_it_the_others_stay_away(health: Health, clock: ManualClock) -> None:
    health.failed(DC)
    clock.advance(FIRST_EJECTION_S)
    health.chosen(DC)
    assert health.is_ejected(DC)


def test_a_trial_that_nobody_reports_does_not_last_for_ever(health: Health, clock: ManualClock) -> None:
    health.failed(DC)
    clock.advance(FIRST_EJECTION_S)
    health.chosen(DC)
    clock.advance(TRIAL_S)
    assert not health.is_ejected(DC)


def test_a_trial_that_fails_ejects_for_longer(health: Health, clock: ManualClock) -> None:
    health.failed(DC)
    clock.advance(FIRST_EJECTION_S)
    health.chosen(DC)
    assert health.failed(DC)
    clock.advance(2 * FIRST_EJECTION_S - 0.01)
    assert health.is_ejected(DC)


def test_a_choice_of_a_healthy_datacenter_changes_nothing(health: Health) -> None:
    health.chosen(DC)
    assert not health.is_ejected(DC)

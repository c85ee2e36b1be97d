"""Retries never multiply an outage."""

import pytest

from edge_api.routing.retry import CEILING, FLOOR, RetryBudget


def test_a_fresh_edge_can_move_its_first_failures() -> None:
    budget = RetryBudget()
    assert [budget.allow() for _ in range(int(FLOOR) + 1)] == int(FLOOR) * [True] + [False]


@pytest.mark.parametrize("requests", [1_000, 10_000, 100_000])
def test_with_everything_failing_retries_are_a_tenth_of_requests_and_the_floor(requests: int) -> None:
    budget, retries = RetryBudget(), 0
    for _ in range(requests):
        budget.note_request()
        while budget.allow():
            retries += 1
    assert retries == pytest.approx(requests / 10 + FLOOR, abs=1)


def test_a_steady_outage_amplifies_by_at_most_a_tenth() -> None:
    budget = RetryBudget()
    while budget.allow():
        pass
    retries = 0
    for _ in range(5_000):
        budget.note_request()
        retries += budget.allow()
    assert 1 + retries / 5_000 <= 1.1


def test_quiet_times_save_up_a_bounded_number_of_retries() -> None:
    budget = RetryBudget()
    for _ in range(100_000):
        budget.note_request()
    assert sum(budget.allow() for _ in range(1_000)) == int(CEILING)


def test_nothing_is_allowed_between_two_earned_retries() -> None:
    budget = RetryBudget()
    while budget.allow():
        pass
    for _ in range(9):
        budget.note_request()
    assert not budget.allow()

"""Retries never multiply an outage, and a lost datacenter's open requests can all be moved."""

import pytest

from edge_api.routing.retry import (
    FIRST_MOVES,
    FIRST_RETRIES,
    LONGEST_BACKOFF_S,
    MOST_MOVES,
    MOST_RETRIES,
    RetryBudget,
    backoff_s,
)

MAX_ATTEMPTS = 3


def exhausted() -> RetryBudget:
    budget = RetryBudget()
    while budget.allow_move():
        pass
    return budget


def attempts_of_failing(budget: RetryBudget, requests: int) -> int:
    """How many attempts become of requests that all fail, each tried as often as it may."""
    attempts = 0
    for _ in range(requests):
        budget.note_request()
        attempts += 1
        for _ in range(MAX_ATTEMPTS - 1):
            attempts += budget.allow()
    return attempts


def test_a_fresh_edge_can_move_its_first_failures() -> None:
    budget = RetryBudget()
    assert [budget.allow() for _ in range(int(FIRST_RETRIES) + 1)] == int(FIRST_RETRIES) * [True] + [False]


@pytest.mark.parametrize("requests", [1_000, 10_000, 100_000])
def test_with_every_datacenter_failing_attempts_are_at_most_a_tenth_more_than_requests(requests: int) -> None:
    assert attempts_of_failing(RetryBudget(), requests) <= 1.1 * requests


def test_after_good_times_an_outage_is_not_multiplied_either() -> None:
    budget = RetryBudget()
    for _ in range(50_000):
        budget.note_request()
        budget.note_answer()
    assert attempts_of_failing(budget, 10_000) <= 1.1 * 10_000


def test_an_outage_that_accepts_everything_and_answers_nothing_is_not_multiplied() -> None:
    budget, attempts, requests = RetryBudget(), 0, 10_000
    for _ in range(requests):
        budget.note_request()
        attempts += 1 + budget.allow_move()
    assert attempts <= 1.1 * requests


def test_quiet_times_save_up_a_bounded_number_of_retries() -> None:
    budget = RetryBudget()
    for _ in range(100_000):
        budget.note_request()
    assert sum(budget.allow() for _ in range(1_000)) == int(MOST_RETRIES)


def test_nothing_is_allowed_between_two_earned_retries() -> None:
    budget = exhausted()
    for _ in range(14):
        budget.note_request()
    assert not budget.allow()
    budget.note_request()
    assert budget.allow()


def test_each_whole_answer_earns_one_move_up_to_a_bound() -> None:
    budget = exhausted()
    budget.note_answer()
    assert [budget.allow_move(), budget.allow_move()] == [True, False]
    for _ in range(3 * MOST_MOVES):
        budget.note_answer()
    assert sum(budget.allow_move() for _ in range(3 * MOST_MOVES)) == MOST_MOVES


def test_a_fresh_edge_can_move_what_a_lost_datacenter_had_open() -> None:
    budget = RetryBudget()
    assert all(budget.allow_move() for _ in range(FIRST_MOVES))


def test_without_moves_a_retry_pays() -> None:
    budget = RetryBudget()
    assert sum(budget.allow_move() for _ in range(FIRST_MOVES + 100)) == FIRST_MOVES + int(FIRST_RETRIES)


def test_a_retry_is_never_paid_with_a_move() -> None:
    budget = RetryBudget()
    assert sum(budget.allow() for _ in range(1_000)) == int(FIRST_RETRIES)
    assert budget.allow_move()


def test_the_first_failure_goes_elsewhere_at_once() -> None:
    assert backoff_s(0) == backoff_s(1) == 0.0


def test_later_attempts_wait_longer_and_not_in_step() -> None:
    waits_s = {failures: [backoff_s(failures) for _ in range(200)] for failures in (2, 3, 4)}
    means_s = [sum(waits) / len(waits) for waits in waits_s.values()]
    assert means_s == sorted(means_s)
    assert all(max(waits) > 1.5 * min(waits) for waits in waits_s.values())


def test_no_wait_grows_beyond_its_bound() -> None:
    assert max(backoff_s(failures) for failures in range(2, 30)) <= 1.5 * LONGEST_BACKOFF_S

"""What the planner remembers so that it never swings."""

from control_plane.capacity.hysteresis import (
    Direction,
    Limits,
    PastMove,
    Signal,
    Signals,
    follow,
    latest_reverse_s,
    latest_step_s,
    moved_gpus,
    releasing_gpus,
    swings,
)
from control_plane.contracts.deployment import PoolRole

A, B = ("a", PoolRole.DECODE), ("b", PoolRole.DECODE)
LIMITS = Limits()


def move(at_s: float, replicas: int, key: tuple[str, PoolRole] = A, model: str = "m", fleet: str = "f") -> PastMove:
    return PastMove(at_s, model, fleet, key, replicas, replicas * 2)


def test_a_signal_that_goes_on_keeps_its_beginning() -> None:
    first = follow(Signals(), {A: Direction.UP}, LIMITS, 1_000)
    assert follow(first, {A: Direction.UP}, LIMITS, 1_060).of == {A: Signal(Direction.UP, 1_000)}


def test_a_signal_that_turns_begins_anew() -> None:
    first = follow(Signals(), {A: Direction.UP}, LIMITS, 1_000)
    assert follow(first, {A: Direction.DOWN}, LIMITS, 1_060).of == {A: Signal(Direction.DOWN, 1_060)}


def test_a_signal_that_broke_off_begins_anew() -> None:
    first = follow(Signals(), {A: Direction.UP}, LIMITS, 1_000)
    gap = follow(first, {}, LIMITS, 1_060)
    assert follow(gap, {A: Direction.UP}, LIMITS, 1_120).of == {A: Signal(Direction.UP, 1_120)}


def test_what_nobody_looked_at_for_three_intervals_was_not_seen_to_hold() -> None:
    first = follow(Signals(), {A: Direction.UP}, LIMITS, 1_000)
    assert follow(first, {A: Direction.UP}, LIMITS, 1_180).of[A].since_s == 1_000
    assert follow(first, {A: Direction.UP}, LIMITS, 1_181).of[A].since_s == 1_181


def test_the_last_step_is_that_of_the_whole_model() -> None:
    history = [move(10, 1), move(20, -1, B), move(30, 1, B, model="other")]
    assert latest_step_s(history, "m") == 20
    assert latest_step_s(history, "unknown") is None


def test_only_a_move_of_the_same_pool_the_other_way_is_a_reverse() -> None:
    history = [move(10, 1), move(20, -1, B)]
    assert latest_reverse_s(history, A, Direction.DOWN) == 10
    assert latest_reverse_s(history, A, Direction.UP) is None
    assert latest_reverse_s(history, B, Direction.UP) == 20


def test_gpus_that_changed_hands_count_both_ways_and_those_that_are_let_go_only_one() -> None:
    history = [move(10, 5), move(100, 2), move(110, -3), move(120, 4, fleet="other")]
    assert moved_gpus(history, "f", since_s=50) == 10
    assert releasing_gpus(history, "f", since_s=50) == 6


def test_a_swing_is_a_pool_moved_back_within_the_time() -> None:
    up, down = move(0, 1), move(1_799, -1)
    assert swings([down, up], 1_800) == [(up, down)]
    assert swings([up, move(1_800, -1)], 1_800) == []
    assert swings([up, move(60, -1, B)], 1_800) == []
    assert swings([up, move(60, 3)], 1_800) == []


def test_every_move_within_the_time_is_compared_not_only_the_last() -> None:
    assert len(swings([move(0, -1), move(100, 1), move(200, 1), move(300, -1)], 1_800)) == 4

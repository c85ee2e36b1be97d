"""Restart delays and the states of a part."""

import pytest

from infra.local.supervisor import RESTART_MAX_S, TRANSITIONS, PartState, describe_exit, restart_delay_s


def test_the_first_restart_comes_soon() -> None:
    assert 0.3 <= restart_delay_s(1) <= 0.7


def test_each_quick_end_doubles_the_delay() -> None:
    for failures in range(1, 4):
        assert restart_delay_s(failures) * 1.2 < restart_delay_s(failures + 1) < restart_delay_s(failures) * 4


@pytest.mark.parametrize("failures", [6, 10, 10_000])
def test_the_delay_is_bounded(failures: int) -> None:
    assert restart_delay_s(failures) == RESTART_MAX_S


def test_many_parts_do_not_restart_in_step() -> None:
    assert len({restart_delay_s(2) for _ in range(10)}) > 1


def test_exits_are_told_in_words() -> None:
    assert describe_exit(-9) == "signal 9"
    assert describe_exit(1) == "exit code 1"


def test_every_state_has_a_row_and_every_state_can_be_reached() -> None:
    assert set(TRANSITIONS) == set(PartState)
    assert set().union(*TRANSITIONS.values()) == set(PartState)


def test_a_stopped_part_never_runs_again() -> None:
    assert TRANSITIONS[PartState.STOPPED] == frozenset()
    assert TRANSITIONS[PartState.STOPPING] == {PartState.STOPPED}

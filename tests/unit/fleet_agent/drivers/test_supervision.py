"""What the local driver decides to start and to end."""

import pytest

from control_plane.contracts.launch import LaunchProcess
from fleet_agent.drivers.processes import ProcessIdentity
from fleet_agent.drivers.supervision import Failures, Managed, Move, after_exit, is_wanted, moves, waits_for
from tests.unit.fleet_agent.examples import process

NATS = process("nats")
WORKER = process("worker", start_after=("nats",))
FRONTEND = process("frontend", start_after=("nats",))
PLAN = [NATS, WORKER, FRONTEND]
NOW_S = 100.0


def running(*specs: LaunchProcess, is_ready: bool = True, kill_at_s: float | None = None) -> dict[str, Managed]:
    return {spec.name: Managed(spec, ProcessIdentity(1, "boot:1"), 0.0, is_ready, kill_at_s) for spec in specs}


def decided(plan: list[LaunchProcess], managed: dict[str, Managed], **failures: Failures) -> list[tuple[Move, str]]:
    return moves(plan, managed, failures, NOW_S)


def test_what_waits_for_nothing_starts_first() -> None:
    assert decided(PLAN, {}) == [(Move.START, "nats")]


def test_the_rest_waits_until_it_is_ready() -> None:
    assert decided(PLAN, running(NATS, is_ready=False)) == []


def test_the_rest_starts_in_the_plans_order_once_it_is_ready() -> None:
    assert decided(PLAN, running(NATS)) == [(Move.START, "worker"), (Move.START, "frontend")]


def test_a_host_that_is_as_planned_is_left_alone() -> None:
    assert decided(PLAN, running(*PLAN)) == []


def test_what_runs_stays_when_what_it_started_after_is_lost() -> None:
    assert decided(PLAN, running(WORKER, FRONTEND)) == [(Move.START, "nats")]


def test_a_failed_process_waits_for_its_turn() -> None:
    assert decided(PLAN, running(NATS, FRONTEND), worker=Failures(1, retry_at_s=NOW_S + 0.1)) == []


def test_a_failed_process_starts_again_when_its_turn_came() -> None:
    assert decided(PLAN, running(NATS, FRONTEND), worker=Failures(1, retry_at_s=NOW_S)) == [(Move.START, "worker")]


def test_a_removed_process_is_ended() -> None:
    assert decided([NATS, FRONTEND], running(*PLAN)) == [(Move.TERMINATE, "worker")]


def test_a_process_that_was_told_to_end_is_told_once() -> None:
    managed = running(NATS, FRONTEND) | running(WORKER, kill_at_s=NOW_S + 1)
    assert decided([NATS, FRONTEND], managed) == []


def test_a_process_whose_grace_is_over_is_killed() -> None:
    managed = running(NATS, FRONTEND) | running(WORKER, kill_at_s=NOW_S)
    assert decided([NATS, FRONTEND], managed) == [(Move.KILL, "worker")]


def test_ending_everything_begins_with_those_that_depend_on_others() -> None:
    assert decided([], running(*PLAN)) == [(Move.TERMINATE, "worker"), (Move.TERMINATE, "frontend")]


def test_ending_everything_goes_on_when_they_are_gone() -> None:
    assert decided([], running(NATS)) == [(Move.TERMINATE, "nats")]


def test_a_changed_process_is_ended_and_not_started_beside_itself() -> None:
    changed = process("worker", digest="2", start_after=("nats",))
    assert decided([NATS, changed, FRONTEND], running(*PLAN)) == [(Move.TERMINATE, "worker")]


def test_a_changed_process_starts_when_the_old_one_is_gone() -> None:
    changed = process("worker", digest="2", start_after=("nats",))
    assert decided([NATS, changed, FRONTEND], running(NATS, FRONTEND)) == [(Move.START, "worker")]


def test_a_changed_dependency_does_not_wait_for_wanted_dependents() -> None:
    assert decided([process("nats", digest="2"), WORKER, FRONTEND], running(*PLAN)) == [(Move.TERMINATE, "nats")]


def test_a_process_that_comes_back_into_the_plan_while_it_ends_is_started_afterwards() -> None:
    managed = running(NATS, FRONTEND) | running(WORKER, kill_at_s=NOW_S + 1)
    assert decided(PLAN, managed) == []
    assert decided(PLAN, running(NATS, FRONTEND)) == [(Move.START, "worker")]


def test_a_process_that_ends_is_killed_even_if_the_plan_wants_it_again() -> None:
    managed = running(NATS, FRONTEND) | running(WORKER, kill_at_s=NOW_S)
    assert decided(PLAN, managed) == [(Move.KILL, "worker")]


def test_nothing_starts_after_a_process_that_is_being_replaced() -> None:
    old = running(NATS)
    new_nats = process("nats", digest="2")
    assert waits_for(WORKER, old, {"nats": new_nats}) == ["nats"]


@pytest.mark.parametrize(("plan", "kill_at_s", "wanted"), [
    ({"worker": WORKER}, None, True),
    ({"worker": WORKER}, NOW_S, False),
    ({"worker": process("worker", digest="2")}, None, False),
    ({}, None, False),
])
def test_a_process_is_wanted_unchanged_and_not_ending(
    plan: dict[str, LaunchProcess], kill_at_s: float | None, wanted: bool
) -> None:
    assert is_wanted(running(WORKER, kill_at_s=kill_at_s)["worker"], plan) is wanted


def delays_s(*alive_s: float) -> list[float]:
    failures, found = Failures(), []
    for alive in alive_s:
        failures = after_exit(failures, alive, NOW_S)
        found.append(failures.retry_at_s - NOW_S)
    return found


def test_each_exit_in_a_row_doubles_the_pause_up_to_ten_seconds() -> None:
    assert delays_s(0, 0, 0, 0, 0, 0, 0) == [0.5, 1.0, 2.0, 4.0, 8.0, 10.0, 10.0]


def test_a_minute_of_life_starts_the_pause_over() -> None:
    assert delays_s(0, 0, 59.9, 60.0) == [0.5, 1.0, 2.0, 0.5]


def test_the_pause_stays_capped_however_long_it_goes_on() -> None:
    assert delays_s(*[0.0] * 2_000)[-1] == 10.0

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


def test_replicas_do_not_wait_for_each_other_when_what_they_started_after_is_replaced() -> None:
    replicas = [process(f"decode-{at}", deployment_id="glm", role="decode", start_after=("nats",)) for at in range(3)]
    changed = [process(one.name, "2", one.start_after, deployment_id=one.deployment_id, role=one.role)
               for one in (NATS, *replicas)]
    managed = running(NATS, *replicas[:2])
    assert decided(changed, managed) == [(Move.TERMINATE, "decode-0"), (Move.TERMINATE, "decode-1")]
    assert decided(changed, running(NATS)) == [(Move.TERMINATE, "nats")]
    assert decided(changed, running(changed[0])) == [(Move.START, one.name) for one in replicas]


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


class TestReplacing:
    """Replicas under another digest, one after the other."""

    @staticmethod
    def replicas(count: int, digest: str = "1", role: str = "decode") -> list[LaunchProcess]:
        return [process(f"glm-{role}-{at}", digest=digest, deployment_id="glm", role=role) for at in range(count)]

    def test_only_the_first_of_a_few_is_ended(self) -> None:
        assert decided(self.replicas(3, "2"), running(*self.replicas(3))) == [(Move.TERMINATE, "glm-decode-0")]

    def test_a_quarter_of_many_is_ended_at_once(self) -> None:
        assert len(decided(self.replicas(9, "2"), running(*self.replicas(9)))) == 2

    def test_each_role_is_replaced_by_itself(self) -> None:
        new = [*self.replicas(2, "2"), *self.replicas(2, "2", "prefill")]
        old = [*self.replicas(2), *self.replicas(2, role="prefill")]
        assert decided(new, running(*old)) == [(Move.TERMINATE, "glm-decode-0"), (Move.TERMINATE, "glm-prefill-0")]

    def test_the_next_waits_while_the_first_is_ending(self) -> None:
        first, second = self.replicas(2)
        managed = running(first, kill_at_s=NOW_S + 9) | running(second)
        assert decided(self.replicas(2, "2"), managed) == []

    def test_the_next_waits_until_the_first_serves_again(self) -> None:
        old, new = self.replicas(2), self.replicas(2, "2")
        assert decided(new, running(new[0], is_ready=False) | running(old[1])) == []
        assert decided(new, running(new[0]) | running(old[1])) == [(Move.TERMINATE, "glm-decode-1")]

    def test_the_replacement_starts_when_the_old_one_is_gone(self) -> None:
        old, new = self.replicas(2), self.replicas(2, "2")
        assert decided(new, running(old[1])) == [(Move.START, "glm-decode-0")]

    def test_one_that_does_not_serve_is_replaced_whatever_the_others_do(self) -> None:
        old, new = self.replicas(2), self.replicas(2, "2")
        managed = running(old[0], is_ready=False) | running(old[1], is_ready=False)
        assert decided(new, managed) == [(Move.TERMINATE, "glm-decode-0"), (Move.TERMINATE, "glm-decode-1")]

    def test_the_last_old_ones_serve_on_while_the_first_new_one_never_does(self) -> None:
        old, new = self.replicas(3), self.replicas(3, "2")
        managed = running(new[0], is_ready=False) | running(old[1], old[2])
        assert decided(new, managed) == []
        assert decided(old, managed) == [(Move.TERMINATE, "glm-decode-0")]

    def test_a_single_replica_is_replaced_at_once(self) -> None:
        assert decided(self.replicas(1, "2"), running(*self.replicas(1))) == [(Move.TERMINATE, "glm-decode-0")]

    def test_removed_ones_are_ended_together(self) -> None:
        assert len(decided(self.replicas(1), running(*self.replicas(3)))) == 2

    def test_what_the_fleet_shares_is_replaced_at_once(self) -> None:
        old, new = [process("frontend"), process("grammar")], [process("frontend", "2"), process("grammar", "2")]
        assert len(decided(new, running(*old))) == 2

"""What the worker says of its own health."""

from control_plane.contracts.clock import ManualClock
from control_plane.worker import READY_FOR_S, STUCK_AFTER_S, Pulse


def test_a_worker_is_not_ready_before_its_first_task() -> None:
    pulse = Pulse(ManualClock())
    assert (pulse.is_alive(), pulse.is_ready()) == (True, False)
    assert "no task has run yet" in pulse.problem()


async def test_a_worker_is_ready_while_tasks_of_the_beat_run() -> None:
    clock = ManualClock()
    pulse = Pulse(clock)
    pulse.beat()
    assert (pulse.is_ready(), pulse.problem()) == (True, "")


async def test_a_worker_whose_beat_stopped_is_alive_and_not_ready() -> None:
    clock = ManualClock()
    pulse = Pulse(clock)
    pulse.beat()
    clock.advance(READY_FOR_S + 1)
    await one_turn(pulse)
    assert (pulse.is_alive(), pulse.is_ready()) == (True, False)
    assert "for 31 s" in pulse.problem()


def test_a_worker_whose_loop_does_not_turn_is_not_alive() -> None:
    clock = ManualClock()
    pulse = Pulse(clock)
    clock.advance(STUCK_AFTER_S)
    assert not pulse.is_alive()


async def one_turn(pulse: Pulse) -> None:
    turning = pulse.turn()
    turning.send(None)
    turning.close()

"""The local driver on real processes."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from fleet_agent.drivers import processes
from fleet_agent.drivers.local import LocalDriver
from fleet_agent.store import ProcessRow
from tests.integration.fleet_agent.conftest import Driving, Engine, plan_for, until
from tests.unit.fleet_agent import examples

EVERY = {"bus", "test-a-glm-prefill-0", "test-a-glm-decode-0", "test-a-glm-decode-1", "frontend"}
DECODE = "test-a-glm-decode-1"


async def bring_up(driving: Driving, engine: Engine, state: examples.DesiredState | None = None) -> dict[str, int]:
    driving.driver.apply(await plan_for(engine, state or examples.desired()))
    await until(lambda: driving.ready() == EVERY)
    return engine.alive()


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


def status(driver: LocalDriver, name: str) -> str:
    return next(process.trouble for process in driver.observe() if process.name == name)


async def test_a_plan_becomes_processes_in_its_order(driving: Driving, engine: Engine) -> None:
    assert set(await bring_up(driving, engine)) == EVERY
    assert next(name for _, name, _, event in engine.journal() if event == "start") == "bus"


async def test_every_process_is_written_down(driving: Driving, engine: Engine) -> None:
    alive = await bring_up(driving, engine)
    assert {row.spec.name: row.pid for row in driving.store.processes()} == alive


async def test_the_same_plan_again_changes_nothing(driving: Driving, engine: Engine) -> None:
    before = await bring_up(driving, engine)
    driving.driver.apply(await plan_for(engine, examples.desired()))
    await asyncio.sleep(0.5)
    assert engine.alive() == before


async def test_a_killed_process_is_started_again(driving: Driving, engine: Engine) -> None:
    before = await bring_up(driving, engine)
    kill(before[DECODE])
    await until(lambda: DECODE not in driving.ready())
    assert "ended by itself (1 in a row)" in status(driving.driver, DECODE)
    await until(lambda: driving.ready() == EVERY)
    after = engine.alive()
    assert {name for name in EVERY if before[name] != after[name]} == {DECODE}
    assert driving.driver.restarts == 1


async def test_a_process_that_keeps_failing_is_started_with_growing_pauses(driving: Driving, engine: Engine) -> None:
    engine.break_(DECODE)
    driving.driver.apply(await plan_for(engine, examples.desired()))
    await until(lambda: len(engine.starts(DECODE)) >= 4, timeout_s=20)
    first, second, third, fourth = engine.starts(DECODE)[:4]
    assert second - first >= 0.4
    assert third - second >= 0.8
    assert fourth - third >= 1.6
    assert driving.ready() == EVERY - {DECODE}


async def test_a_process_that_is_mended_comes_back(driving: Driving, engine: Engine) -> None:
    engine.break_(DECODE)
    driving.driver.apply(await plan_for(engine, examples.desired()))
    await until(lambda: engine.starts(DECODE))
    engine.break_(DECODE, is_broken=False)
    await until(lambda: driving.ready() == EVERY)


async def test_a_program_that_is_not_there_is_trouble_and_tried_again(driving: Driving, engine: Engine) -> None:
    missing = examples.process("worker", argv=["/no/such/program"], log_path=str(engine.path / "worker.log"))
    driving.driver.apply(examples.plan(missing))
    await until(lambda: "cannot be started: No such file" in status(driving.driver, "worker"))
    await until(lambda: "2 in a row" in status(driving.driver, "worker"))
    assert driving.store.processes() == []


async def test_scaling_down_ends_only_what_is_not_wanted_and_gives_it_time(driving: Driving, engine: Engine) -> None:
    slow = examples.deployment(stop_delay_s="0.7")
    before = await bring_up(driving, engine, examples.desired(1, slow))
    fewer = examples.deployment(stop_delay_s="0.7", decode=1)
    driving.driver.apply(await plan_for(engine, examples.desired(2, fewer)))
    await until(lambda: DECODE not in engine.alive())
    events = [event for _, name, _, event in engine.journal() if name == DECODE]
    assert events == ["start", "SIGTERM", "end"]
    assert engine.alive() == {name: pid for name, pid in before.items() if name != DECODE}


async def test_a_process_that_ignores_its_grace_is_killed(driving: Driving, engine: Engine) -> None:
    stubborn = examples.deployment(stop_delay_s="60", stop_grace_s="0.5")
    await bring_up(driving, engine, examples.desired(1, stubborn))
    fewer = examples.deployment(stop_delay_s="60", stop_grace_s="0.5", decode=1)
    driving.driver.apply(await plan_for(engine, examples.desired(2, fewer)))
    await until(lambda: DECODE not in engine.alive(), timeout_s=5)
    assert [event for _, name, _, event in engine.journal() if name == DECODE] == ["start", "SIGTERM"]


async def test_a_process_being_ended_is_not_ready_and_not_wanted(driving: Driving, engine: Engine) -> None:
    slow = examples.deployment(stop_delay_s="1")
    await bring_up(driving, engine, examples.desired(1, slow))
    fewer = examples.deployment(stop_delay_s="1", decode=1)
    driving.driver.apply(await plan_for(engine, examples.desired(2, fewer)))
    ending = next(process for process in driving.driver.observe() if process.name == DECODE)
    assert (ending.is_running, ending.is_ready, ending.is_wanted) == (True, False, False)


async def test_a_changed_process_is_replaced_never_doubled(driving: Driving, engine: Engine) -> None:
    before = await bring_up(driving, engine)
    changed = examples.deployment(revision="2")
    driving.driver.apply(await plan_for(engine, examples.desired(2, changed)))
    await until(lambda: driving.ready() == EVERY)
    after = engine.alive()
    assert {name for name in EVERY if before[name] == after[name]} == {"bus", "frontend"}


async def test_an_empty_plan_ends_everything_the_bus_last(driving: Driving, engine: Engine) -> None:
    await bring_up(driving, engine)
    driving.driver.apply(examples.plan())
    await until(lambda: not engine.alive())
    assert [name for _, name, _, event in engine.journal() if event == "end"][-1] == "bus"
    await until(lambda: driving.store.processes() == [])


async def test_stop_ends_everything_within_the_grace_however_long_it_wants(driving: Driving, engine: Engine) -> None:
    await bring_up(driving, engine, examples.desired(1, examples.deployment(stop_delay_s="60")))
    await driving.crash()
    before_s = time.monotonic()
    await driving.driver.stop(grace_s=1.0)
    assert time.monotonic() - before_s < 3
    assert engine.alive() == {}
    assert [name for _, name, _, event in engine.journal() if event == "end"][-1] == "bus"


async def test_frozen_it_restarts_nothing_and_ends_nothing(driving: Driving, engine: Engine) -> None:
    before = await bring_up(driving, engine)
    driving.driver.freeze(True)
    driving.driver.apply(examples.plan())
    kill(before[DECODE])
    await asyncio.sleep(1.2)
    assert engine.alive() == {name: pid for name, pid in before.items() if name != DECODE}
    driving.driver.freeze(False)
    await until(lambda: engine.alive() == {})


async def test_what_a_crashed_process_leaves_behind_is_killed(driving: Driving, engine: Engine) -> None:
    before = await bring_up(driving, engine, examples.desired(1, examples.deployment(orphan="yes")))
    (child,) = children_of(before[DECODE])
    kill(before[DECODE])
    await until(lambda: not is_running(child))


async def test_a_new_boot_takes_over_what_runs(driving: Driving, engine: Engine) -> None:
    before = await bring_up(driving, engine)
    await driving.crash()
    boot = await next_boot(driving)
    boot.driver.apply(await plan_for(engine, examples.desired()))
    await until(lambda: boot.ready() == EVERY)
    assert engine.alive() == before
    await boot.crash()


async def test_a_new_boot_calls_adopted_processes_ready_at_once(driving: Driving, engine: Engine) -> None:
    await bring_up(driving, engine)
    await driving.crash()
    boot = await next_boot(driving)
    boot.driver.apply(await plan_for(engine, examples.desired()))
    assert boot.ready() == EVERY
    await boot.crash()


async def test_a_new_boot_starts_what_died_in_between(driving: Driving, engine: Engine) -> None:
    before = await bring_up(driving, engine)
    await driving.crash()
    kill(before[DECODE])
    boot = await next_boot(driving)
    boot.driver.apply(await plan_for(engine, examples.desired()))
    await until(lambda: boot.ready() == EVERY)
    assert {name for name, pid in engine.alive().items() if pid != before[name]} == {DECODE}
    await boot.crash()


async def test_a_new_boot_ends_what_is_not_planned_any_more(driving: Driving, engine: Engine) -> None:
    await bring_up(driving, engine)
    await driving.crash()
    boot = await next_boot(driving)
    boot.driver.apply(examples.plan())
    await until(lambda: not engine.alive())
    await boot.crash()


async def test_a_start_that_was_not_finished_writing_down_is_found(driving: Driving, engine: Engine) -> None:
    before = await bring_up(driving, engine)
    await driving.crash()
    (row,) = [row for row in driving.store.processes() if row.spec.name == DECODE]
    driving.store.put_process(ProcessRow(row.spec, row.token))  # as it is between the two writes
    boot = await next_boot(driving)
    boot.driver.apply(await plan_for(engine, examples.desired()))
    await until(lambda: boot.ready() == EVERY)
    assert engine.alive() == before
    assert row in driving.store.processes()
    await boot.crash()


async def test_a_start_that_never_happened_happens_now(driving: Driving, engine: Engine) -> None:
    plan = await plan_for(engine, examples.desired())
    await driving.crash()
    driving.store.put_process(ProcessRow(plan.processes[0], "nobody has this token"))
    boot = await next_boot(driving)
    assert driving.store.processes() == []
    boot.driver.apply(plan)
    await until(lambda: boot.ready() == EVERY)
    await boot.crash()


async def test_a_stranger_who_got_the_pid_is_neither_adopted_nor_harmed(driving: Driving, engine: Engine) -> None:
    stranger = sleeper()
    try:
        plan = await plan_for(engine, examples.desired())
        await driving.crash()
        driving.store.put_process(ProcessRow(plan.processes[0], "token", stranger.pid, "an earlier boot:17"))
        boot = await next_boot(driving)
        boot.driver.apply(plan)
        await until(lambda: boot.ready() == EVERY)
        boot.driver.apply(examples.plan())
        await until(lambda: not engine.alive())
        assert stranger.poll() is None
        await boot.crash()
    finally:
        stranger.kill()
        stranger.wait()


async def test_a_process_that_stops_answering_stays_ready_through_a_short_pause(
    driving: Driving, engine: Engine
) -> None:
    before = await bring_up(driving, engine)
    os.kill(before[DECODE], signal.SIGSTOP)
    await asyncio.sleep(0.5)
    assert DECODE in driving.ready()
    await until(lambda: DECODE not in driving.ready(), timeout_s=15)
    os.kill(before[DECODE], signal.SIGCONT)
    await until(lambda: driving.ready() == EVERY)
    assert engine.alive() == before


async def next_boot(driving: Driving) -> Driving:
    """The driver of the agent's next start, on the same store."""
    boot = Driving(LocalDriver(driving.store, driving.driver._clock, driving.driver._client), driving.store)
    await boot.start()
    return boot


def sleeper() -> "subprocess.Popen[bytes]":
    code = "import time; time.sleep(60)"
    return subprocess.Popen([sys.executable, "-I", "-S", "-c", code], start_new_session=True)


def children_of(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def is_running(pid: int) -> bool:
    stat = processes._stat(pid)
    return stat is not None and not stat.is_dead


async def test_replicas_are_replaced_one_after_the_other_and_the_other_serves(driving: Driving, engine: Engine) -> None:
    await bring_up(driving, engine)
    driving.driver.apply(await plan_for(engine, examples.desired(2, examples.deployment(revision="2"))))
    names, fewest = ["test-a-glm-decode-0", DECODE], 2
    while driving.ready() != EVERY:
        fewest = min(fewest, sum(name in engine.alive() for name in names))
        await asyncio.sleep(0.02)
    assert fewest == 1
    ends = [(name, event) for _, name, _, event in engine.journal() if name in names and event != "SIGTERM"]
    assert ends[-4:] == [(names[0], "end"), (names[0], "start"), (names[1], "end"), (names[1], "start")]


async def test_a_specification_that_never_serves_costs_one_replica(driving: Driving, engine: Engine) -> None:
    before = await bring_up(driving, engine)
    engine.break_("test-a-glm-decode-0")
    driving.driver.apply(await plan_for(engine, examples.desired(2, examples.deployment(revision="2"))))
    await until(lambda: driving.driver.restarts >= 2)
    assert engine.alive()[DECODE] == before[DECODE]

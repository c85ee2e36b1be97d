"""A whole agent as its user runs it: `meridian agent` against a control plane, driving real processes."""

import os
import signal
import sqlite3
import time
from collections.abc import Callable

import httpx
import pytest

from control_plane.contracts.agent_sync import AgentSyncRequest, CommandState, DeploymentPhase, DesiredState
from tests.integration.fleet_agent.conftest import AgentProcess, Engine
from tests.integration.fleet_agent.fake_control_plane import FakeControlPlane
from tests.unit.fleet_agent import examples

EVERY = {"bus", "test-a-glm-prefill-0", "test-a-glm-decode-0", "test-a-glm-decode-1", "frontend"}
DECODE = "test-a-glm-decode-1"


def phase(wanted: DeploymentPhase, generation: int = 1) -> Callable[[AgentSyncRequest], bool]:
    return lambda request: [(d.phase, d.observed_generation) for d in request.deployments] == [(wanted, generation)]


@pytest.fixture
def ready(agent: AgentProcess, engine: Engine, control_plane: FakeControlPlane) -> dict[str, int]:
    """The pids of a fleet that an agent brought up."""
    control_plane.desired = examples.desired(1)
    agent.start()
    control_plane.wait_for(phase(DeploymentPhase.READY))
    return engine.alive()


def until(condition: Callable[[], object], timeout_s: float = 15.0) -> None:
    give_up_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < give_up_s, "it never happened"
        time.sleep(0.05)


def get(url: str) -> tuple[int, str]:
    answer = httpx.get(url, timeout=5, trust_env=False)
    return answer.status_code, answer.text


def test_a_killed_worker_is_reported_and_replaced(
    ready: dict[str, int], engine: Engine, control_plane: FakeControlPlane
) -> None:
    os.kill(ready[DECODE], signal.SIGKILL)
    degraded = control_plane.wait_for(phase(DeploymentPhase.DEGRADED))
    assert f"{DECODE} ended by itself" in degraded.deployments[0].message
    control_plane.wait_for(phase(DeploymentPhase.READY))
    assert engine.alive()[DECODE] != ready[DECODE]


def test_a_killed_agent_leaves_the_fleet_serving_and_finds_it_again(
    ready: dict[str, int], agent: AgentProcess, engine: Engine, control_plane: FakeControlPlane
) -> None:
    agent.end(signal.SIGKILL)
    assert engine.alive() == ready
    agent.start()
    control_plane.wait_for(lambda request: request.epoch == 2 and phase(DeploymentPhase.READY)(request))
    assert engine.alive() == ready == agent.pids()


def test_a_restarted_agent_reports_the_fleet_ready_from_its_first_word(
    ready: dict[str, int], agent: AgentProcess, control_plane: FakeControlPlane
) -> None:
    agent.end(signal.SIGKILL)
    before = len(control_plane.requests)
    agent.start()
    until(lambda: len(control_plane.requests) > before)
    assert phase(DeploymentPhase.READY)(control_plane.requests[before])


def test_killed_at_any_moment_while_starting_it_never_doubles_a_process(
    agent: AgentProcess, engine: Engine, control_plane: FakeControlPlane
) -> None:
    control_plane.desired = examples.desired(1)
    for delay_s in (0.9, 1.0, 1.1, 1.2, 1.3):
        agent.start()
        time.sleep(delay_s)
        agent.end(signal.SIGKILL)
        engine.alive()  # fails if two processes have one name
    agent.start()
    control_plane.wait_for(phase(DeploymentPhase.READY))
    assert engine.alive() == agent.pids()


def test_with_the_control_plane_away_it_starts_from_its_store_and_supervises(
    ready: dict[str, int], agent: AgentProcess, engine: Engine, control_plane: FakeControlPlane
) -> None:
    control_plane.is_away = True
    agent.end(signal.SIGKILL)
    os.kill(ready[DECODE], signal.SIGKILL)
    agent.start()
    until(lambda: DECODE in engine.alive())
    assert {name for name, pid in engine.alive().items() if pid != ready[name]} == {DECODE}
    control_plane.is_away = False
    control_plane.wait_for(phase(DeploymentPhase.READY))


def test_a_whole_fleet_comes_back_from_the_store_alone(
    ready: dict[str, int], agent: AgentProcess, engine: Engine, control_plane: FakeControlPlane
) -> None:
    control_plane.is_away = True
    agent.end(signal.SIGKILL)
    for pid in ready.values():
        os.kill(pid, signal.SIGKILL)
    until(lambda: not engine.alive())
    agent.start()
    until(lambda: set(engine.alive()) == EVERY)


def test_sigterm_leaves_the_fleet_serving(ready: dict[str, int], agent: AgentProcess, engine: Engine) -> None:
    assert agent.end(signal.SIGTERM) == 0
    assert engine.alive() == ready


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_sigterm_ends_the_fleet_if_told_so(
    agent: AgentProcess, engine: Engine, control_plane: FakeControlPlane, number: signal.Signals
) -> None:
    control_plane.desired = examples.desired(1)
    agent.start(MERIDIAN_STOP_ENGINE_ON_EXIT="true")
    control_plane.wait_for(phase(DeploymentPhase.READY))
    assert agent.end(number) == 0
    assert engine.alive() == {}
    assert [name for _, name, _, event in engine.journal() if event == "end"][-1] == "bus"
    assert agent.pids() == {}


def test_ending_the_fleet_takes_no_longer_than_the_grace(
    agent: AgentProcess, engine: Engine, control_plane: FakeControlPlane
) -> None:
    control_plane.desired = examples.desired(1, examples.deployment(stop_delay_s="60", stop_grace_s="60"))
    agent.start(MERIDIAN_STOP_ENGINE_ON_EXIT="true", MERIDIAN_STOP_GRACE_S="1")
    control_plane.wait_for(phase(DeploymentPhase.READY))
    before_s = time.monotonic()
    agent.end(signal.SIGTERM)
    assert time.monotonic() - before_s < 4
    assert engine.alive() == {}


def test_a_second_start_after_ending_the_fleet_brings_it_up_again(
    agent: AgentProcess, engine: Engine, control_plane: FakeControlPlane
) -> None:
    control_plane.desired = examples.desired(1)
    agent.start(MERIDIAN_STOP_ENGINE_ON_EXIT="true")
    control_plane.wait_for(phase(DeploymentPhase.READY))
    agent.end(signal.SIGTERM)
    agent.start()
    control_plane.wait_for(phase(DeploymentPhase.PROVISIONING))
    control_plane.wait_for(phase(DeploymentPhase.READY))
    assert set(engine.alive()) == EVERY


def test_an_agent_without_a_token_ends_with_one_line(agent: AgentProcess) -> None:
    os.unlink(agent.environment["MERIDIAN_ENROLMENT_TOKEN_FILE"])
    process = agent.start()
    assert process.wait(20) == 1
    assert agent.log().count("\n") == 1
    assert "this agent is not enrolled" in agent.log()


def test_a_taken_port_ends_with_one_line(agent: AgentProcess, control_plane: FakeControlPlane) -> None:
    port = control_plane.url.rpartition(":")[2]
    assert agent.start(MERIDIAN_PORT=port).wait(20) == 1
    assert agent.log() == f"meridian agent: cannot listen on 127.0.0.1:{port}: Address already in use\n"


def test_it_can_be_ended_while_it_waits_to_enrol(agent: AgentProcess, control_plane: FakeControlPlane) -> None:
    control_plane.is_away = True
    agent.start()
    until(lambda: "enrolment_waits" in agent.log())
    assert agent.end(signal.SIGTERM) == 0


def test_scaling_down_keeps_the_rest(
    ready: dict[str, int], engine: Engine, control_plane: FakeControlPlane
) -> None:
    control_plane.want(examples.desired(2, examples.deployment(generation=2, decode=1)))
    control_plane.wait_for(phase(DeploymentPhase.READY, generation=2))
    until(lambda: DECODE not in engine.alive())
    assert engine.alive() == {name: pid for name, pid in ready.items() if name != DECODE}


def test_a_removed_deployment_ends_and_is_reported_gone(
    ready: dict[str, int], engine: Engine, control_plane: FakeControlPlane
) -> None:
    control_plane.want(DesiredState(generation=2, deployments=[]))
    control_plane.wait_for(phase(DeploymentPhase.GONE, generation=2))
    assert engine.alive() == {}


def test_a_refused_specification_leaves_the_fleet_as_it_was_and_says_why(
    ready: dict[str, int], engine: Engine, control_plane: FakeControlPlane
) -> None:
    control_plane.want(examples.desired(2, examples.deployment(generation=2, refuse="no such engine")))
    told = control_plane.wait_for(lambda request: bool(request.deployments[0].message))
    assert told.deployments[0].message == "refused by the engine: no such engine"
    assert phase(DeploymentPhase.READY, generation=1)(told)
    assert engine.alive() == ready


def test_a_specification_that_is_mended_is_driven(
    agent: AgentProcess, engine: Engine, control_plane: FakeControlPlane
) -> None:
    control_plane.desired = examples.desired(1, examples.deployment(refuse="no such engine"))
    agent.start()
    control_plane.wait_for(
        lambda request: any("no such engine" in deployment.message for deployment in request.deployments))
    assert engine.alive() == {}
    control_plane.want(examples.desired(2))
    control_plane.wait_for(phase(DeploymentPhase.READY, generation=2))


def test_a_drain_is_done_when_the_engine_is_idle(
    ready: dict[str, int], engine: Engine, control_plane: FakeControlPlane
) -> None:
    engine.figures(inflight=2, queued=1)
    control_plane.wait_for(lambda request: request.deployments[0].inflight == 2)
    control_plane.order(examples.drain(epoch=1))
    control_plane.wait_for(lambda request: [ack.state for ack in request.acks] == [CommandState.ACCEPTED])
    engine.figures()
    control_plane.wait_for(lambda request: [ack.state for ack in request.acks] == [CommandState.SUCCEEDED])


def test_a_drain_that_takes_too_long_expires(
    ready: dict[str, int], engine: Engine, control_plane: FakeControlPlane
) -> None:
    engine.figures(inflight=2)
    control_plane.wait_for(lambda request: request.deployments[0].inflight == 2)
    control_plane.order(examples.drain(epoch=1, deadline_s=1))
    told = control_plane.wait_for(lambda request: [ack.state for ack in request.acks] == [CommandState.EXPIRED])
    assert told.acks[0].result == "2 requests were left inside the engine"


def test_superseded_it_changes_nothing_and_the_fleet_serves(
    ready: dict[str, int], agent: AgentProcess, engine: Engine, control_plane: FakeControlPlane
) -> None:
    control_plane.superseded_by = "another boot"
    until(lambda: '"standing": "superseded"' in agent.log())
    os.kill(ready[DECODE], signal.SIGKILL)
    time.sleep(1.5)
    assert engine.alive() == {name: pid for name, pid in ready.items() if name != DECODE}


def test_it_is_alive_and_not_ready_before_it_is_enrolled(
    agent: AgentProcess, control_plane: FakeControlPlane, port_base: int
) -> None:
    control_plane.is_away = True
    agent.start(MERIDIAN_PORT=str(port_base + 49))
    until(lambda: "enrolment_waits" in agent.log())
    url = f"http://127.0.0.1:{port_base + 49}"
    assert (get(f"{url}/healthz")[0], get(f"{url}/readyz")[0]) == (200, 503)


def test_a_store_that_breaks_ends_the_agent_with_one_line_and_leaves_the_fleet_serving(
    ready: dict[str, int], agent: AgentProcess, engine: Engine
) -> None:
    database = sqlite3.connect(agent.state_dir / "agent.sqlite")
    database.execute("DROP TABLE was_ready")
    database.close()
    assert agent.process is not None
    assert agent.process.wait(15) == 1
    assert agent.log().splitlines()[-1] == "meridian agent: cannot go on: no such table: was_ready"
    assert engine.alive() == ready

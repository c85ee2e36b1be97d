"""Asking a real command for a plan."""

import asyncio
import json
import os
import sys
import time
from pathlib import Path

import pytest

from control_plane.contracts.launch import LaunchPlan, PlanRequest
from fleet_agent.drivers.plan import PlanFailed, Refused, request_plan
from tests.integration.fleet_agent.conftest import PLAN_COMMAND, until
from tests.unit.fleet_agent import examples


def request(tmp_path: Path, **engine: str) -> PlanRequest:
    return PlanRequest(fleet_id="test-a", state_dir=tmp_path, host="127.0.0.1", port_base=21_000,
                       deployments=[examples.deployment(**engine)])


async def ask(code: str, tmp_path: Path, deadline_s: float = 10.0) -> LaunchPlan:
    return await request_plan([sys.executable, "-I", "-S", "-c", code], request(tmp_path), deadline_s)


def printing(plan: LaunchPlan) -> str:
    return f"print({plan.model_dump_json()!r})"


async def test_the_plan_is_what_the_engine_prints(tmp_path: Path) -> None:
    plan = await request_plan(PLAN_COMMAND, request(tmp_path))
    assert [process.name for process in plan.processes] == [
        "bus", "test-a-glm-prefill-0", "test-a-glm-decode-0", "test-a-glm-decode-1", "frontend"]


async def test_a_refusal_names_the_deployment_and_the_reason(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="no such engine") as refused:
        await request_plan(PLAN_COMMAND, request(tmp_path, refuse="no such engine"))
    assert refused.value.refusal.deployment_id == "test-a-glm"


async def test_a_failure_tells_the_last_line_of_the_error(tmp_path: Path) -> None:
    with pytest.raises(PlanFailed, match="ended with 1: ValueError: the disk is full"):
        await ask("raise ValueError('the disk is full')", tmp_path)


async def test_exit_code_two_without_a_refusal_is_a_failure(tmp_path: Path) -> None:
    with pytest.raises(PlanFailed, match="ended with 2: it printed nothing"):
        await ask("raise SystemExit(2)", tmp_path)


async def test_a_command_that_is_not_there_is_a_failure(tmp_path: Path) -> None:
    with pytest.raises(PlanFailed, match="/no/such/python cannot be started: No such file"):
        await request_plan(["/no/such/python"], request(tmp_path))


@pytest.mark.parametrize("text", ["", "no json", json.dumps({"processes": []})])
async def test_something_else_than_a_plan_is_a_failure(tmp_path: Path, text: str) -> None:
    with pytest.raises(PlanFailed, match="printed no plan"):
        await ask(f"print({text!r})", tmp_path)


async def test_a_command_that_takes_too_long_is_killed(tmp_path: Path) -> None:
    before_s = time.monotonic()
    with pytest.raises(PlanFailed, match="no plan within 0 s"):
        await ask("import time; time.sleep(60)", tmp_path, deadline_s=0.2)
    assert time.monotonic() - before_s < 5


async def test_a_cancelled_question_leaves_no_process(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    code = f"import os, time; open({str(pid_file)!r}, 'w').write(str(os.getpid())); time.sleep(60)"
    task = asyncio.create_task(ask(code, tmp_path))
    await until(lambda: pid_file.exists() and pid_file.read_text())
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert pid_file.read_text() not in os.listdir("/proc")


@pytest.mark.parametrize(("processes", "fault"), [
    ((examples.process("a"), examples.process("a")), "names a twice"),
    ((examples.process("a", start_after=("b",)), examples.process("b")), "a starts after b, which does not come"),
    ((examples.process("a", start_after=("a",)),), "a starts after a"),
    ((examples.process("a", argv=[]),), "no command for a"),
])
async def test_a_plan_that_could_never_start_is_a_failure(
    tmp_path: Path, processes: tuple[examples.LaunchProcess, ...], fault: str
) -> None:
    with pytest.raises(PlanFailed, match=fault):
        await ask(printing(examples.plan(*processes)), tmp_path)


async def test_the_command_gets_no_secret_from_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MERIDIAN_DATABASE_URL", "postgresql://secret")
    with pytest.raises(PlanFailed, match=r"names: \[\]"):
        await ask("import os; raise SystemExit('names: %s' % [n for n in os.environ if 'MERIDIAN' in n])", tmp_path)

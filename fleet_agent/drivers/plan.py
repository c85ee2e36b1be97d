"""Asks the engine, in its own Python, what the fleet's processes are.

The engine knows Dynamo and lives in an environment of its own, so the question crosses a process border: a
`PlanRequest` on standard input, a `LaunchPlan` on standard output, or exit code 2 and a `PlanRefused`.
"""

import asyncio
import contextlib

from pydantic import ValidationError

from control_plane.contracts.launch import LaunchPlan, PlanRefused, PlanRequest
from fleet_agent.drivers.processes import minimal_environment

PLAN_DEADLINE_S = 120.0
REFUSED_EXIT_CODE = 2
MAX_ERROR_CHARACTERS = 300


class Refused(Exception):
    """The engine will never run this desired state; another try answers the same."""

    def __init__(self, refusal: PlanRefused) -> None:
        super().__init__(refusal.error)
        self.refusal = refusal


class PlanFailed(Exception):
    """The engine gave no plan this time; the message says why."""


async def request_plan(command: list[str], request: PlanRequest, deadline_s: float = PLAN_DEADLINE_S) -> LaunchPlan:
    """The plan for the request.

    Raises:
        Refused: the specification cannot be run.
        PlanFailed: the command cannot be started, failed, took too long, or printed something else.
    """
    try:
        process = await asyncio.create_subprocess_exec(
            *command, env=minimal_environment(), stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE)
    except OSError as error:
        raise PlanFailed(f"{command[0]} cannot be started: {error.strerror}") from error
    try:
        async with asyncio.timeout(deadline_s):
            output, errors = await process.communicate(request.model_dump_json().encode())
    except TimeoutError as error:
        raise PlanFailed(f"the engine gave no plan within {deadline_s:.0f} s") from error
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    return _read(process.returncode, output, errors)


def _read(code: int | None, output: bytes, errors: bytes) -> LaunchPlan:
    try:
        if code == REFUSED_EXIT_CODE and output:
            raise Refused(PlanRefused.model_validate_json(output))
        if code != 0:
            lines = errors.decode(errors="replace").strip().splitlines() or ["it printed nothing"]
            raise PlanFailed(f"the engine's plan command ended with {code}: {lines[-1][:MAX_ERROR_CHARACTERS]}")
        plan = LaunchPlan.model_validate_json(output)
    except ValidationError as error:
        raise PlanFailed(f"the engine printed no plan: {error.error_count()} faults in it") from error
    _check(plan)
    return plan


def _check(plan: LaunchPlan) -> None:
    """Each process may start after earlier ones only, so that the order always ends."""
    names: set[str] = set()
    for process in plan.processes:
        if process.name in names:
            raise PlanFailed(f"the plan names {process.name} twice")
        if not process.argv:
            raise PlanFailed(f"the plan has no command for {process.name}")
        if missing := set(process.start_after) - names:
            raise PlanFailed(f"{process.name} starts after {', '.join(sorted(missing))}, which does not come before it")
        names.add(process.name)

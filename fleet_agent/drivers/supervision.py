"""Which processes to start and to end now, given a plan and what runs. Pure: all of the local driver's judgement.

Level-triggered: looks at everything each time and repeats nothing that was done. A process starts when all that it
starts after are ready; one that is not wanted any more, or under another digest, gets SIGTERM once no other unwanted
process depends on it, and SIGKILL when its grace is over. Replicas of a deployment that get another digest are replaced
one after the other: one that serves stays until enough of its siblings do, so that a specification that never comes up
costs the first of them only. Where what they all started after is replaced itself, all of them are at once: none could
take over before it is back, and it is ended only when none leans on it.
"""

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass
from enum import StrEnum

from control_plane.contracts.launch import LaunchProcess
from fleet_agent.drivers.processes import ProcessIdentity

FIRST_DELAY_S = 0.5
MAX_DELAY_S = 10.0
MAX_DOUBLINGS = 10
STABLE_AFTER_S = 60.0
REPLACED_AT_ONCE = 4
"""One of so many replicas of a role may be away for a replacement at once, and one of fewer."""


@dataclass(slots=True)
class Managed:
    """A process that runs. Times are monotonic; `kill_at_s` is set once it was told to end."""

    spec: LaunchProcess
    identity: ProcessIdentity
    since_s: float
    is_ready: bool = False
    kill_at_s: float | None = None


@dataclass(frozen=True, slots=True)
class Failures:
    """How often in a row a process ended by itself, and when it may start again (monotonic)."""

    in_a_row: int = 0
    retry_at_s: float = 0.0


class Move(StrEnum):
    """What to do with a process."""

    START = "start"
    TERMINATE = "terminate"
    KILL = "kill"


def moves(
    plan: Iterable[LaunchProcess], managed: Mapping[str, Managed], failures: Mapping[str, Failures], now_s: float
) -> list[tuple[Move, str]]:
    """What to do now: ends first, then starts in the plan's order."""
    wanted = {process.name: process for process in plan}
    unwanted = {name: m for name, m in managed.items() if not is_wanted(m, wanted)}
    leaned_on = {name for m in unwanted.values() for name in m.spec.start_after}
    serving = {name for name, m in managed.items() if m.is_ready and m.kill_at_s is None}
    found: list[tuple[Move, str]] = []
    for name, process in unwanted.items():
        if process.kill_at_s is None:
            is_uprooted = any(root in unwanted for root in process.spec.start_after)
            if name not in leaned_on and (is_uprooted or not _is_needed(process.spec, wanted, serving)):
                found.append((Move.TERMINATE, name))
                serving.discard(name)
        elif now_s >= process.kill_at_s:
            found.append((Move.KILL, name))
    for name, spec in wanted.items():
        is_due = failures.get(name, Failures()).retry_at_s <= now_s
        if name not in managed and is_due and not waits_for(spec, managed, wanted):
            found.append((Move.START, name))
    return found


def is_wanted(process: Managed, wanted: Mapping[str, LaunchProcess]) -> bool:
    """Whether the plan has this process, unchanged, and it was not told to end."""
    spec = wanted.get(process.spec.name)
    return spec is not None and spec.digest == process.spec.digest and process.kill_at_s is None


def waits_for(
    spec: LaunchProcess, managed: Mapping[str, Managed], wanted: Mapping[str, LaunchProcess]
) -> list[str]:
    """What a process must not start before and which is not ready yet."""
    return [name for name in spec.start_after
            if name not in managed or not is_wanted(managed[name], wanted) or not managed[name].is_ready]


def _is_needed(spec: LaunchProcess, wanted: Mapping[str, LaunchProcess], serving: Set[str]) -> bool:
    """Whether a replica must go on until its siblings serve: those that take over from it, replaced or not."""
    if spec.name not in wanted or spec.name not in serving or not spec.deployment_id:
        return False
    siblings = [name for name, one in wanted.items()
                if (one.deployment_id, one.role) == (spec.deployment_id, spec.role)]
    away = sum(name not in serving for name in siblings)
    return away >= max(1, len(siblings) // REPLACED_AT_ONCE)


def after_exit(before: Failures, alive_s: float, now_s: float) -> Failures:
    """The failures once the process ended by itself again, after `alive_s`; jitter is the caller's to add."""
    in_a_row = 1 if alive_s >= STABLE_AFTER_S else before.in_a_row + 1
    delay_s = min(FIRST_DELAY_S * 2 ** min(in_a_row - 1, MAX_DOUBLINGS), MAX_DELAY_S)
    return Failures(in_a_row, now_s + delay_s)

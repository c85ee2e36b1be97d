"""What the agent asks of a driver, whatever the kind of host."""

from dataclasses import dataclass
from typing import Protocol

from control_plane.contracts.launch import LaunchPlan


@dataclass(frozen=True, slots=True)
class ProcessStatus:
    """One process as the driver sees it. `is_wanted` is false while it is being stopped for good or for a
    replacement; `trouble` says what is wrong with it, for people."""

    name: str
    deployment_id: str
    role: str
    is_wanted: bool
    is_running: bool
    is_ready: bool
    trouble: str = ""


class Driver(Protocol):
    """Makes a host run a plan, and keeps it so. Every call is safe to repeat.

    `restarts` counts how often a process ended by itself since the agent's start.
    """

    restarts: int

    async def adopt(self) -> None:
        """Takes over what an earlier boot of the agent left running; called once, before anything else."""
        ...

    async def run(self) -> None:
        """Supervises until it is cancelled: starts, restarts and stops processes. Cancelling stops none of them."""
        ...

    def apply(self, plan: LaunchPlan) -> None:
        """From now on, keep the host as the plan says. Returns at once; `observe` tells how far it got."""
        ...

    def observe(self) -> list[ProcessStatus]:
        """Every process of the plan, and every other one that has not ended yet."""
        ...

    def freeze(self, is_frozen: bool) -> None:
        """Frozen, it changes nothing: no start, no restart, no stop."""
        ...

    async def stop(self, grace_s: float) -> None:
        """Stops everything, in the reverse order of starting, within about `grace_s`."""
        ...

"""The launch plan: what the engine says a fleet's processes are, and what the agent's driver starts.

The engine runs in its own environment, so the plan crosses a process border: `python -m engine plan` reads a
`PlanRequest` on standard input and prints a `LaunchPlan`.
"""

from pathlib import Path

from pydantic import Field

from control_plane.contracts.deployment import DesiredDeployment, EngineFacts
from control_plane.contracts.wire import Wire


class PlanRequest(Wire):
    """`port_base` is the first of a block of 100 loopback ports; the frontend listens on it."""

    fleet_id: str
    state_dir: Path
    host: str
    port_base: int
    deployments: list[DesiredDeployment]


class LaunchProcess(Wire):
    """One process. `digest` covers argv and env: another digest under the same name means replace it.

    `deployment_id` and `role` are empty for what the whole fleet shares. `ready_url` answers 200 when the process
    serves; `caches_url` shows how full its KV cache is, empty if it has none that counts. `stop_grace_s` is how long
    SIGTERM may take before SIGKILL to the process group.
    """

    name: str
    digest: str
    argv: list[str]
    env: dict[str, str]
    log_path: Path
    deployment_id: str = ""
    role: str = ""
    ready_url: str = ""
    caches_url: str = ""
    start_after: list[str] = Field(default_factory=list)
    stop_grace_s: float = 30.0


class Gauges(Wire):
    """Where a frontend's figures are and what they are called there; each is labelled by `model`. `kv_usage` are the
    names under which a worker's own page shows the used share of its KV cache."""

    url: str
    model_ready: str
    inflight: str
    queued: str
    kv_usage: list[str] = Field(default_factory=list)


class LaunchPlan(Wire):
    """All processes of a fleet, in the order in which they start; `facts` by deployment id."""

    ingress_url: str
    processes: list[LaunchProcess]
    gauges: Gauges
    facts: dict[str, EngineFacts] = Field(default_factory=dict)


class PlanRefused(Wire):
    """Printed instead of a plan, with exit code 2: the specification cannot be run, and why."""

    deployment_id: str
    error: str

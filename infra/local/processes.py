"""What processes a stack has: pure functions from its layout, shape and secrets to how each one is run."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from infra.local.child import ProcessSpec
from infra.local.errors import StackRefused
from infra.local.layout import Layout, Secrets
from infra.local.ports import HOST
from infra.local.postgres import Postgres
from infra.local.shape import Shape
from infra.local.valkey import Valkey

# What a child may see of our environment; everything else is Meridian's own to say.
INHERITED = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "TZ", "TMPDIR")
EDGE_GRACE_S = 30.0
EDGE_SHUTDOWN_GRACE_S = 20  # what is cut after it is settled and shipped before the edge's own grace is over
AGENT_GRACE_S = 45.0


def meridian() -> str:
    """The `meridian` program of the environment that runs us."""
    program = Path(sys.executable).with_name("meridian")
    if not program.is_file():
        raise StackRefused(f"{program} is missing; run './dev install'")
    return str(program)


# Operations hold each step for seconds in production; here somebody sits and watches.
PACE = {"MERIDIAN_RAMP_HOLD_S": "0.5", "MERIDIAN_DRAIN_VERIFY_S": "1", "MERIDIAN_FLAP_WAIT_S": "0.5",
        "MERIDIAN_FAILOVER_AGAIN_AFTER_S": "5", "MERIDIAN_EVACUATE_WAIT_S": "15", "MERIDIAN_WATCH_S": "3",
        "MERIDIAN_CAPACITY_INTERVAL_S": "10", "MERIDIAN_CAPACITY_SUSTAIN_S": "20",
        "MERIDIAN_CAPACITY_STEP_INTERVAL_S": "10", "MERIDIAN_CAPACITY_REVERSAL_S": "60",
        "MERIDIAN_CAPACITY_SETTLE_S": "60", "MERIDIAN_CAPACITY_RELEASE_S": "60"}


def postgres(layout: Layout, shape: Shape, secrets: Secrets) -> Postgres:
    """The stack's Postgres."""
    return Postgres(
        data_dir=layout.postgres_data, port=shape.ports.postgres, log_path=layout.log("postgres"),
        superuser_password=secrets.postgres_superuser, role_password=secrets.postgres_role,
    )  # fmt: skip


def valkey(layout: Layout, shape: Shape, secrets: Secrets) -> Valkey:
    """The stack's Valkey."""
    return Valkey(layout.valkey_data, shape.ports.valkey, layout.log("valkey"), secrets.valkey)


def control_plane(layout: Layout, shape: Shape, secrets: Secrets, index: int) -> ProcessSpec:
    """One replica."""
    return ProcessSpec(
        name=f"control-plane-{index}",
        argv=(meridian(), "control-plane"),
        env=control_plane_environment(layout, shape, secrets) | _listen(shape.ports.control_plane(index)),
        log_path=layout.log(f"control-plane-{index}"),
        cwd=str(layout.state),
    )


def worker(layout: Layout, shape: Shape, secrets: Secrets) -> ProcessSpec:
    """The Celery worker with beat."""
    return ProcessSpec(
        name="worker",
        argv=(meridian(), "worker"),
        env=control_plane_environment(layout, shape, secrets) | {
            "MERIDIAN_HEARTBEAT_FILE": str(heartbeat(layout)), "MERIDIAN_STATE_DIR": str(layout.worker),
            "MERIDIAN_HOST": HOST, "MERIDIAN_WORKER_PORT": str(shape.ports.worker)},
        log_path=layout.log("worker"),
        cwd=str(layout.worker),
        stop_grace_s=20.0,
    )


def heartbeat(layout: Layout) -> Path:
    """What the worker touches while it is alive."""
    return layout.worker / "heartbeat"


def bootstrap(layout: Layout, shape: Shape, secrets: Secrets) -> ProcessSpec:
    """Prints the first operator token, then ends."""
    return ProcessSpec(
        name="bootstrap",
        argv=(meridian(), "bootstrap"),
        env=control_plane_environment(layout, shape, secrets),
        log_path=layout.log("bootstrap"),
        cwd=str(layout.state),
    )


def control_plane_environment(layout: Layout, shape: Shape, secrets: Secrets) -> dict[str, str]:
    """What control plane, worker and `meridian bootstrap` share."""
    return environment() | {
        "MERIDIAN_DATABASE_URL": postgres(layout, shape, secrets).url(),
        "MERIDIAN_REDIS_URL": valkey(layout, shape, secrets).url,
        "MERIDIAN_SIGNING_KEY_FILE": str(layout.signing_key),
        "MERIDIAN_STATE_DIR": str(layout.state / "control-plane"),  # also marks them as this stack's: see leftovers
    } | PACE


def agent(layout: Layout, shape: Shape, index: int) -> ProcessSpec:
    """A datacenter's agent, which starts that datacenter's Dynamo processes itself and stops them with itself."""
    datacenter = shape.datacenters[index]
    return ProcessSpec(
        name=f"agent-{datacenter}",
        argv=(meridian(), "agent"),
        env=_machine(shape, layout.agent(datacenter)) | _listen(shape.ports.agent(index)) | {
            "MERIDIAN_ENGINE_PYTHON": sys.executable,
            "MERIDIAN_ENGINE_PORT_BASE": str(shape.ports.datacenter(index)),
            "MERIDIAN_ENGINE_STATE_DIR": str(layout.engine(datacenter)),
            "MERIDIAN_STOP_ENGINE_ON_EXIT": "true",
        },
        log_path=layout.log(f"agent-{datacenter}"),
        cwd=str(layout.agent(datacenter)),
        stop_grace_s=AGENT_GRACE_S,
    )  # fmt: skip


def edge(layout: Layout, shape: Shape, secrets: Secrets, index: int) -> ProcessSpec:
    """An edge. All of them share limits in one Valkey."""
    return ProcessSpec(
        name=f"edge-{index}",
        argv=(meridian(), "edge"),
        env=_machine(shape, layout.edge(index)) | _listen(shape.ports.edge(index)) | {
            "MERIDIAN_SHUTDOWN_GRACE_S": str(EDGE_SHUTDOWN_GRACE_S),
            "MERIDIAN_OVERRIDE_URL": shape.edge_urls[index],
            "MERIDIAN_VALKEY_URL": valkey(layout, shape, secrets).edge_url},
        log_path=layout.log(f"edge-{index}"),
        cwd=str(layout.edge(index)),
        stop_grace_s=EDGE_GRACE_S,
    )


def enrolment_file(state_dir: Path) -> Path:
    """Where a machine finds its one-time token."""
    return state_dir / "enrolment-token"


def ports_in_use(shape: Shape) -> dict[int, str]:
    """Every port that the stack listens on, and what for."""
    ports = shape.ports
    wanted = {ports.postgres: "Postgres", ports.valkey: "Valkey", ports.worker: "the worker"}
    wanted |= {ports.edge(index): f"edge {index}" for index in range(shape.edge_count)}
    wanted |= {ports.control_plane(index): f"control plane {index}" for index in range(shape.replica_count)}
    for index, datacenter in enumerate(shape.datacenters):
        wanted |= dict.fromkeys(ports.engine(index), f"engine of {datacenter}")
        wanted[ports.agent(index)] = f"agent of {datacenter}"
    return wanted


def environment(ours: Mapping[str, str] = os.environ) -> dict[str, str]:
    """What children inherit: no setting of ours, no proxy, no Python option leaks into them."""
    return {name: ours[name] for name in INHERITED if name in ours}


def _listen(port: int) -> dict[str, str]:
    return {"MERIDIAN_HOST": HOST, "MERIDIAN_PORT": str(port)}


def _machine(shape: Shape, state_dir: Path) -> dict[str, str]:
    return environment() | {
        "MERIDIAN_CONTROL_PLANE_URLS": ",".join(shape.control_plane_urls),
        "MERIDIAN_STATE_DIR": str(state_dir),
        "MERIDIAN_ENROLMENT_TOKEN_FILE": str(enrolment_file(state_dir)),
    }

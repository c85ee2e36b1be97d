"""Plans a fleet and makes what its processes need on disk before they start: model directories and port assignments.

Everything it writes is under the request's state directory:

    models/       one directory for each simulated model, named by its contents
    ports.json    which worker has which port (`engine/ports.py`)
    discovery/    where the cluster's processes find each other; what a killed process leaves there expires within about
                  10 s, and until then Dynamo finds it dead and turns to another worker
    witness/      what the frontend counted of each request; old segments go at each plan
    home/ logs/   caches and logs of the processes
"""

import json
import os
import sys
from importlib.metadata import version
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from control_plane.contracts.launch import LaunchPlan, PlanRequest
from engine import plan, ports
from engine.grammar import binding
from engine.sim import model_dir
from engine.spec import DeploymentSpec, SpecRefused

DIRECTORIES = ("models", "discovery", "home", "logs", plan.WITNESS)
PORTS = TypeAdapter(dict[str, int])
WITNESS_SEGMENTS_KEPT = 64  # of 4 MiB each before compression


def prepare(request: PlanRequest) -> LaunchPlan:
    """The launch plan, with everything in place that it needs.

    Raises:
        SpecRefused: a deployment cannot be run.
        OSError: the state directory cannot be written.
    """
    specs = [DeploymentSpec.from_desired(desired) for desired in request.deployments]
    state_dir = request.state_dir.absolute()
    for name in DIRECTORIES:
        (state_dir / name).mkdir(parents=True, exist_ok=True, mode=0o700)
    for segment in sorted((state_dir / plan.WITNESS).glob("*.gz"))[:-WITNESS_SEGMENTS_KEPT]:
        segment.unlink(missing_ok=True)
    # The binary's wheel puts it beside the interpreter; resolving links would leave the environment.
    python = Path(sys.executable)
    site = plan.Site(
        state_dir=state_dir, host=request.host, port_base=request.port_base, python=python,
        nats_server=python.parent / "nats-server", release=version("ai-dynamo"),
        has_grammar=binding.is_installed())
    model_dirs = {
        spec.deployment_id: model_dir.ensure(state_dir / "models", spec.model.context_window) for spec in specs
    }
    return plan.build(site, specs, model_dirs, _ports(state_dir / "ports.json", specs, request.port_base))


def _ports(path: Path, specs: list[DeploymentSpec], port_base: int) -> dict[str, int]:
    try:
        known = PORTS.validate_json(path.read_bytes())
    except (FileNotFoundError, ValidationError):
        known = {}  # Forgotten ports cost a restart of the workers that get another one, nothing else.
    try:
        assigned = ports.assign(plan.worker_names(specs), known, port_base)
    except ports.OutOfPorts as error:
        raise SpecRefused(specs[-1].deployment_id, f"pools: {error}") from None
    if assigned != known:
        draft = path.with_suffix(".draft")
        draft.write_text(json.dumps(assigned), "utf-8")
        os.replace(draft, path)
    return assigned

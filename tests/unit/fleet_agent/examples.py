"""Examples that the agent's tests build on."""

from control_plane.contracts.agent_sync import (
    AgentSyncAnswer,
    Command,
    CommandKind,
    DeploymentPhase,
    DesiredState,
    ObservedDeployment,
)
from control_plane.contracts.deployment import DesiredDeployment, Pool, PoolRole
from control_plane.contracts.launch import Gauges, LaunchPlan, LaunchProcess


def deployment(name: str = "test-a-glm", generation: int = 1, decode: int = 2, **engine: str) -> DesiredDeployment:
    return DesiredDeployment(
        deployment_id=name, generation=generation, model_id="sim/glm", context_window=1_000,
        pools=[Pool(role=PoolRole.PREFILL, replicas=1), Pool(role=PoolRole.DECODE, replicas=decode)],
        engine=dict(engine))


def desired(generation: int = 1, *deployments: DesiredDeployment) -> DesiredState:
    return DesiredState(generation=generation, deployments=list(deployments or [deployment(generation=generation)]))


def answer(epoch: int = 1, state: DesiredState | None = None, *commands: Command) -> AgentSyncAnswer:
    return AgentSyncAnswer(
        epoch=epoch, lease_ttl_s=15.0, generation=state.generation if state else 0, desired=state,
        commands=list(commands), next_wait_s=5.0)


def drain(seq: int = 1, epoch: int = 1, deadline_s: float = 60.0) -> Command:
    return Command(id=f"command_{seq}", seq=seq, epoch=epoch, kind=CommandKind.DRAIN, deadline_s=deadline_s)


def observed(inflight: int | None = 0, queued: int | None = 0) -> ObservedDeployment:
    return ObservedDeployment(
        deployment_id="test-a-glm", observed_generation=1, phase=DeploymentPhase.READY, pools=[], inflight=inflight,
        queued=queued)


def process(name: str, digest: str = "1", start_after: tuple[str, ...] = (), **rest: object) -> LaunchProcess:
    return LaunchProcess.model_validate({
        "name": name, "digest": digest, "argv": ["true"], "env": {}, "log_path": f"logs/{name}.log",
        "start_after": list(start_after), **rest})


def plan(*processes: LaunchProcess) -> LaunchPlan:
    url = "http://127.0.0.1:1"
    gauges = Gauges(url=f"{url}/metrics", model_ready="ready", inflight="inflight", queued="queued")
    return LaunchPlan(ingress_url=url, processes=list(processes), gauges=gauges)


def probe(seq: int = 1, epoch: int = 1, deadline_s: float = 30.0, deployment_id: str = "test-a-glm") -> Command:
    return Command(id=f"probe_{seq}", seq=seq, epoch=epoch, kind=CommandKind.PROBE, deadline_s=deadline_s,
                   deployment_id=deployment_id)

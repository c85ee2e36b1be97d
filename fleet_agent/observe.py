"""What the agent reports: the driver's processes and the frontend's gauges, made into observed deployments.

The gauges say whether a model is served and how many requests are inside the engine. What could not be read is null,
never 0, with two exceptions that are really zero: no process of the fleet is alive, or the frontend answered and has no
line for the model, because Dynamo makes a model's gauges with its first request.
"""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field

import httpx

from control_plane.contracts.agent_sync import DeploymentPhase, DesiredState, ObservedDeployment
from control_plane.contracts.deployment import DesiredDeployment, EngineFacts
from control_plane.contracts.launch import Gauges
from fleet_agent.core import Figures, phase_of, pools_of
from fleet_agent.drivers.base import ProcessStatus

SCRAPE_DEADLINE_S = 2.0
MAX_TROUBLES = 3


class Frontend:
    """Reads the gauges of one frontend. A model stays served through two failed readings: a busy host is not a
    broken one. Counts of requests are never kept: a stale count could end a drain too early."""

    MAX_MISSED = 3

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client
        self._served: dict[str, bool] = {}
        self._missed = 0

    async def read(self, gauges: Gauges, model_ids: Sequence[str]) -> dict[str, Figures]:
        """The figures of each model."""
        text = await self._fetch(gauges.url)
        if text is None:
            self._missed += 1
            if self._missed >= self.MAX_MISSED:
                self._served = {}
            return {model_id: Figures(model_ready=self._served.get(model_id)) for model_id in model_ids}
        self._missed = 0
        figures = {model_id: parse_figures(text, gauges, model_id) for model_id in model_ids}
        self._served = {model_id: bool(f.model_ready) for model_id, f in figures.items()}
        return figures

    async def _fetch(self, url: str) -> str | None:
        try:
            answer = await self._client.get(url, timeout=SCRAPE_DEADLINE_S)
        except (httpx.HTTPError, httpx.InvalidURL):
            return None
        return answer.text if answer.is_success else None


def parse_figures(text: str, gauges: Gauges, model_id: str) -> Figures:
    """The figures of one model from a page in the Prometheus text format; null if the page makes no sense."""
    try:
        ready, inflight, queued = (
            int(gauge_of(text, name, model_id) or 0) for name in (gauges.model_ready, gauges.inflight, gauges.queued))
    except (ValueError, OverflowError):
        return Figures()
    return Figures(model_ready=bool(ready), inflight=inflight, queued=queued)


def gauge_of(text: str, name: str, model_id: str) -> float | None:
    """The sum of a gauge's samples for a model, or None if the page has none.

    Searched, not parsed: the page has hundreds of histogram lines that nobody here asks for.

    Raises:
        ValueError: a sample is no number.
    """
    label = 'model="' + model_id.replace("\\", "\\\\").replace('"', '\\"') + '"'
    found = None
    at = text.find(name + "{")
    while at >= 0:
        end = text.find("\n", at)
        line = text[at:end if end >= 0 else len(text)]
        labels, _, rest = line[len(name) + 1:].rpartition("} ")
        if (at == 0 or text[at - 1] == "\n") and label in labels.split(",") and rest:
            found = (found or 0.0) + float(rest.split()[0])
        at = text.find(name + "{", at + 1)
    return found


@dataclass(frozen=True, slots=True)
class View:
    """All that a report is made from. `trouble` maps deployments to what people should know beyond their processes,
    the empty name to what concerns them all; `facts` are the accepted plan's, `kv_usage` the fullest caches."""

    desired: DesiredState | None
    accepted: DesiredState | None
    retired: Sequence[str]
    was_ready: Set[str]
    processes: Sequence[ProcessStatus]
    figures: Mapping[str, Figures]
    trouble: Mapping[str, str]
    facts: Mapping[str, EngineFacts] = field(default_factory=dict)
    kv_usage: Mapping[str, float] = field(default_factory=dict)


def report(view: View) -> list[ObservedDeployment]:
    """What to tell the control plane, ordered by deployment id."""
    accepted = {d.deployment_id: d for d in view.accepted.deployments} if view.accepted else {}
    desired = {d.deployment_id: d for d in view.desired.deployments} if view.desired else {}
    found = []
    for deployment_id in sorted({*accepted, *desired, *view.retired}):
        if deployment_id in accepted:
            found.append(_driven(view, accepted[deployment_id], is_wanted=deployment_id in desired))
        elif deployment_id in desired:
            found.append(_awaited(view, desired[deployment_id]))
        else:
            found.append(_removed(view, deployment_id))
    return found


def _driven(view: View, deployment: DesiredDeployment, is_wanted: bool) -> ObservedDeployment:
    ready: dict[str, int] = {}
    for process in view.processes:
        if process.deployment_id == deployment.deployment_id and process.is_ready:
            ready[process.role] = ready.get(process.role, 0) + 1
    pools = pools_of(deployment, ready)
    figures = _figures(view, deployment.model_id)
    phase = phase_of(pools, figures.model_ready, deployment.deployment_id in view.was_ready)
    return ObservedDeployment(
        deployment_id=deployment.deployment_id,
        observed_generation=deployment.generation,
        phase=phase if is_wanted else DeploymentPhase.RETIRING,
        pools=pools, inflight=figures.inflight, queued=figures.queued,
        kv_usage=view.kv_usage.get(deployment.deployment_id),
        message=_message(view, deployment.deployment_id, _shortfall(phase, figures)),
        facts=view.facts.get(deployment.deployment_id, EngineFacts()))


def _awaited(view: View, deployment: DesiredDeployment) -> ObservedDeployment:
    """Stored, and not planned yet, or refused."""
    return ObservedDeployment(
        deployment_id=deployment.deployment_id, observed_generation=0, phase=DeploymentPhase.PENDING,
        pools=pools_of(deployment, {}), inflight=0, queued=0,
        message=_message(view, deployment.deployment_id, "no plan yet"))


def _removed(view: View, deployment_id: str) -> ObservedDeployment:
    lives = any(process.deployment_id == deployment_id for process in view.processes)
    return ObservedDeployment(
        deployment_id=deployment_id,
        observed_generation=view.accepted.generation if view.accepted else 0,
        phase=DeploymentPhase.RETIRING if lives else DeploymentPhase.GONE,
        pools=[], inflight=None if lives else 0, queued=None if lives else 0,
        message="its processes are ending" if lives else "")


def _figures(view: View, model_id: str) -> Figures:
    if not any(process.is_running for process in view.processes):
        return Figures(model_ready=False, inflight=0, queued=0)
    return view.figures.get(model_id, Figures())


def _shortfall(phase: DeploymentPhase, figures: Figures) -> str:
    if phase is DeploymentPhase.PENDING:
        return "scaled to zero"
    if figures.model_ready is None:
        return "the frontend's figures cannot be read"
    return "" if figures.model_ready else "the frontend does not serve the model yet"


def _message(view: View, deployment_id: str, shortfall: str) -> str:
    """What is wrong, worst first: a refusal, then processes in trouble, then what is missing."""
    troubles = [f"{p.name} {p.trouble}" for p in view.processes
                if p.trouble and not p.is_ready and p.deployment_id in ("", deployment_id)]
    parts = [view.trouble.get(deployment_id, ""), view.trouble.get("", ""), *troubles[:MAX_TROUBLES], shortfall]
    if len(troubles) > MAX_TROUBLES:
        parts.append(f"and {len(troubles) - MAX_TROUBLES} more processes in trouble")
    return "; ".join(part for part in parts if part)

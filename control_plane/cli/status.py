"""`meridian status`: the fleet at a glance, once or all the time."""

from collections.abc import Iterable
from typing import Annotated

import typer
from rich.text import Text

from control_plane.cli import edge_calls, render, watching
from control_plane.cli import models as models_of
from control_plane.cli.durations import duration
from control_plane.cli.invocation import Invocation, command, flag
from control_plane.cli.render import Cell, Column, Sheet
from control_plane.cli.steps import in_words
from control_plane.contracts.deployment import PoolRole
from control_plane.contracts.operations import AutomationView, OperationView, StepState
from control_plane.contracts.operator import (
    Continuation,
    DatacenterStatus,
    DeploymentStatus,
    EdgeStatus,
    FleetStatus,
    StatusView,
    VoteStatus,
)

app = typer.Typer(add_completion=False)

SHORTEST_S = 0.2


Watch = Annotated[bool, flag("--watch", "-w", help="Show it all the time, until Ctrl-C.")]
Every = Annotated[float, duration("--every", help="How often --watch looks (default: 2s).")]


@command(app, "status")
def status(cli: Invocation, watch: Watch = False, every: Every = 2.0) -> None:
    """Show datacenters, models, deployments, edges and what is under way.

    Capacity is in concurrent requests; HEADROOM is what is ready minus 1.2 times the larger of the last 30 minutes'
    peak and what is reserved. TTFT and ITL are of the last 5 minutes, UPTIME of 5 minutes, 30 minutes and a day, as
    edges saw them. A dash is what nobody knows. CONTINUES says which open streams may go on elsewhere if a deployment
    is lost: none, plain ones, or all.
    """
    with cli.client() as client:
        def ask() -> watching.Shown:
            view = client.get("/operator/v1/status", StatusView)
            return view, heading(view), sheets(view)

        if watch:
            watching.watch(cli, ask, max(every, SHORTEST_S))
            return
        view = client.get("/operator/v1/status", StatusView)
    edge_calls.remember(cli.settings(), view.edges)
    if view.ahead:
        cli.remark(f"The database is an older copy: {len(view.ahead)} edges and agents have seen more than it holds, "
                   "and refuse what it says. Bring them back with meridian recover --reason TEXT")
    cli.show(view, sheets(view), heading(view))


def heading(view: StatusView) -> str:
    """What the figures are as of."""
    lineage = f" of lineage {view.lineage}" if view.lineage > 1 else ""
    frozen = f"\nAutomation is frozen {_frozen(view.automation)}" if view.automation.frozen else ""
    return f"Snapshot {view.snapshot_version}{lineage}, as of {render.moment(view.as_of)}{frozen}"


def sheets(view: StatusView) -> list[Sheet]:
    """The whole picture as tables; what is under way only when something is."""
    models = [models_of.capacity_sheet(view.models), models_of.quality_sheet(view.models)] if view.models else []
    under_way = [operations_sheet(view.running_operations)] if view.running_operations else []
    return [datacenter_sheet(view.datacenters, view.votes), *models, deployment_sheet(view.datacenters),
            edge_sheet(view.edges), *under_way]


def datacenter_sheet(datacenters: Iterable[DatacenterStatus], votes: Iterable[VoteStatus] = ()) -> Sheet:
    columns = [Column("DATACENTER"), Column("TRAFFIC"), Column("WEIGHT", right=True), Column("OPEN", right=True),
               Column("FLEET"), Column("AGENT")]
    rows: list[list[Cell]] = []
    for center in datacenters:
        own: list[Cell] = [center.id, render.state(center.traffic_state), render.count(center.weight),
                           render.count(center.open_requests)]
        fleets: list[list[Cell]] = [[fleet.id, _agent(fleet)] for fleet in center.fleets]
        for fleet in fleets or [["none", ""]]:
            rows.append([*own, *fleet])
            own = [""] * len(own)
    notes = [Text(f"{vote.datacenter} is {vote.verdict} to {vote.edges} of {vote.of} edges, "
                  f"for {render.span(vote.held_s)}: {vote.evidence}", style=render.BAD) for vote in votes]
    return Sheet(columns, rows, "No datacenters yet: meridian topology apply -f FILE", notes)


def deployment_sheet(datacenters: Iterable[DatacenterStatus]) -> Sheet:
    columns = [Column("MODEL"), Column("FLEET"), Column("PHASE"), Column("PREFILL", right=True),
               Column("DECODE", right=True), Column("RUNNING", right=True), Column("QUEUED", right=True),
               Column("CONTINUES")]
    datacenters = list(datacenters)
    deployments = [deployment for center in datacenters for deployment in center.deployments]
    silent = {fleet.id: fleet for center in datacenters for fleet in center.fleets if not fleet.lease_live}
    rows: list[list[Cell]] = [
        [d.model, d.fleet, _phase(d, d.fleet in silent), _pool(d, PoolRole.PREFILL),
         _pool(d, PoolRole.DECODE, PoolRole.AGGREGATED), _running(d), render.count(d.queued),
         Text(d.continuation, style=render.QUIET)] for d in deployments]
    notes = [Text(f"{d.id}: {d.message}", style=render.BUSY) for d in deployments if d.message]
    notes += [Text(f"{d.id}: if it is lost, its streams under a grammar end: no grammar service runs elsewhere",
                   style=render.BUSY) for d in deployments if d.continuation is Continuation.PLAIN]
    notes += [Text(f"{fleet.id}: its agent was last heard {_ago(fleet.lease_age_s)}; what is shown is as of then, and "
                   "safety rules do not count on it", style=render.BUSY)
              for fleet in silent.values() if fleet.lease_age_s is not None]
    return Sheet(columns, rows, "No deployments yet.", notes)


def _running(one: DeploymentStatus) -> Cell:
    """Those that have begun to answer: what is queued is counted among those in flight."""
    unknown = one.inflight is None or one.queued is None
    return render.count(None if unknown else max((one.inflight or 0) - (one.queued or 0), 0))


def edge_sheet(edges: Iterable[EdgeStatus]) -> Sheet:
    columns = [Column("EDGE"), Column("REGION"), Column("STATE"), Column("SNAPSHOT", right=True),
               Column("OPEN", right=True), Column("SEEN")]
    edges = list(edges)
    rows: list[list[Cell]] = [[render.short_id(e.id), e.region, _edge_state(e), render.count(e.acked_version),
             render.count(sum(e.open_requests.values())), _ago(e.last_seen_age_s)] for e in edges]
    notes = [Text(f"{render.short_id(e.id)} refuses the snapshot: {e.nack}", style=render.BAD) for e in edges if e.nack]
    return Sheet(columns, rows, "No edges yet.", notes)


def operations_sheet(operations: Iterable[OperationView]) -> Sheet:
    columns = [Column("OPERATION"), Column("KIND"), Column("OF"), Column("NOW", loose=True)]
    rows = [[operation.id, operation.kind, operation.subject, _now(operation)] for operation in operations]
    return Sheet(columns, rows, "No operation is under way.")


def _frozen(automation: AutomationView) -> str:
    until = f"until {render.moment(automation.until)}" if automation.until else "until somebody ends it"
    return f"{until} by {automation.by}: {automation.reason}"


def _agent(fleet: FleetStatus) -> Text:
    if fleet.lease_age_s is None:
        return Text("never seen", style=render.QUIET)
    word = "live" if fleet.lease_live else "away"
    return render.state(word, f"{word}, {_ago(fleet.lease_age_s)}")


def _phase(deployment: DeploymentStatus, is_silent: bool) -> Text:
    if is_silent and deployment.phase != "pending":
        return render.state("away", f"was {deployment.phase}")
    behind = deployment.observed_generation is None or deployment.observed_generation < deployment.generation
    if behind and deployment.phase == "ready":
        return render.state("behind", f"gen {render.count(deployment.observed_generation)} of {deployment.generation}")
    return render.state(deployment.phase)


def _pool(deployment: DeploymentStatus, *roles: PoolRole) -> Cell:
    pools = [pool for pool in deployment.pools if pool.role in roles]
    if not pools:
        return Text("-", style=render.QUIET)
    ready = [pool.ready_replicas for pool in pools if pool.ready_replicas is not None]
    return render.share(sum(ready) if len(ready) == len(pools) else None, sum(p.desired_replicas for p in pools))


def _edge_state(edge: EdgeStatus) -> Text:
    if not edge.live:
        return render.state("away")
    if edge.nack:
        return render.state("refuses")
    return render.state("behind", f"behind by {edge.behind}") if edge.behind else render.state("live")


def _ago(age_s: float | None) -> str:
    return render.UNOBSERVED if age_s is None else f"{render.span(age_s)} ago"


def _now(operation: OperationView) -> str:
    step = next((step for step in operation.steps if step.state is StepState.RUNNING), None)
    if step is None:
        return operation.state
    detail = f": {step.detail}" if step.detail else ""
    return f"step {step.seq} of {len(operation.steps)}, {in_words(step.name)}{detail}"

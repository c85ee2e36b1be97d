"""`meridian capacity`: what models can serve and are asked for, and what the planner does about it and why."""

from collections.abc import Iterable, Sequence
from typing import Annotated

import typer
from rich.text import Text

from control_plane.cli import render
from control_plane.cli.documents import typed
from control_plane.cli.invocation import Invocation, OutputOption, StateOption, command, flag
from control_plane.cli.listing import Limit, Listing
from control_plane.cli.render import Cell, Column, Sheet
from control_plane.contracts.capacity import (
    BoundRequest,
    BoundView,
    CapacityView,
    ModelCapacity,
    ModeRequest,
    PlannerMode,
    PlannerView,
    PlanView,
    PoolCapacity,
    Verdict,
)
from control_plane.contracts.deployment import PoolRole
from control_plane.contracts.operator import Page

app = typer.Typer(add_completion=False)

PATH = "/operator/v1/capacity"
ARROW = "→"
Explain = Annotated[bool, flag("--explain", "-e", help="Tell of every pool, with its numbers.")]
All = Annotated[bool, flag("--all", "-a", help="Also plans that moved nothing.")]
Mode = Annotated[PlannerMode, typer.Argument(metavar="MODE", help="off, advise (plan and tell) or auto (carry out).")]
Reason = Annotated[str, typer.Option("--reason", "-r", metavar="TEXT", help="Why; it is kept in the audit log.")]
Deployment = Annotated[str, typer.Argument(metavar="DEPLOYMENT", help="Which deployment.")]
Role = Annotated[PoolRole, typer.Argument(metavar="ROLE", help="prefill, decode or aggregated.")]
Minimum = Annotated[int, typer.Option("--min", metavar="N", help="Fewest replicas; with 0 it may be scaled to zero.")]
Maximum = Annotated[int | None, typer.Option("--max", metavar="N", show_default=False,
                                             help="Most replicas (default: as many as there are GPUs).")]


@app.callback(invoke_without_command=True)
def capacity(ctx: typer.Context, state: StateOption = None, output: OutputOption = None) -> None:
    """See what each model can serve, is asked for and has reserved; and what the planner does about it.

    Capacity is in concurrent requests. HEADROOM is what is left beyond 1.2 times the larger of peak and reserved.
    """
    before: Invocation = ctx.ensure_object(Invocation)
    ctx.obj = cli = Invocation(output or before.output, state or before.state)
    if ctx.invoked_subcommand is None:
        with cli.client() as client:
            view = client.get(PATH, CapacityView)
        cli.show(view, sheets(view), heading(view.planner))


@command(app, "plan")
def plan(cli: Invocation, explain: Explain = False) -> None:
    """Show what the planner would do now, and why; asking changes nothing."""
    with cli.client() as client:
        found = client.get(f"{PATH}/plan", PlanView)
    cli.show(found, plan_sheets(found, explain), plan_heading(found))


@command(app, "history")
def history(cli: Invocation, every: All = False, limit: Limit = 20) -> None:
    """List the plans that were made, the newest first."""
    with cli.client() as client:
        found = list(client.pages(f"{PATH}/plans", Page[PlanView], limit, {} if every else {"only_moves": "true"}))
    cli.show(Listing[PlanView](data=found), [history_sheet(found)])


@command(app, "mode")
def mode(cli: Invocation, wanted: Mode, reason: Reason) -> None:
    """Say what the planner may do."""
    with cli.client() as client:
        planner = client.post(f"{PATH}/mode", typed(ModeRequest, mode=wanted, reason=reason), PlannerView)
    cli.show(planner, [], heading(planner))


@command(app, "bound")
def bound(cli: Invocation, deployment: Deployment, role: Role, reason: Reason, minimum: Minimum = 1,
          maximum: Maximum = None) -> None:
    """Hold a pool between two counts of replicas, whatever the planner wants."""
    asked = typed(BoundRequest, deployment=deployment, role=role, minimum=minimum, maximum=maximum, reason=reason)
    with cli.client() as client:
        kept = client.put(f"{PATH}/bounds", asked, BoundView)
    most = "no maximum" if kept.maximum is None else f"at most {kept.maximum}"
    cli.show(kept, [], f"{kept.deployment} {kept.role}: at least {kept.minimum} replicas, {most}")


def heading(planner: PlannerView) -> str:
    """What the planner may do, who said so, and when it looked last."""
    said = f"since {render.moment(planner.changed_at)}, by {planner.changed_by}: {planner.reason}" \
        if planner.changed_by else "as configured"
    looked = f"; looked last {render.moment(planner.planned_at)}" if planner.planned_at else ""
    still = f"; {planner.frozen}" if planner.frozen else ""
    return f"The planner's mode is {planner.mode}, {said}{looked}{still}"


def sheets(view: CapacityView) -> list[Sheet]:
    """Capacity as tables: models and where they are, their pools, and the fleets' GPUs."""
    return [_models_sheet(view.models), _pools_sheet(view.models), Sheet(
        [Column("FLEET"), Column("DATACENTER"), Column("GPUS USED", right=True), Column("TYPE")],
        [[fleet.fleet, fleet.datacenter, render.share(fleet.used, fleet.total), fleet.gpu_type]
         for fleet in view.fleets], "No fleets yet: meridian topology apply -f FILE")]


def plan_heading(found: PlanView) -> str:
    """What becomes of the plan's moves."""
    moves = sum(verdict.rule is None for verdict in found.verdicts)
    if not moves:
        return f"As of {render.moment(found.at)} a plan would move nothing"
    does = {PlannerMode.OFF: "the planner is off and would not make it", PlannerMode.AUTO: "it would be carried out",
            PlannerMode.ADVISE: "it would be told and not carried out"}[found.mode]
    return f"As of {render.moment(found.at)} a plan would move {_pools(moves)}; {does}"


def plan_sheets(found: PlanView, explain: bool) -> list[Sheet]:
    """A plan as a table: what moves, and what would but for a rule; explained, every pool with its numbers."""
    shown = [one for one in found.verdicts if explain or one.rule is None or one.wanted != one.before]
    content = len(found.verdicts) - len(shown)
    notes = [Text(f"{_pools(content)} more: content, as --explain tells", style=render.QUIET)] if content else []
    columns = [Column("DATACENTER"), Column("MODEL"), Column("POOL"), Column("REPLICAS", right=True), Column("RULE"),
               Column("WHY", loose=True)]
    rows: list[list[Cell]] = [[one.datacenter, one.model, one.role, _replicas(one), _rule(one), _why(one)]
                              for one in shown]
    numbers = [_figures_sheet(shown)] if explain else []
    return [Sheet(columns, rows, "Nothing to move: meridian capacity plan --explain tells why.", notes), *numbers]


def history_sheet(plans: Iterable[PlanView]) -> Sheet:
    """Plans that were made, a line each."""
    columns = [Column("AT"), Column("MODE"), Column("MOVES", loose=True)]
    rows: list[list[Cell]] = [[
        render.minute(one.at), one.mode,
        ", ".join(f"{v.deployment} {v.role} {v.before} {ARROW} {v.after}" for v in one.verdicts if v.rule is None)
        or Text("none", style=render.QUIET)] for one in plans]
    return Sheet(columns, rows, "No plan moved anything yet; --all lists those that moved nothing, too.")


def _models_sheet(models: Iterable[ModelCapacity]) -> Sheet:
    columns = [Column("MODEL"), Column("DATACENTER"), *(Column(title, right=True) for title in (
        "READY", "ASKED", "USED", "KV", "PEAK", "RESERVED", "HEADROOM"))]
    rows: list[list[Cell]] = []
    for model in models:
        rows.append([model.model, "all", render.count(model.ready), _load(model.load), _percent(model.utilisation), "",
                     render.count(model.peak), render.count(model.reserved), _headroom(model.headroom)])
        rows += [["", ", ".join(need.regions), render.count(need.ready), "", "", "", "", render.count(need.reserved),
                  _headroom(need.headroom)] for need in model.regions]
        rows += [["", Text(place.datacenter, style="" if place.serves else render.QUIET), render.count(place.ready),
                  _load(place.load), _percent(place.utilisation), _percent(place.kv_usage), "", "", ""]
                 for place in model.places]
    away = sorted({place.datacenter for model in models for place in model.places if not place.serves})
    notes = [Text(f"{place} serves nothing now, so what it holds does not count", style=render.BUSY) for place in away]
    return Sheet(columns, rows, "No models yet: meridian topology apply -f FILE", notes)


def _pools_sheet(models: Iterable[ModelCapacity]) -> Sheet:
    columns = [Column("DEPLOYMENT"), Column("POOL"), *(Column(title, right=True) for title in (
        "READY", "EACH HOLDS", "ASKED", "USED", "BOUNDS"))]
    rows: list[list[Cell]] = [
        [place.deployment, pool.role, render.share(pool.ready, pool.replicas), render.count(pool.max_inflight),
         _load(pool.load), _percent(pool.utilisation), _bounds(pool)]
        for model in models for place in model.places for pool in place.pools]
    return Sheet(columns, rows, "No pools yet.")


def _figures_sheet(verdicts: Sequence[Verdict]) -> Sheet:
    columns = [Column("DEPLOYMENT"), Column("POOL"), *(Column(title, right=True) for title in (
        "ASKED", "EXPECTED", "AT MOST", "EACH", "USED", "KV", "KNOWN"))]
    rows: list[list[Cell]] = [
        [one.deployment, one.role, _load(one.figures.load), _load(one.figures.expected), _load(one.figures.quiet_load),
         _load(one.figures.per_replica), _percent(one.figures.utilisation), _percent(one.figures.kv_usage),
         _percent(one.figures.coverage)] for one in verdicts]
    return Sheet(columns, rows, "No pools yet.")


def _pools(count: int) -> str:
    return "1 pool" if count == 1 else f"{count} pools"


def _replicas(one: Verdict) -> Cell:
    if one.rule is None:
        return Text(f"{one.before} {ARROW} {one.after}", style=render.GOOD)
    return f"{one.before} ({one.wanted})" if one.wanted != one.before else str(one.before)


def _rule(one: Verdict) -> Cell:
    if one.rule is None:
        return Text("moves", style=render.GOOD)
    return Text(one.rule.replace("_", " "), style=render.BUSY if one.wanted != one.before else render.QUIET)


def _why(one: Verdict) -> str:
    return f"{one.why}; leaves {one.leaves}" if one.leaves else one.why


def _headroom(value: int | None) -> Cell:
    return Text(render.count(value), style=render.BAD if value is not None and value < 0 else "")


def _bounds(pool: PoolCapacity) -> str:
    return f"{pool.minimum} or more" if pool.maximum is None else f"{pool.minimum} to {pool.maximum}"


def _load(value: float | None) -> str:
    return render.UNOBSERVED if value is None else f"{value:,.1f}".removesuffix(".0")


def _percent(share: float | None) -> str:
    return render.UNOBSERVED if share is None else f"{share:.0%}"

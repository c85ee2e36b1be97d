"""`meridian edge`: runs an edge; and breaks the glass, with orders straight to edges while the control plane is off."""

from decimal import Decimal
from typing import Annotated

import typer
from pydantic import BaseModel

from control_plane.cli import edge_calls, edge_keys, processes, render
from control_plane.cli.documents import typed
from control_plane.cli.durations import duration
from control_plane.cli.edge_calls import Asked, NoAnswer
from control_plane.cli.errors import CommandFailed, Refused, Unfinished, Unreachable, UsageFault
from control_plane.cli.invocation import Invocation, OutputOption, StateOption, command, flag
from control_plane.cli.moves import Yes
from control_plane.cli.render import Cell, Column, Sheet
from control_plane.contracts import ids
from control_plane.contracts.clock import SystemClock, utc
from control_plane.contracts.override import (
    ACCEPTED,
    EdgeStanding,
    Override,
    OverrideAction,
    OverrideOutcome,
    OverrideView,
    SignedOverride,
)
from control_plane.contracts.signing import SigningKey

TWO_HOURS_S = 7_200.0
LIFT_TTL_S = 600.0

app = typer.Typer(add_completion=False)
edge_app = typer.Typer(add_completion=False, invoke_without_command=True,
                       help="Run one edge, or tell edges directly what to do while the control plane is off.")
app.add_typer(edge_app, name="edge")
edge_app.registered_commands.extend(edge_keys.app.registered_commands)

Datacenter = Annotated[str, typer.Argument(metavar="DATACENTER", help="Which datacenter.")]
Reason = Annotated[str, typer.Option("--reason", "-r", metavar="TEXT",
                                     help="Why; it is signed, and kept in the audit log afterwards.")]
Ttl = Annotated[float, duration("--ttl", help="How long it lasts, at most 24h (default: 2h).")]
Lift = Annotated[bool, flag("--lift", help="Take back every earlier override of the datacenter.")]
Evacuate = Annotated[bool, flag("--evacuate", help="Move streams that are open there elsewhere, too.")]
Force = Annotated[bool, flag("--force", help="Do it even if a model is left without any datacenter.")]
EdgeUrls = Annotated[list[str] | None, typer.Option(
    "--edge", metavar="URL", show_default=False,
    help="An edge's own address; may be given more than once (default: those that the last status told).")]


class EdgeResult(BaseModel):
    """What became of an order at one edge; `outcome` is null when it was not reached."""

    url: str
    edge: str = ""
    outcome: OverrideOutcome | None = None
    message: str

    @property
    def is_done(self) -> bool:
        return self.outcome in ACCEPTED


class OverrideResult(BaseModel):
    """An order and what became of it at each edge."""

    id: str
    action: OverrideAction
    datacenter: str
    edges: list[EdgeResult]


class EdgesListing(BaseModel):
    """What edges say of themselves; `faults` maps the address of those that did not to why."""

    data: list[EdgeStanding]
    faults: dict[str, str]


@edge_app.callback()
def edge(ctx: typer.Context, upstream: processes.Upstream = "", key: processes.Key = "", port: processes.Port = 8700,
         host: processes.Host = "127.0.0.1", state_dir: processes.StateDir = None,
         input_usd: processes.InputUsd = Decimal(0), cached_usd: processes.CachedUsd = None,
         output_usd: processes.OutputUsd = Decimal(0), usage: processes.Usage = False, state: StateOption = None,
         output: OutputOption = None) -> None:
    """Run one edge; with --upstream and --key by itself, before one server."""
    before: Invocation = ctx.ensure_object(Invocation)
    cli = ctx.obj = Invocation(output or before.output, state or before.state)
    if ctx.invoked_subcommand is None:
        processes.run_edge(cli, processes.Alone(
            upstream, key, port, host, state_dir, input_usd, cached_usd, output_usd), usage)


@command(edge_app, "override")
def override(cli: Invocation, datacenter: Datacenter, reason: Reason, ttl: Ttl = TWO_HOURS_S, lift: Lift = False,
             evacuate: Evacuate = False, force: Force = False, edge_urls: EdgeUrls = None,
             key: edge_keys.KeyFile = None, yes: Yes = False) -> None:
    """Drain a datacenter by a signed order to each edge directly, whatever the snapshot says.

    It lasts until it ends or is lifted, and needs neither the control plane nor Postgres nor Valkey. Edges report it
    to the audit log once they can.
    """
    if lift and (evacuate or force):
        raise UsageFault("--lift takes orders back; --evacuate and --force are for giving one")
    settings = cli.settings()
    signer = edge_calls.load_key(settings, key)
    action = OverrideAction.LIFT if lift else OverrideAction.DRAIN
    order = typed(Override, id=ids.new_id("ovr"), action=action, datacenter=datacenter, edge="each", reason=reason,
                  issued_at_s=SystemClock().time_s(), ttl_s=LIFT_TTL_S if lift else ttl, evacuate=evacuate, force=force)
    urls = [url.rstrip("/").removesuffix("/v1") for url in edge_urls or []] or edge_calls.known_urls(settings)
    asked = edge_calls.ask_all(urls, signer)
    cli.confirm(_question(order, asked), yes)
    given = edge_calls.each([one.url for one in asked], lambda url: _give(
        next(one for one in asked if one.url == url), order, signer))
    result = OverrideResult(id=order.id, action=action, datacenter=datacenter, edges=given)
    cli.show(result, [_result_sheet(given)])
    _check(given)


@command(edge_app, "overrides")
def overrides(cli: Invocation, edge_urls: EdgeUrls = None, key: edge_keys.KeyFile = None) -> None:
    """Ask each edge directly what it was told and how it routes now; needs nothing but the edges."""
    settings = cli.settings()
    signer = edge_calls.load_key(settings, key)
    urls = [url.rstrip("/").removesuffix("/v1") for url in edge_urls or []] or edge_calls.known_urls(settings)
    asked = edge_calls.ask_all(urls, signer)
    answered = [one.standing for one in asked if one.standing is not None]
    listing = EdgesListing(data=answered, faults={one.url: one.fault for one in asked if one.standing is None})
    cli.show(listing, [_edges_sheet(asked), _orders_sheet(answered)])
    if not answered:
        raise Unreachable("no edge answered")
    if listing.faults:
        raise Unfinished(f"{len(listing.faults)} of {len(asked)} edges did not answer")


def _give(asked: Asked, order: Override, signer: SigningKey) -> EdgeResult:
    """Signs the order for the edge that answered and hands it over."""
    if asked.standing is None:
        return EdgeResult(url=asked.url, message=asked.fault)
    own = order.model_copy(update={"edge": asked.standing.edge})
    try:
        answer = edge_calls.give(asked.url, SignedOverride.seal(own, signer))
    except NoAnswer as error:
        return EdgeResult(url=asked.url, edge=asked.standing.edge, message=f"{error}; it may have the order: repeat it")
    return EdgeResult(url=asked.url, edge=answer.edge, outcome=answer.outcome, message=answer.message)


def _check(given: list[EdgeResult]) -> None:
    """Fails unless every edge does as it was told, and says what to do next."""
    left = [one for one in given if not one.is_done]
    if not left:
        return
    refusals = [one for one in left if one.outcome is not None]
    if len(left) < len(given):
        raise Unfinished(f"{len(left)} of {len(given)} edges route as before: {left[0].url}: {left[0].message}. "
                         "Repeat the command for them with --edge URL", code="partly_overridden")
    if not refusals:
        raise Unreachable(f"no edge was reached: {left[0].url}: {left[0].message}")
    if all(one.outcome is OverrideOutcome.LEAVES_NONE for one in refusals):
        raise Refused(refusals[0].message, code=OverrideOutcome.LEAVES_NONE.value, rule="last_datacenter")
    raise CommandFailed(refusals[0].message, code=str(refusals[0].outcome))


def _question(order: Override, asked: list[Asked]) -> str:
    there = sum(one.standing is not None for one in asked)
    if order.action is OverrideAction.LIFT:
        return f"Take back every override of {order.datacenter} at {there} of {len(asked)} edges?"
    streams = ", and move its open streams elsewhere" if order.evacuate else ""
    return (f"Send {order.datacenter} no new requests from {there} of {len(asked)} edges for "
            f"{render.span(order.ttl_s)}{streams}?")


def _result_sheet(given: list[EdgeResult]) -> Sheet:
    rows: list[list[Cell]] = [
        [one.url, render.short_id(one.edge) or render.UNOBSERVED,
         render.state("done" if one.is_done else "failed", one.outcome.value if one.outcome else "not reached"),
         one.message] for one in given]
    return Sheet([Column("ADDRESS"), Column("EDGE"), Column("OUTCOME"), Column("WHAT IT SAYS", loose=True)], rows,
                 "No edges.")


def _edges_sheet(asked: list[Asked]) -> Sheet:
    return Sheet([Column("ADDRESS"), Column("EDGE"), Column("SNAPSHOT", right=True), Column("ROUTES", loose=True)],
                 [_edge_row(one) for one in asked], "No edges.")


def _edge_row(one: Asked) -> list[Cell]:
    if one.standing is None:
        return [one.url, render.UNOBSERVED, render.UNOBSERVED, one.fault]
    routes = ", ".join(f"{place.id} {place.weight}" for place in one.standing.datacenters)
    return [one.url, render.short_id(one.standing.edge), f"{one.standing.lineage}.{one.standing.version}", routes]


def _orders_sheet(standings: list[EdgeStanding]) -> Sheet:
    rows = [_order_row(standing, view) for standing in standings for view in standing.overrides]
    return Sheet([Column("EDGE"), Column("ORDER"), Column("STATE"), Column("UNTIL"), Column("BY"),
                  Column("WHY", loose=True)], rows, "No edge was told anything.")


def _order_row(standing: EdgeStanding, view: OverrideView) -> list[Cell]:
    return [render.short_id(standing.edge), f"{view.action} {view.datacenter}", view.state.value.replace("_", " "),
            render.minute(utc(view.expires_at_s)), view.key_name or view.key_id, view.reason]

"""`meridian usage`: tokens and money, summed or request by request."""

from typing import Annotated

import typer
from rich.text import Text

from control_plane.cli import render
from control_plane.cli.client import Params
from control_plane.cli.durations import duration
from control_plane.cli.errors import UsageFault
from control_plane.cli.invocation import Invocation, command, flag
from control_plane.cli.listing import Limit, Listing
from control_plane.cli.render import Column, Sheet
from control_plane.contracts.clock import SystemClock, utc
from control_plane.contracts.operator import GenerationView, Page, UsageGroup, UsageRow, UsageSummary
from control_plane.contracts.usage import Outcome

app = typer.Typer(add_completion=False)

Team = Annotated[str, typer.Option("--team", help="Only this team, by slug or id.", show_default=False)]
Since = Annotated[float, duration("--since", help="How far back (default: 24h).")]
By = Annotated[str, typer.Option("--by", metavar="GROUPS", help="Sum by model, team, key, datacenter; commas between.")]
Records = Annotated[bool, flag("--records", help="Each request instead of sums, the newest first.")]


@command(app, "usage")
def usage(cli: Invocation, team: Team = "", since: Since = 86_400.0, by: By = "model", records: Records = False,
          limit: Limit = 50) -> None:
    """Show tokens and cost, summed by model or by what --by names."""
    groups = parse_groups(by)
    scope: Params = {"team": team} if team else {}
    with cli.client() as client:
        if records:
            found = list(client.pages("/operator/v1/generations", Page[GenerationView], limit, scope))
            cli.show(Listing[GenerationView](data=found), [record_sheet(found)])
            return
        summary = client.get("/operator/v1/usage", UsageSummary, {**window(since), "group_by": list(groups), **scope})
    when = f"{render.moment(summary.start)} to {render.moment(summary.end)}"
    cli.show(summary, [summary_sheet(summary, groups)], when)
    if summary.truncated and not cli.is_json:
        cli.err.print(f"only the dearest {len(summary.rows):,} rows are shown; the total is of all", style=render.QUIET,
                      highlight=False, soft_wrap=True)


def parse_groups(text: str) -> list[UsageGroup]:
    """`model,team` as groups.

    Raises:
        UsageFault: usage cannot be grouped by that.
    """
    try:
        return [UsageGroup(name.strip()) for name in text.split(",")]
    except ValueError as error:
        raise UsageFault(f"--by {text}: name one or more of {', '.join(UsageGroup)}, commas between") from error


def window(since_s: float) -> Params:
    """From then until now, the very second included."""
    now_s = SystemClock().time_s()
    return {"start": utc(now_s - since_s).isoformat(), "end": utc(now_s + 1).isoformat()}


def summary_sheet(summary: UsageSummary, by: list[UsageGroup]) -> Sheet:
    columns = [*[Column(group.upper(), loose=True) for group in by], Column("REQUESTS", right=True),
               Column("INPUT", right=True), Column("CACHED", right=True), Column("OUTPUT", right=True),
               Column("COST", right=True)]
    rows = [[*(getattr(row, group) or render.UNOBSERVED for group in by), *_figures(row)] for row in summary.rows]
    if len(rows) > 1:
        rows.append(["total", *[""] * (len(by) - 1), *_figures(summary.total)])
    return Sheet(columns, rows, "No usage in this time.")


def record_sheet(records: list[GenerationView]) -> Sheet:
    columns = [Column("REQUEST"), Column("DATACENTER"), Column("IN", right=True), Column("OUT", right=True),
               Column("COST", right=True)]
    rows = [[render.request_id(record.request_id), record.datacenter, render.count(record.prompt_tokens),
             render.count(record.completion_tokens), render.money(record.cost_usd)] for record in records]
    notes = [Text(f"{render.request_id(record.request_id)} {record.outcome}",
                  style=render.STYLES.get(record.outcome, ""))
             for record in records if record.outcome != Outcome.COMPLETED]
    return Sheet(columns, rows, "No requests yet: meridian chat hello", notes)


def _figures(row: UsageRow) -> list[str]:
    return [render.count(row.requests), render.count(row.prompt_tokens), render.count(row.cached_tokens),
            render.count(row.completion_tokens), render.money(row.cost_usd)]

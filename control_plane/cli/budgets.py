"""`meridian budgets`: the most that a team or a key may spend in a day, a week, a month, or ever."""

from typing import Annotated

import typer

from control_plane.cli import render
from control_plane.cli.client import segment
from control_plane.cli.documents import typed
from control_plane.cli.errors import UsageFault
from control_plane.cli.invocation import Invocation, command
from control_plane.cli.listing import Limit, Listing
from control_plane.cli.render import Cell, Column, Sheet
from control_plane.contracts.billing import BudgetRequest, BudgetView
from control_plane.contracts.keys import LimitScope
from control_plane.contracts.money import Interval
from control_plane.contracts.operator import Page

app = typer.Typer(add_completion=False, no_args_is_help=True, help="Bound what teams and keys may spend.")

PATH = "/operator/v1/budgets"
Team = Annotated[str, typer.Option("--team", metavar="TEAM", help="All keys of a team together: slug or id.",
                                   show_default=False)]
Key = Annotated[str, typer.Option("--key", metavar="KEY_ID", help="One key.", show_default=False)]
Every = Annotated[Interval, typer.Option(
    "--interval", help="When it begins anew: at 00:00 UTC, weeks on Monday, a lifetime never.")]
Amount = Annotated[str, typer.Option("--limit", metavar="USD", help="The most that may be spent, in dollars.")]


class Removed(Listing[str]):
    """The budgets that were removed."""


@command(app, "set")
def set_budget(cli: Invocation, interval: Every, limit: Amount, team: Team = "", key: Key = "") -> None:
    """Set a budget, in the place of the one of this interval; edges obey within 5 seconds."""
    path, asked = f"{PATH}/{whose(team, key)}/{interval}", typed(BudgetRequest, limit_usd=limit)
    with cli.client() as client:
        budget = client.put(path, asked, BudgetView)
    cli.show(budget, [budget_sheet([budget])])


@command(app, "list")
def list_budgets(cli: Invocation, team: Team = "", key: Key = "", limit: Limit = 100) -> None:
    """List budgets and what is spent: all, a team's with those of its keys, or one key's."""
    asked = {name: value for name, value in (("team", team), ("key", key)) if value}
    with cli.client() as client:
        budgets = list(client.pages(PATH, Page[BudgetView], limit, asked))
    cli.show(Listing[BudgetView](data=budgets), [budget_sheet(budgets)])


@command(app, "remove")
def remove(cli: Invocation, interval: Every, team: Team = "", key: Key = "") -> None:
    """Remove a budget; edges obey within 5 seconds."""
    with cli.client() as client:
        client.delete(f"{PATH}/{whose(team, key)}/{interval}")
    cli.show(Removed(data=[interval]), [Sheet([Column("REMOVED"), Column("OF")], [[interval, team or key]], "")])


def whose(team: str, key: str) -> str:
    """The scope as a path.

    Raises:
        UsageFault: not exactly one of the two.
    """
    if bool(team) == bool(key):
        raise UsageFault("name whose budget it is: --team TEAM or --key KEY_ID")
    return f"{LimitScope.TEAM}/{segment(team)}" if team else f"{LimitScope.KEY}/{segment(key)}"


def budget_sheet(budgets: list[BudgetView]) -> Sheet:
    columns = [Column("BINDS", loose=True), Column("INTERVAL"), Column("LIMIT", right=True),
               Column("SPENT", right=True), Column("RESETS")]
    rows: list[list[Cell]] = [
        [budget.scope_id, budget.interval, render.money(budget.limit_usd), _spent(budget),
         render.minute(budget.resets_at) if budget.resets_at else "never"] for budget in budgets]
    return Sheet(columns, rows, "No budgets yet: meridian budgets set --team TEAM --interval monthly --limit USD")


def _spent(budget: BudgetView) -> Cell:
    shown = render.money(budget.spent_usd)
    return render.state("failed", shown) if budget.spent_usd >= budget.limit_usd else shown

"""`meridian money`: balances, what is spent, and what edges hold of it."""

from typing import Annotated

import typer

from control_plane.cli import render
from control_plane.cli.budgets import budget_sheet
from control_plane.cli.client import segment
from control_plane.cli.documents import typed
from control_plane.cli.invocation import Invocation, command
from control_plane.cli.listing import Limit, Listing
from control_plane.cli.moves import Force, Reason, Yes
from control_plane.cli.render import Cell, Column, Sheet
from control_plane.contracts.billing import MoneyLeaseView, MoneyView, RecountView, ReleaseRequest
from control_plane.contracts.operator import Page

app = typer.Typer(add_completion=False, no_args_is_help=True, help="See balances, spend, and what edges hold of it.")

PATH = "/operator/v1/money"
Team = Annotated[str, typer.Argument(metavar="TEAM", help="The team's slug or id.")]
TeamOrAll = Annotated[str, typer.Argument(metavar="TEAM", help="Only this team and its keys.", show_default=False)]
LeaseId = Annotated[str, typer.Argument(metavar="LEASE_ID", help="The lease, as meridian money leases names it.")]


@command(app, "status")
def status(cli: Invocation, team: TeamOrAll = "", limit: Limit = 100) -> None:
    """Show balances, spend and open leases of everybody whose money is limited."""
    with cli.client() as client:
        found = list(client.pages(PATH, Page[MoneyView], limit, {"team": team} if team else {}))
    cli.show(Listing[MoneyView](data=found), money_sheets(found))


@command(app, "leases")
def leases(cli: Invocation, limit: Limit = 100) -> None:
    """List the open leases, the oldest first: money that edges may spend before it is booked."""
    with cli.client() as client:
        found = list(client.pages(f"{PATH}/leases", Page[MoneyLeaseView], limit))
    cli.show(Listing[MoneyLeaseView](data=found), [lease_sheet(found)])


@command(app, "release")
def release(cli: Invocation, lease: LeaseId, reason: Reason, force: Force = False, yes: Yes = False) -> None:
    """Close a lease of an edge that will never come back, so that its money can be spent."""
    cli.confirm(f"Release {lease}? What its edge spent of it and has not shipped comes on top of the limit.", yes)
    with cli.client() as client:
        released = client.post(f"{PATH}/leases/{segment(lease)}/release",
                               typed(ReleaseRequest, reason=reason, force=force), MoneyLeaseView)
    cli.show(released, [lease_sheet([released])])


@command(app, "recount")
def recount(cli: Invocation, team: Team) -> None:
    """Sum what a team and its keys spent from the usage records again."""
    with cli.client() as client:
        counted = client.post(f"/operator/v1/teams/{segment(team)}/recount", None, RecountView)
    cli.show(counted, [Sheet([Column("TEAM"), Column("SPENT", right=True), Column("CORRECTED BY", right=True)],
                             [[team, render.money(counted.spent_usd), render.money(counted.corrected_usd)]], "")])


def money_sheets(found: list[MoneyView]) -> list[Sheet]:
    """Who has how much, and the budgets."""
    columns = [Column("BINDS", loose=True), Column("PAYS"), Column("BALANCE", right=True),
               Column("SPENT", right=True), Column("LENT", right=True)]
    rows: list[list[Cell]] = [
        [money.scope_id, money.mode, _balance(money), render.money(money.spent_usd),
         render.money(money.lent_usd)] for money in found]
    note = "LENT is what edges hold in leases: the most that can be spent beyond SPENT without asking again."
    money = Sheet(columns, rows, "Nobody's money is limited: meridian teams billing TEAM --mode prepaid", [note])
    budgets = [budget for view in found for budget in view.budgets]
    return [money, *([budget_sheet(budgets)] if budgets else [])]


def lease_sheet(leases: list[MoneyLeaseView]) -> Sheet:
    columns = [Column("LEASE"), Column("OF", loose=True), Column("EDGE", loose=True),
               Column("GRANTED", right=True), Column("OPENED")]
    rows: list[list[Cell]] = [[lease.id, render.short_id(lease.scope_id), render.short_id(lease.edge_id),
                               render.money(lease.granted_usd), render.minute(lease.opened_at)] for lease in leases]
    return Sheet(columns, rows, "No open leases.")


def _balance(money: MoneyView) -> Cell:
    if money.balance_usd is None:
        return render.UNOBSERVED
    overdraft = f" (+{render.money(money.overdraft_usd)})" if money.overdraft_usd else ""
    return render.state("failed" if money.balance_usd <= 0 else "", render.money(money.balance_usd) + overdraft)

"""`meridian teams credit`, `credits` and `billing`: a team's money."""

from typing import Annotated

import typer

from control_plane.cli import render
from control_plane.cli.client import segment
from control_plane.cli.documents import typed
from control_plane.cli.invocation import Invocation, command
from control_plane.cli.listing import Limit, Listing
from control_plane.cli.money import money_sheets
from control_plane.cli.moves import Reason, Yes
from control_plane.cli.render import Cell, Column, Sheet
from control_plane.cli.teams import app
from control_plane.contracts import ids
from control_plane.contracts.billing import BillingRequest, CreditRequest, CreditView, MoneyView
from control_plane.contracts.money import BillingMode
from control_plane.contracts.operator import Page

__all__ = ["app"]

Team = Annotated[str, typer.Argument(metavar="TEAM", help="The team's slug or id.")]
Amount = Annotated[str, typer.Argument(
    metavar="USD", help="Dollars, exactly, for example 25 or 0.5. To take money back: --reason TEXT -- TEAM -5.")]
Mode = Annotated[BillingMode, typer.Option("--mode", help="From its balance before it spends, or by invoice.")]
Overdraft = Annotated[str, typer.Option("--overdraft", metavar="USD", help="How far its balance may be overdrawn.")]


@command(app, "credit")
def credit(cli: Invocation, team: Team, amount: Amount, reason: Reason, yes: Yes = False) -> None:
    """Give a team money, or take some back."""
    asked = typed(CreditRequest, amount_usd=amount, reason=reason)
    cli.confirm(f"Credit {render.money(asked.amount_usd)} to {team}?", yes)
    with cli.client() as client:
        given = client.post(f"/operator/v1/teams/{segment(team)}/credits", asked, CreditView,
                            idempotency_key=ids.nonce())
    cli.show(given, [credit_sheet([given], team)])
    cli.say(f"\nNext: meridian money status {team}")


@command(app, "credits")
def credits(cli: Invocation, team: Team, limit: Limit = 100) -> None:
    """List a team's credits, the newest first."""
    with cli.client() as client:
        found = list(client.pages(f"/operator/v1/teams/{segment(team)}/credits", Page[CreditView], limit))
    cli.show(Listing[CreditView](data=found), [credit_sheet(found, team)])


@command(app, "billing")
def billing(cli: Invocation, team: Team, mode: Mode, overdraft: Overdraft = "0") -> None:
    """Say how a team pays; edges know within 5 seconds."""
    asked = typed(BillingRequest, mode=mode, overdraft_usd=overdraft)
    with cli.client() as client:
        money = client.put(f"/operator/v1/teams/{segment(team)}/billing", asked, MoneyView)
    cli.show(money, money_sheets([money]))
    if mode is BillingMode.PREPAID and money.balance_usd == 0:
        cli.say(f"\nNext: meridian teams credit {team} USD --reason TEXT")


def credit_sheet(credits: list[CreditView], team: str) -> Sheet:
    columns = [Column("GIVEN"), Column("AMOUNT", right=True), Column("BY"), Column("REASON", loose=True)]
    rows: list[list[Cell]] = [[render.moment(credit.created_at), render.money(credit.amount_usd), credit.actor,
                               credit.reason] for credit in credits]
    return Sheet(columns, rows, f"No credits yet: meridian teams credit {team} USD --reason TEXT")

"""`meridian teams`: who uses and pays."""

import re
from typing import Annotated

import typer

from control_plane.cli.client import segment
from control_plane.cli.documents import typed
from control_plane.cli.errors import UsageFault
from control_plane.cli.invocation import Invocation, command
from control_plane.cli.keys import RegionNames, Unbound, bound
from control_plane.cli.listing import Limit, Listing
from control_plane.cli.render import Cell, Column, Sheet
from control_plane.contracts.operator import Page, TeamRequest, TeamView
from control_plane.contracts.tenancy import RegionsRequest

app = typer.Typer(add_completion=False, no_args_is_help=True,
                  help="Create and list teams, and say where they may be served.")

PATH = "/operator/v1/teams"
SLUG = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
Name = Annotated[str, typer.Argument(metavar="NAME", help="The team's name.")]
Team = Annotated[str, typer.Argument(metavar="TEAM", help="The team's slug or id.")]
Slug = Annotated[str, typer.Option("--slug", help="Its name in commands and addresses (default: from the name).",
                                   show_default=False)]


@command(app, "create")
def create(cli: Invocation, name: Name, slug: Slug = "") -> None:
    """Create a team."""
    slug = slug or slug_of(name)
    if not SLUG.fullmatch(slug):
        raise UsageFault(f"{slug!r} is no slug: use lower-case letters, digits and dashes, at most 63, with --slug")
    with cli.client() as client:
        team = client.post(PATH, typed(TeamRequest, name=name, slug=slug), TeamView)
    cli.show(team, [team_sheet([team])])
    cli.say(f"\nNext: meridian keys create {team.slug} --name NAME")


@command(app, "regions")
def regions(cli: Invocation, team: Team, region: RegionNames = None, unbound: Unbound = False) -> None:
    """Let only these regions serve a team, or any again; edges obey within 5 seconds."""
    asked = typed(RegionsRequest, regions=bound("--region", region, unbound))
    with cli.client() as client:
        changed = client.put(f"{PATH}/{segment(team)}/regions", asked, TeamView)
    rows: list[list[Cell]] = [[changed.slug, ", ".join(changed.regions or ["any"])]]
    cli.show(changed, [Sheet([Column("TEAM"), Column("REGIONS", loose=True)], rows, "")])


@command(app, "list")
def list_teams(cli: Invocation, limit: Limit = 100) -> None:
    """List the teams."""
    with cli.client() as client:
        teams = list(client.pages(PATH, Page[TeamView], limit))
    cli.show(Listing[TeamView](data=teams), [team_sheet(teams)])


def slug_of(name: str) -> str:
    """`Acme Research` → `acme-research`."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:63]


def team_sheet(teams: list[TeamView]) -> Sheet:
    columns = [Column("TEAM"), Column("NAME", loose=True), Column("ID"), Column("CREATED", right=True)]
    rows: list[list[Cell]] = [[team.slug, team.name, team.id, team.created_at.astimezone().strftime("%Y-%m-%d")]
                              for team in teams]
    return Sheet(columns, rows, "No teams yet: meridian teams create NAME")

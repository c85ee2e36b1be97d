"""`meridian limits`: how fast teams and keys may ask."""

from typing import Annotated
from urllib.parse import urlencode

import typer

from control_plane.cli import render
from control_plane.cli.documents import typed
from control_plane.cli.invocation import Invocation, command
from control_plane.cli.listing import Limit, Listing
from control_plane.cli.render import Cell, Column, Sheet
from control_plane.contracts.operator import Page
from control_plane.contracts.tenancy import LimitRequest, LimitTarget, LimitView

app = typer.Typer(add_completion=False, no_args_is_help=True, help="Bound how fast teams and keys may ask.")

PATH = "/operator/v1/limits"
Team = Annotated[str | None, typer.Option("--team", metavar="TEAM", help="All keys of a team together: slug or id.",
                                          show_default=False)]
Key = Annotated[str | None, typer.Option("--key", metavar="KEY_ID", help="One key.", show_default=False)]
Model = Annotated[str | None, typer.Option("--model", metavar="MODEL", help="Only requests to this model.",
                                           show_default="all models together")]
Requests = Annotated[int | None, typer.Option("--rpm", metavar="N", help="Requests a minute.", show_default=False)]
Tokens = Annotated[int | None, typer.Option("--tpm", metavar="N", help="Tokens a minute, of prompts and answers.",
                                            show_default=False)]
Concurrency = Annotated[int | None, typer.Option("--concurrency", metavar="N", help="Requests at once.",
                                               show_default=False)]


@command(app, "set")
def set_limit(cli: Invocation, team: Team = None, key: Key = None, model: Model = None, rpm: Requests = None,
              tpm: Tokens = None, concurrency: Concurrency = None) -> None:
    """Set a limit whole, in the place of the one that bound the same; edges obey within 5 seconds."""
    asked = typed(LimitRequest, team=team, key=key, model=model, requests_per_minute=rpm, tokens_per_minute=tpm,
                  concurrency=concurrency)
    with cli.client() as client:
        limit = client.put(PATH, asked, LimitView)
    cli.show(limit, [limit_sheet([limit])])


@command(app, "list")
def list_limits(cli: Invocation, team: Team = None, key: Key = None, limit: Limit = 100) -> None:
    """List the limits: all, a team's with those of its keys, or one key's."""
    asked = {name: value for name, value in (("team", team), ("key", key)) if value}
    with cli.client() as client:
        limits = list(client.pages(PATH, Page[LimitView], limit, asked))
    cli.show(Listing[LimitView](data=limits), [limit_sheet(limits)])


@command(app, "remove")
def remove(cli: Invocation, team: Team = None, key: Key = None, model: Model = None) -> None:
    """Remove the limit that binds exactly this; edges obey within 5 seconds."""
    target = typed(LimitTarget, team=team, key=key, model=model).model_dump(exclude_none=True)
    with cli.client() as client:
        client.delete(f"{PATH}?{urlencode(target)}")
    removed: list[list[Cell]] = [[str(value) for value in target.values()]]
    cli.show(Listing[LimitTarget](data=[LimitTarget(**target)]),
             [Sheet([Column(f"REMOVED {name.upper()}") for name in target], removed, "")])


def limit_sheet(limits: list[LimitView]) -> Sheet:
    columns = [Column("BINDS"), Column("MODEL"), Column("REQUESTS/MIN", right=True), Column("TOKENS/MIN", right=True),
               Column("AT ONCE", right=True)]
    rows: list[list[Cell]] = [
        [limit.key_id or limit.team_id, limit.model or "all", render.count(limit.requests_per_minute),
         render.count(limit.tokens_per_minute), render.count(limit.concurrency)] for limit in limits]
    return Sheet(columns, rows, "No limits yet: meridian limits set --team TEAM --rpm N")

"""`meridian keys`: a team's API keys. A secret is shown once, when its key is made or rotated."""

from typing import Annotated

import typer
from rich.text import Text

from control_plane.cli import render
from control_plane.cli.client import segment
from control_plane.cli.documents import typed
from control_plane.cli.durations import duration
from control_plane.cli.errors import UsageFault
from control_plane.cli.invocation import Invocation, Output, command
from control_plane.cli.listing import Limit, Listing
from control_plane.cli.moves import Yes
from control_plane.cli.render import Cell, Column, Sheet
from control_plane.contracts.clock import SystemClock, utc
from control_plane.contracts.keys import Scope
from control_plane.contracts.operator import KeyCreated, KeyRequest, KeyView, Page
from control_plane.contracts.tenancy import ModelsRequest, RegionsRequest, RotationRequest

app = typer.Typer(add_completion=False, no_args_is_help=True,
                  help="Create, list, bind, rotate and revoke a team's API keys.")

Team = Annotated[str, typer.Argument(metavar="TEAM", help="The team's slug or id.")]
Name = Annotated[str, typer.Option("--name", metavar="NAME", help="What the key is for.")]
Scopes = Annotated[list[Scope] | None, typer.Option(
    "--scope", help="What it may do; may be given more than once.", show_default="inference")]
ExpiresIn = Annotated[float | None, duration("--expires-in", help="When it ends (default: never).")]
ModelNames = Annotated[list[str] | None, typer.Option(
    "--model", metavar="MODEL", help="A model that it may use; may be given more than once.", show_default="any")]
RegionNames = Annotated[list[str] | None, typer.Option(
    "--region", metavar="REGION", help="A region that may serve it; may be given more than once.",
    show_default="any")]
Unbound = Annotated[bool, typer.Option("--any", help="Take the bound off again.")]
Grace = Annotated[float, duration("--grace", help="How long the old secret still works (default: 1h).")]
KeyId = Annotated[str, typer.Argument(metavar="KEY_ID", help="The key, as meridian keys list names it.")]


class Revoked(Listing[str]):
    """The keys that were revoked."""


@command(app, "create")
def create(cli: Invocation, team: Team, name: Name, scope: Scopes = None, expires_in: ExpiresIn = None,
           model: ModelNames = None, region: RegionNames = None) -> None:
    """Create a key and show its secret, this once."""
    expires_at = utc(SystemClock().time_s() + expires_in) if expires_in else None
    request = typed(KeyRequest, name=name, scopes=scope or [Scope.INFERENCE], expires_at=expires_at,
                    allowed_models=model or None, regions=region or None)
    with cli.client() as client:
        key = client.post(f"/operator/v1/teams/{segment(team)}/keys", request, KeyCreated)
    _show_secret(cli, key, "")


@command(app, "list")
def list_keys(cli: Invocation, team: Team, limit: Limit = 100) -> None:
    """List a team's keys, without their secrets."""
    with cli.client() as client:
        keys = list(client.pages(f"/operator/v1/teams/{segment(team)}/keys", Page[KeyView], limit))
    cli.show(Listing[KeyView](data=keys), [key_sheet(keys, team)])


@command(app, "rotate")
def rotate(cli: Invocation, key_id: KeyId, grace: Grace = 3_600) -> None:
    """Give a key a new secret and show it, this once; the old one works until the grace is over."""
    with cli.client() as client:
        key = client.post(f"/operator/v1/keys/{segment(key_id)}/rotate", typed(RotationRequest, grace_s=grace),
                          KeyCreated)
    _show_secret(cli, key, f" {key_id} ends {'in ' + render.span(grace) if grace else 'now'}.")


@command(app, "models")
def models(cli: Invocation, key_id: KeyId, model: ModelNames = None, unbound: Unbound = False) -> None:
    """Let a key use these models only, or any again; edges obey within 5 seconds."""
    asked = typed(ModelsRequest, models=bound("--model", model, unbound))
    with cli.client() as client:
        key = client.put(f"/operator/v1/keys/{segment(key_id)}/models", asked, KeyView)
    cli.show(key, [bound_sheet(key)])


@command(app, "regions")
def regions(cli: Invocation, key_id: KeyId, region: RegionNames = None, unbound: Unbound = False) -> None:
    """Let only these regions serve a key, or any again that may serve its team; edges obey within 5 seconds."""
    asked = typed(RegionsRequest, regions=bound("--region", region, unbound))
    with cli.client() as client:
        key = client.put(f"/operator/v1/keys/{segment(key_id)}/regions", asked, KeyView)
    cli.show(key, [bound_sheet(key)])


@command(app, "revoke")
def revoke(cli: Invocation, key_id: KeyId, yes: Yes = False) -> None:
    """Revoke a key for good; edges refuse it within 5 seconds."""
    cli.confirm(f"Revoke {key_id}? Whoever uses it is refused from then on.", yes)
    with cli.client() as client:
        client.delete(f"/operator/v1/keys/{segment(key_id)}")
    cli.show(Revoked(data=[key_id]), [Sheet([Column("REVOKED")], [[key_id]], "")])


def key_sheet(keys: list[KeyView], team: str) -> Sheet:
    now = utc(SystemClock().time_s())
    columns = [Column("KEY"), Column("NAME", loose=True), Column("HINT"), Column("STATE")]
    rows: list[list[Cell]] = []
    for key in keys:
        expired = key.expires_at is not None and key.expires_at <= now
        is_over = key.revoke_at is not None and key.revoke_at <= now
        word = ("revoked" if key.revoked_at or is_over else "expired" if expired
                else "rotated" if key.revoke_at else "live")
        rows.append([key.id, key.name, f"{render.ELLIPSIS}{key.hint[-4:]}", render.state(word)])
    return Sheet(columns, rows, f"No keys yet: meridian keys create {team} --name NAME")


def bound(option: str, names: list[str] | None, is_any: bool) -> list[str] | None:
    """What something shall be bound to; none: to nothing.

    Raises:
        UsageFault: neither was said, or both.
    """
    if bool(names) == is_any:
        raise UsageFault(f"give {option} once or more, or --any to take the bound off, one of the two")
    return names or None


def bound_sheet(key: KeyView) -> Sheet:
    """What a key may use, and where."""
    columns = [Column("KEY"), Column("MODELS", loose=True), Column("REGIONS", loose=True)]
    return Sheet(columns, [[key.id, ", ".join(key.allowed_models or ["any"]), ", ".join(key.regions or ["any"])]], "")


def _show_secret(cli: Invocation, key: KeyCreated, more: str) -> None:
    match cli.output:
        case Output.TABLE:
            cli.out.print(Text(key.secret, style="bold"), soft_wrap=True)
            cli.remark(f"Keep it: it is not shown again. It is key {key.id}.{more}")
        case _:
            cli.show(key, [Sheet([Column("ID"), Column("SECRET")], [[key.id, key.secret]], "")])

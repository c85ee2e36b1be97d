"""The keys that sign orders to edges: made on the operator's own machine; only the public half leaves it."""

from pathlib import Path
from typing import Annotated

import typer
from pydantic import BaseModel

from control_plane.cli import edge_calls, render
from control_plane.cli.client import segment
from control_plane.cli.documents import typed
from control_plane.cli.errors import UsageFault
from control_plane.cli.invocation import Invocation, command, flag
from control_plane.cli.listing import Limit, Listing
from control_plane.cli.moves import Yes
from control_plane.cli.render import Cell, Column, Sheet
from control_plane.contracts.operator import Page
from control_plane.contracts.override_keys import OperatorKeyRequest, OperatorKeyView
from control_plane.contracts.signing import SigningKey

PATH = "/operator/v1/operator-keys"

app = typer.Typer(add_completion=False)

KeyFile = Annotated[Path | None, typer.Option(
    "--key", metavar="FILE", show_default=False,
    help="Your private key (default: override.key in the operator's directory).")]
Name = Annotated[str, typer.Option("--name", metavar="NAME", help="Whose key it is; the audit log names it so.")]
PublicKey = Annotated[str, typer.Option("--public-key", metavar="TEXT", help="The public half, as keygen wrote it.")]
KeyId = Annotated[str, typer.Argument(metavar="KEY", help="The key, as meridian edge keys names it.")]
Apart = Annotated[bool, flag("--no-register", help="Only make it; somebody else registers its public half.")]


class MadeKey(BaseModel):
    """A new key's public half, and where the private one is."""

    key_id: str
    public_key: str
    file: str
    registered: bool


@command(app, "keygen")
def keygen(cli: Invocation, name: Name, key: KeyFile = None, no_register: Apart = False) -> None:
    """Make a key that signs overrides, and register its public half so that edges believe it; needs the scope admin."""
    path = key or edge_calls.operator_dir(cli.settings()) / edge_calls.KEY_FILE
    if path.exists() and no_register:
        raise UsageFault(f"there is a key at {path} already: name another file with --key")
    made = SigningKey.load_or_create(path)
    if not no_register:
        _register(cli, name, made.public.text)
    told = MadeKey(key_id=made.public.key_id, public_key=made.public.text, file=str(path), registered=not no_register)
    cli.show(told, [Sheet([Column("KEY"), Column("PUBLIC HALF"), Column("FILE", loose=True)],
                          [[told.key_id, told.public_key, told.file]], "")])
    cli.remark("Edges believe it from their next snapshot on. Keep a copy where you can reach it in an outage."
               if told.registered else "Nobody believes it yet: meridian edge register-key with its public half.")


@command(app, "register-key")
def register_key(cli: Invocation, name: Name, public_key: PublicKey) -> None:
    """Have edges believe somebody's key; needs the scope admin."""
    view = _register(cli, name, public_key)
    cli.show(view, [_sheet([view])])


@command(app, "keys")
def keys(cli: Invocation, limit: Limit = 50) -> None:
    """List the keys that edges believe, and those that were revoked."""
    with cli.client() as client:
        found = list(client.pages(PATH, Page[OperatorKeyView], limit))
    cli.show(Listing[OperatorKeyView](data=found), [_sheet(found)])


@command(app, "revoke-key")
def revoke_key(cli: Invocation, key_id: KeyId, yes: Yes = False) -> None:
    """End a key for ever, and with it every override that it signed; needs the scope admin."""
    cli.confirm(f"Revoke {key_id}? Edges forget what it ordered with their next snapshot.", yes)
    with cli.client() as client:
        client.delete(f"{PATH}/{segment(key_id)}")
    cli.say(f"{key_id} is revoked.")


def _register(cli: Invocation, name: str, public_key: str) -> OperatorKeyView:
    with cli.client() as client:
        return client.post(PATH, typed(OperatorKeyRequest, name=name, public_key=public_key), OperatorKeyView,
                           idempotency_key=public_key)


def _sheet(found: list[OperatorKeyView]) -> Sheet:
    rows: list[list[Cell]] = [
        [one.key_id, one.name, render.moment(one.created_at),
         render.state("revoked") if one.revoked_at else render.state("live")] for one in found]
    return Sheet([Column("KEY"), Column("NAME", loose=True), Column("SINCE"), Column("STATE")], rows,
                 "No keys: meridian edge keygen")

"""`meridian bootstrap`: the first operator token, made with the database at hand. All later ones come from the API."""

import asyncio
import json

import typer

from control_plane.cli.invocation import Invocation, command

app = typer.Typer(add_completion=False)


@command(app, "bootstrap")
def bootstrap(cli: Invocation) -> None:
    """Make the first operator token, with all scopes, from the database's own settings; prints one JSON line."""
    from control_plane.identity.bootstrap import bootstrap as make_token

    cli.write(json.dumps({"token": asyncio.run(make_token())}))

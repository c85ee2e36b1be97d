"""`meridian bootstrap`: the first operator token, made with the database at hand. All later ones come from the API."""

import asyncio
import json

import typer
from pydantic import ValidationError

from control_plane.cli.errors import Unreachable, UsageFault
from control_plane.cli.invocation import Invocation, command
from control_plane.cli.main import setting_faults

app = typer.Typer(add_completion=False)


@command(app, "bootstrap")
def bootstrap(cli: Invocation) -> None:
    """Make the first operator token, with all scopes, from the control plane's own settings; prints one JSON line."""
    from sqlalchemy.exc import DBAPIError

    from control_plane.identity.bootstrap import bootstrap as make_token

    try:
        token = asyncio.run(make_token())
    except ValidationError as error:
        raise UsageFault(setting_faults(error)) from error
    except (OSError, DBAPIError) as error:
        raise Unreachable(f"the database at MERIDIAN_DATABASE_URL does not answer: {type(error).__name__}") from error
    cli.write(json.dumps({"token": token}))

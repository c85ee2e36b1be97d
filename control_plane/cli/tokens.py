"""`meridian tokens` and `meridian enrolment-tokens`: access for operators and programs, and for new machines."""

from enum import StrEnum
from typing import Annotated

import typer
from rich.text import Text

from control_plane.cli import render
from control_plane.cli.documents import typed
from control_plane.cli.durations import duration
from control_plane.cli.invocation import Invocation, Output, command
from control_plane.cli.render import Column, Sheet
from control_plane.contracts.operator import (
    EnrolmentTokenCreated,
    EnrolmentTokenRequest,
    OperatorScope,
    OperatorTokenCreated,
    OperatorTokenRequest,
)

app = typer.Typer(add_completion=False)
tokens = typer.Typer(add_completion=False, no_args_is_help=True, help="Create operator tokens.")
enrolment = typer.Typer(add_completion=False, no_args_is_help=True, help="Let a new agent or edge in.")
app.add_typer(tokens, name="tokens")
app.add_typer(enrolment, name="enrolment-tokens")


class Kind(StrEnum):
    """What is let in."""

    AGENT = "agent"
    EDGE = "edge"


Name = Annotated[str, typer.Option("--name", metavar="NAME", help="Whom or what the token is for.")]
Scopes = Annotated[list[OperatorScope] | None, typer.Option(
    "--scope", help="What it may do; may be given more than once.", show_default="read")]
KindOption = Annotated[Kind, typer.Option("--kind", help="What is let in.")]
Subject = Annotated[str, typer.Option("--subject", help="An agent's fleet, or an edge's region.")]
TokenTtl = Annotated[float, duration("--ttl", help="How long it is good for (default: 24h).")]
EnrolmentTtl = Annotated[float, duration("--ttl", help="How long it is good for (default: 1h).")]


@command(tokens, "create")
def create_token(cli: Invocation, name: Name, scope: Scopes = None, ttl: TokenTtl = 86_400.0) -> None:
    """Create an operator token and show it, this once."""
    request = typed(OperatorTokenRequest, name=name, scopes=scope or [OperatorScope.READ], ttl_s=round(ttl))
    with cli.client() as client:
        created = client.post("/operator/v1/tokens", request, OperatorTokenCreated)
    _show(cli, created, f"Good until {render.moment(created.expires_at)}; it is not shown again.")


@command(enrolment, "create")
def create_enrolment(cli: Invocation, kind: KindOption, subject: Subject,
                     ttl: EnrolmentTtl = 3_600.0) -> None:
    """Create a token with which one agent or edge may enrol, once."""
    request = typed(EnrolmentTokenRequest, kind=kind.value, subject=subject, ttl_s=round(ttl))
    with cli.client() as client:
        created = client.post("/operator/v1/enrolment-tokens", request, EnrolmentTokenCreated)
    _show(cli, created, f"Good once, until {render.moment(created.expires_at)}; it is not shown again.")


def _show(cli: Invocation, created: OperatorTokenCreated | EnrolmentTokenCreated, note: str) -> None:
    if cli.output is Output.TABLE:
        cli.out.print(Text(created.token, style="bold"), soft_wrap=True)
        cli.remark(note)
    else:
        cli.show(created, [Sheet([Column("TOKEN")], [[created.token]], "")])

"""`meridian completion`, and what the shell then offers for a name that is being typed: what the control plane has. It
never fails and never keeps a person waiting: without an answer in half a second nothing is offered."""

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer
from pydantic import ValidationError
from typer.completion import get_completion_script  # type: ignore[attr-defined]

from control_plane.cli.errors import CommandFailed
from control_plane.cli.invocation import Invocation, command

if TYPE_CHECKING:
    from collections.abc import Callable

    from control_plane.contracts.operator import StatusView

PATIENCE_S = 0.5
MAX_OFFERED = 50


app = typer.Typer(add_completion=False)


class Shell(StrEnum):
    """The shells that can complete."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


@command(app, "completion")
def completion(
    cli: Invocation, shell: Annotated[Shell, typer.Argument(metavar="SHELL", help="bash, zsh or fish.")] = Shell.BASH,
) -> None:
    """Print the script that teaches a shell to complete: commands, options, and the fleet's own names.

    For bash, in ~/.bashrc: eval "$(meridian completion bash)"
    """
    cli.write(get_completion_script(prog_name="meridian", complete_var="_MERIDIAN_COMPLETE", shell=shell.value))


def datacenters(incomplete: str) -> list[str]:
    """Datacenters that begin so."""
    return _offered(incomplete, lambda fleet: {center.id for center in fleet.datacenters})


def models(incomplete: str) -> list[str]:
    """Models that some deployment holds."""
    return _offered(incomplete, lambda fleet: {one.model for center in fleet.datacenters for one in center.deployments})


def deployments(incomplete: str) -> list[str]:
    """Deployments."""
    return _offered(incomplete, lambda fleet: {one.id for center in fleet.datacenters for one in center.deployments})


def operations(incomplete: str) -> list[str]:
    """Operations that have not ended."""
    return _offered(incomplete, lambda fleet: {operation.id for operation in fleet.running_operations})


def _offered(incomplete: str, names: "Callable[[StatusView], set[str]]") -> list[str]:
    from control_plane.cli.client import OperatorClient
    from control_plane.cli.settings import Settings
    from control_plane.cli.stack import control_plane_access
    from control_plane.contracts.operator import StatusView

    try:
        with OperatorClient(control_plane_access(Settings()), PATIENCE_S) as client:
            fleet = client.get("/operator/v1/status", StatusView)
    except (CommandFailed, ValidationError):
        return []
    return sorted(name for name in names(fleet) if name.startswith(incomplete))[:MAX_OFFERED]

"""All commands as one: where each lives, and what the shell is told when one fails. A command's module is imported when
the command is used."""

import importlib
import sys
from typing import Any, cast

import typer
from typer.completion import completion_init  # type: ignore[attr-defined]
from typer.core import TyperGroup
from typer.main import get_command

from control_plane.cli.errors import CommandFailed, ErrorReport, ExitCode
from control_plane.cli.invocation import Invocation, Output, OutputOption, StateOption

STACK, FLEET, TEAMS, ACCESS = "The stack", "The fleet", "Teams and usage", "Identities"

# Every command: where it lives, and under which heading help lists it.
COMMANDS = {
    "up": ("up", STACK),
    "control-plane": ("processes", STACK),
    "edge": ("edges", STACK),
    "agent": ("processes", STACK),
    "worker": ("processes", STACK),
    "bootstrap": ("bootstrap", STACK),
    "completion": ("completing", STACK),
    "status": ("status", FLEET),
    "drain": ("moves", FLEET),
    "failover": ("moves", FLEET),
    "restore": ("moves", FLEET),
    "shift": ("shift", FLEET),
    "rollout": ("rollout", FLEET),
    "operations": ("operations", FLEET),
    "freeze": ("automation", FLEET),
    "unfreeze": ("automation", FLEET),
    "automation": ("automation", FLEET),
    "capacity": ("capacity", FLEET),
    "topology": ("topology", FLEET),
    "recover": ("recover", FLEET),
    "chat": ("chat", TEAMS),
    "teams": ("team_money", TEAMS),
    "keys": ("keys", TEAMS),
    "limits": ("limits", TEAMS),
    "budgets": ("budgets", TEAMS),
    "money": ("money", TEAMS),
    "usage": ("usage", TEAMS),
    "tokens": ("tokens", ACCESS),
    "enrolment-tokens": ("tokens", ACCESS),
    "audit": ("audit", ACCESS),
}
EPILOG = ("Exit codes: 0 done, 1 not possible now, 2 wrong usage, 3 refused by a safety rule, "
          "4 still running when the wait was over, 5 failed or cancelled on the way.")


class LazyGroup(TyperGroup):
    """Finds a command in its module when it is asked for."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = cast(Any, dict.fromkeys(COMMANDS))  # only the names, for "did you mean"

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in COMMANDS:
            return None
        module, panel = COMMANDS[cmd_name]
        group = get_command(importlib.import_module(f"control_plane.cli.{module}").app)
        found: Any = group.commands.get(cmd_name, group) if isinstance(group, TyperGroup) else group
        found.name, found.rich_help_panel = cmd_name, panel
        return found


app = typer.Typer(name="meridian", cls=LazyGroup, add_completion=False, rich_markup_mode="rich", epilog=EPILOG,
                  invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})


@app.callback()
def root(ctx: typer.Context, state: StateOption = None, output: OutputOption = None) -> None:
    """Meridian serves open models from several datacenters behind one OpenAI-compatible endpoint."""
    ctx.obj = Invocation(output or Output.TABLE, state)
    if ctx.invoked_subcommand is None:
        typer.echo(ctx.get_help())


def run(arguments: list[str]) -> int:
    """The exit code of one invocation."""
    completion_init()  # the shell asks by environment variables; without them this does nothing
    try:
        code = get_command(app)(arguments, prog_name="meridian", standalone_mode=False)
    except CommandFailed as error:
        return _fail(arguments, error.report())
    except typer.Abort:
        return _fail(arguments, ErrorReport(code="aborted", message="nothing was done", exit_code=ExitCode.FAILED))
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    except typer.TyperException as error:
        message = error.format_message().replace("Value error, ", "")
        return _fail(arguments, ErrorReport(code="usage", message=message, exit_code=error.exit_code))
    except BrokenPipeError:
        sys.stderr.close()
        return ExitCode.OK
    return code if isinstance(code, int) else ExitCode.OK


def _fail(arguments: list[str], report: ErrorReport) -> int:
    if wants_json(arguments):
        typer.echo(report.model_dump_json(exclude_defaults=True), err=True)
    elif report.message:
        _explain(report)
    return report.exit_code


def wants_json(arguments: list[str]) -> bool:
    """Whether the answer was to be JSON, told from the raw arguments: they may not have been readable otherwise."""
    pairs = zip(arguments, [*arguments[1:], ""], strict=False)
    return any(first in ("-ojson", "-o=json", "--output=json") or (first in ("-o", "--output") and second == "json")
               for first, second in pairs)


def _explain(report: ErrorReport) -> None:
    typer.secho("error: ", fg="red", bold=True, nl=False, err=True)
    typer.echo(report.message, err=True)
    facts = {"rule": report.rule, **report.numbers} if report.rule else report.numbers
    width = max(map(len, facts), default=0)
    for name, value in facts.items():
        typer.echo(f"  {name.replace('_', ' '):<{width}}  {value}", err=True)

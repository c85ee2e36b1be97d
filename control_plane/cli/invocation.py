"""One invocation of a command: how its answer is written, and what it talks to.

`command` adds to every command the two options that all of them share, `--state` and `--output`; both may also stand
before the command's name.
"""

import functools
import inspect
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

if TYPE_CHECKING:
    from pydantic import BaseModel
    from rich.console import Console

    from control_plane.cli.client import OperatorClient
    from control_plane.cli.render import Sheet
    from control_plane.cli.settings import Settings

Function = TypeVar("Function", bound=Callable[..., None])
SHARED = "Shared options"


class Output(StrEnum):
    """`table` is for people, `plain` for pipes (tabs, no colour), `json` for programs."""

    TABLE = "table"
    PLAIN = "plain"
    JSON = "json"


StateOption = Annotated[Path | None, typer.Option(
    "--state", metavar="DIR", rich_help_panel=SHARED, show_default=False,
    help="State directory of the local stack (default: $MERIDIAN_STATE, else .meridian).")]
OutputOption = Annotated[Output | None, typer.Option(
    "-o", "--output", rich_help_panel=SHARED, show_default=False,
    help="How to write the answer: table for people, plain for pipes, json for programs.")]


def flag(*names: str, help: str) -> Any:
    """An option without a value."""
    return typer.Option(*names, help=help, metavar=" ", show_default=False)


@dataclass(slots=True)
class Invocation:
    """What a command writes to and reads from. Answers go to standard output, everything else to standard error."""

    output: Output = Output.TABLE
    state: Path | None = None
    _consoles: dict[bool, "Console"] = field(default_factory=dict)

    @property
    def is_json(self) -> bool:
        return self.output is Output.JSON

    @property
    def asks(self) -> bool:
        """Whether a person sits there to be asked."""
        return sys.stdin.isatty() and sys.stderr.isatty()

    @property
    def out(self) -> "Console":
        """Where answers go."""
        return self._console(stderr=False)

    @property
    def err(self) -> "Console":
        """Where errors, questions and progress go."""
        return self._console(stderr=True)

    def settings(self) -> "Settings":
        """The environment's settings, under this invocation's state directory."""
        from control_plane.cli.settings import Settings

        return Settings(state=self.state) if self.state else Settings()

    def client(self) -> "OperatorClient":
        """A client of the operator API."""
        from control_plane.cli.client import OperatorClient
        from control_plane.cli.stack import control_plane_access

        return OperatorClient(control_plane_access(self.settings()))

    def show(self, data: "BaseModel", sheets: "Sequence[Sheet]", heading: str = "") -> None:
        """Writes an answer in the form that was asked for. `heading` is for people only."""
        from control_plane.cli.render import QUIET, print_sheets

        match self.output:
            case Output.JSON:
                self.write(data.model_dump_json(indent=2))
            case Output.PLAIN:
                for index, sheet in enumerate(sheets):
                    self.write(*([""] if index else []), *sheet.lines())
            case Output.TABLE:
                if heading:
                    self.out.print(heading, style=QUIET, highlight=False, markup=False)
                    self.out.print()
                print_sheets(self.out, sheets)

    def say(self, text: str) -> None:
        """One line for people; nothing in the other forms."""
        if self.output is Output.TABLE:
            self.out.print(text, highlight=False, markup=False, soft_wrap=True)

    def remark(self, text: str) -> None:
        """What a person should know about an answer, kept out of what a shell takes from it."""
        if self.output is Output.TABLE:
            self.err.print(text, highlight=False, markup=False, soft_wrap=True)

    def write(self, *lines: str) -> None:
        """Lines as they are."""
        for line in lines:
            typer.echo(line)

    def confirm(self, question: str, yes: bool) -> None:
        """Asks a person; goes on without asking when `yes` was given or nobody sits there.

        Raises:
            Abort: the answer is no.
        """
        if not yes and self.asks:
            typer.confirm(question, default=False, abort=True, err=True)

    def _console(self, stderr: bool) -> "Console":
        if stderr not in self._consoles:
            from rich.console import Console

            self._consoles[stderr] = Console(stderr=stderr, soft_wrap=False)
        return self._consoles[stderr]


def command(app: typer.Typer, name: str) -> Callable[[Function], Function]:
    """Registers a command that takes an `Invocation` first."""

    def register(function: Function) -> Function:
        @functools.wraps(function)
        def run(ctx: typer.Context, *, state: Path | None, output: Output | None, **own: Any) -> None:
            before: Invocation = ctx.ensure_object(Invocation)
            function(Invocation(output or before.output, state or before.state), **own)

        signature = inspect.signature(function, eval_str=True)
        keyword = inspect.Parameter.KEYWORD_ONLY
        shared = [inspect.Parameter("state", keyword, default=None, annotation=StateOption),
                  inspect.Parameter("output", keyword, default=None, annotation=OutputOption)]
        context = inspect.Parameter("ctx", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context)
        parameters = [context, *list(signature.parameters.values())[1:], *shared]
        run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        app.command(name)(run)
        return function

    return register

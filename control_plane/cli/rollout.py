"""`meridian rollout`: another specification for a model's deployments, one after the other."""

import importlib
import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from control_plane.cli import completing
from control_plane.cli.documents import typed
from control_plane.cli.durations import duration
from control_plane.cli.errors import UsageFault
from control_plane.cli.invocation import Invocation, command
from control_plane.cli.moves import DryRun, Force, Reason, Timeout, Wait, Waiting, Yes, order
from control_plane.contracts.operations import OperationKind, OperationRequest, RolloutOrder

app = typer.Typer(add_completion=False)

FIELDS = ("engine", "pools")

Model = Annotated[str, typer.Argument(
    metavar="MODEL", autocompletion=completing.models, help="Whose deployments.")]
SpecificationFile = Annotated[Path, typer.Option(
    "--file", "-f", metavar="FILE",
    help="The specification, YAML or JSON, with engine, pools or both; what it leaves out stays. - reads standard "
         "input.")]
Datacenters = Annotated[str | None, typer.Option(
    "--in", metavar="DATACENTERS", show_default=False,
    help="Only in these, separated by commas and in this order (default: everywhere).")]
Watch = Annotated[float | None, duration(
    "--watch", help="How long each is watched under traffic before the next (default: as configured, 60s).")]
Finish = Annotated[float, duration(
    "--finish", help="How long open requests may take before one is replaced (default: 10m).")]
Ready = Annotated[float, duration("--ready", help="How long one may take to be ready again (default: 15m).")]
MaxErrors = Annotated[float, typer.Option(
    "--max-error-percent", min=0, max=100, metavar="NUMBER",
    help="More failed requests than this roll everything back.")]
Deadline = Annotated[float, duration("--deadline", help="When it is rolled back, unless it is over (default: 6h).")]


@command(app, "rollout")
def rollout(cli: Invocation, model: Model, file: SpecificationFile, reason: Reason, datacenters: Datacenters = None,
            watch: Watch = None, finish: Finish = 600.0, ready: Ready = 900.0, max_error_percent: MaxErrors = 1.0,
            deadline: Deadline = 21_600.0, force: Force = False, dry_run: DryRun = False, wait: Wait = False,
            timeout: Timeout = None, yes: Yes = False) -> None:
    """Give a model's deployments another specification, one after the other: each loses its traffic by degrees, is
    replaced and probed, and gets its traffic back while its errors are counted. It is rolled back by itself if one is
    not ready, does not answer, or fails too many requests."""
    wanted = typed(RolloutOrder, model=model, **read_specification(file), watch_s=watch, finish_s=finish, ready_s=ready,
                   max_error_percent=max_error_percent,
                   datacenters=[one.strip() for one in datacenters.split(",")] if datacenters else None)
    request = typed(OperationRequest, kind=OperationKind.ROLLOUT, rollout=wanted, reason=reason, deadline_s=deadline,
                    force=force, dry_run=dry_run)
    where = f" in {datacenters}" if datacenters else ""
    order(cli, request, Waiting(wait, timeout, yes),
          f"Roll this out to {model}{where}? Cancelled half-way, it is rolled back.")


def read_specification(file: Path) -> dict[str, Any]:
    """What a specification file holds.

    Raises:
        UsageFault: it cannot be read, or holds something else.
    """
    try:
        text = sys.stdin.read() if str(file) == "-" else file.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageFault(f"cannot read {file}: {getattr(error, 'strerror', None) or error}") from error
    found = _parsed(file, text)
    if not isinstance(found, dict) or not set(found) <= set(FIELDS) or not found:
        raise UsageFault(f"{file}: a specification holds {' and '.join(FIELDS)}, and nothing else")
    return found


def _parsed(file: Path, text: str) -> Any:
    """JSON is read without help; anything else needs the YAML package, which the engine brings along."""
    try:
        return json.loads(text)
    except ValueError as json_error:
        try:
            yaml: Any = importlib.import_module("yaml")
        except ImportError:
            raise UsageFault(f"{file} is no JSON ({json_error}), and PyYAML, which reads YAML, is not installed"
                             ) from json_error
        try:
            return yaml.safe_load(text)
        except yaml.YAMLError as error:
            raise UsageFault(f"{file}: {' '.join(str(error).split())}") from error

"""The entry point `meridian`. What starts a process goes straight to it: an edge carries no command line."""

import importlib
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pydantic import ValidationError

# The commands that run one process until it ends: the module of each, and the function in it.
PROCESSES = {
    "control-plane": ("control_plane.app", "serve"),
    "edge": ("edge_api.main", "main"),
    "agent": ("fleet_agent.main", "main"),
    "worker": ("control_plane.worker", "serve"),
}


def main() -> None:
    """Runs the command line and exits with its code."""
    arguments = sys.argv[1:]
    if len(arguments) == 1 and arguments[0] in PROCESSES:
        sys.exit(start(arguments[0]))
    from control_plane.cli.app import run

    sys.exit(run(arguments))


def start(process: str) -> int:
    """Runs a process until it ends. Settings that are missing or wrong are one line, and exit code 2."""
    from pydantic import ValidationError

    module, entry = PROCESSES[process]
    try:
        return getattr(importlib.import_module(module), entry)() or 0
    except ValidationError as error:
        if error.title != "Settings":
            raise
        sys.stderr.write(f"error: {setting_faults(error)}\n")
        return 2


def setting_faults(error: "ValidationError") -> str:
    """Which MERIDIAN_ variables are missing or wrong, and why. The values stay out: some are secrets."""
    return "; ".join(f"MERIDIAN_{'_'.join(map(str, fault['loc'])).upper()}: {fault['msg']}" for fault in error.errors())

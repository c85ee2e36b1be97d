"""Writes the dashboards' JSON: `python -m infra.grafana`. With `--check` it only says what is stale."""

import sys
from pathlib import Path

from infra.grafana.boards import BOARDS
from infra.grafana.panels import text

DASHBOARDS = Path(__file__).parent / "dashboards"


def main(arguments: list[str]) -> int:
    """Writes each file that is not as it should be, or checks them: 1 when one is stale."""
    wanted = {DASHBOARDS / f"{name}.json": text(board) for name, board in BOARDS.items()}
    stale = [path for path, content in wanted.items() if not path.exists() or path.read_text() != content]
    for path in stale:
        if "--check" in arguments:
            sys.stderr.write(f"{path.name} is stale: run ./dev docs\n")
        else:
            path.write_text(wanted[path])
            sys.stdout.write(f"wrote infra/grafana/dashboards/{path.name}\n")
    return 1 if stale and "--check" in arguments else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Runbooks as programs: the `console` blocks of a page, run in order as an operator would type them.

A line that begins with `$ ` is a command; the lines below it are pieces of what it must say, in this order, with `…`
for whatever stands between. `# exit 3` behind a command is the exit code that it must have, 0 otherwise. Words in
capitals stand for things of the stack at hand.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

RUNBOOKS = Path(__file__).parents[2] / "docs" / "runbooks"
BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
EXIT = re.compile(r"\s+# exit (\d+)$")
WORD = re.compile(r"\b[A-Z]+(?:_[A-Z]+)*\b")
DEADLINE_S = 300.0


@dataclass
class Typed:
    """A command, the exit code that it must have, and what it must say."""

    command: str
    code: int = 0
    said: list[str] = field(default_factory=list)


def pages() -> list[Path]:
    """Every runbook but the list of them."""
    return sorted(path for path in RUNBOOKS.glob("*.md") if path.name != "README.md")


def commands(text: str) -> Iterator[Typed]:
    """The commands of a page, with what follows each."""
    typed: Typed | None = None
    for block in BLOCK.findall(text):
        for line in block.splitlines():
            if line.startswith("$ "):
                if typed is not None:
                    yield typed
                code = EXIT.search(line)
                typed = Typed(EXIT.sub("", line[2:]), int(code.group(1)) if code else 0)
            elif line.strip() and typed is not None:
                typed.said.append(line)
    if typed is not None:
        yield typed


def filled(command: str, values: Mapping[str, str]) -> str:
    """The command with the words in capitals that we know filled in."""
    return WORD.sub(lambda found: values.get(found.group(), found.group()), command)


def run(command: str, state: Path) -> subprocess.CompletedProcess[str]:
    """Types it into a shell in which `meridian` is this checkout's, for the stack in `state`."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        ["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, check=False, timeout=DEADLINE_S,
        stdin=subprocess.DEVNULL, env=os.environ | {"PATH": path, "MERIDIAN_STATE": str(state), "COLUMNS": "160"})


def missing(said: str, wanted: list[str]) -> str:
    """The first piece that does not come, in its place; empty if all do. Blanks count as one."""
    said, at = " ".join(said.split()), 0
    for piece in (part for line in wanted for part in line.split("…")):
        piece = " ".join(piece.split())
        found = said.find(piece, at)
        if found < 0:
            return piece
        at = found + len(piece)
    return ""

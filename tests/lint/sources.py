"""The repository's files as the rules see them, and what a rule finds."""

import ast
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("control_plane", "edge_api", "fleet_agent", "engine", "infra", "migrations")


@dataclass(frozen=True)
class Source:
    """One Python file. `path` is relative to the repository."""

    path: str
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    @cached_property
    def lines(self) -> list[str]:
        return self.text.splitlines()

    @property
    def package(self) -> str:
        """The top-level directory."""
        return self.path.split("/", 1)[0]

    @property
    def is_product(self) -> bool:
        return self.package in PACKAGES

    @cached_property
    def imported(self) -> dict[str, str]:
        """What each imported name stands for, dotted: `{"now": "time.time"}` for `from time import time as now`."""
        names: dict[str, str] = {}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                names |= {alias.asname or alias.name.split(".")[0]: alias.name if alias.asname
                          else alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
        return names

    def dotted(self, node: ast.AST) -> str:
        """`time.monotonic` for a node that names it, however it was imported; empty for anything else."""
        if isinstance(node, ast.Attribute):
            base = self.dotted(node.value)
            return f"{base}.{node.attr}" if base else ""
        return self.imported.get(node.id, node.id) if isinstance(node, ast.Name) else ""


@dataclass(frozen=True)
class Fault:
    """What a rule found, and where."""

    path: str
    line: int
    message: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.message}"


Rule = Callable[[Source], Iterator[Fault]]


@lru_cache(maxsize=1)
def tracked_paths() -> tuple[str, ...]:
    """Every file that git tracks and that is still there."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
    return tuple(path for path in listed.decode().split("\0") if path and (ROOT / path).is_file())


@lru_cache(maxsize=1)
def python_sources() -> tuple[Source, ...]:
    """Every tracked Python file."""
    return tuple(Source(path, (ROOT / path).read_text()) for path in tracked_paths() if path.endswith(".py"))


@lru_cache(maxsize=1)
def text_files() -> tuple[tuple[str, str], ...]:
    """Every tracked file that is text, with its text."""
    found = []
    for path in tracked_paths():
        try:
            found.append((path, (ROOT / path).read_text()))
        except UnicodeDecodeError:
            continue
    return tuple(found)

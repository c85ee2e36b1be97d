"""What each process carries: an edge no database, an agent no web framework, the command line only what it uses."""

import json
import subprocess
import sys

import pytest

from tests.lint.sources import ROOT

RUN_MAIN = "import sys; sys.argv = ['meridian', *{arguments}]; from control_plane.cli.main import main; main()"


def loaded_by(statement: str) -> set[str]:
    """The top-level modules that are there after a statement ran in a fresh process."""
    script = (f"import json, sys\ntry:\n    {statement}\nexcept SystemExit:\n    pass\n"
              "print()\nprint(json.dumps(list(sys.modules)))")
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=60,
                          check=True)
    return {name.split(".")[0] for name in json.loads(done.stdout.splitlines()[-1])}


def test_what_is_loaded_is_seen() -> None:
    assert "sqlalchemy" in loaded_by("import sqlalchemy")
    assert "sqlalchemy" not in loaded_by("import json")


@pytest.mark.parametrize(("process", "module", "never"), [
    ("edge", "edge_api.main", {"sqlalchemy", "asyncpg", "celery", "alembic", "typer", "infra", "engine"}),
    ("agent", "fleet_agent.main", {"sqlalchemy", "asyncpg", "celery", "alembic", "redis", "fastapi", "typer", "infra",
                                   "engine"}),
    ("control plane", "control_plane.app", {"typer", "dynamo", "vllm", "torch", "edge_api", "fleet_agent", "engine",
                                            "infra"}),
    ("engine", "engine.__main__", {"sqlalchemy", "fastapi", "celery", "torch", "vllm", "dynamo"}),
])
def test_a_process_carries_nothing_that_it_does_not_need(process: str, module: str, never: set[str]) -> None:
    assert loaded_by(f"import {module}") & never == set(), f"the {process} carries too much"


@pytest.mark.parametrize("arguments", [["--help"], ["status", "--help"], ["edge", "--help"]])
def test_the_command_line_starts_without_any_process_parts(arguments: list[str]) -> None:
    heavy = {"sqlalchemy", "fastapi", "celery", "alembic", "asyncpg", "uvicorn", "infra", "edge_api", "fleet_agent"}
    assert loaded_by(RUN_MAIN.format(arguments=arguments)) & heavy == set()

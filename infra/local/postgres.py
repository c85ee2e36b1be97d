"""Our own launcher of a Postgres server: loopback TCP with SCRAM only, no Unix socket, state in one directory.

Two roles: `postgres`, the superuser, which only the launcher uses, and `meridian`, which owns the database `meridian`
and is what the control plane connects as.
"""

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path

import asyncpg

from infra.local import binaries, child
from infra.local.account import Placement, own, place
from infra.local.child import ProcessSpec
from infra.local.errors import StackRefused

HOST = "127.0.0.1"
SUPERUSER = "postgres"
ROLE = "meridian"
DATABASE = "meridian"
INITDB_DEADLINE_S = 120.0
CONNECT_DEADLINE_S = 5.0
POLL_S = 0.02
# What tests give up for speed: after a crash of the machine the data may be lost.
NOT_DURABLE = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}


@dataclass(frozen=True)
class Postgres:
    """A server's place and secrets. `data_dir` is made by `prepare`; passwords must be letters and digits."""

    data_dir: Path
    port: int
    log_path: Path
    superuser_password: str
    role_password: str
    durable: bool = True

    def url(self, database: str = DATABASE) -> str:
        """What the control plane connects with."""
        return f"postgresql+asyncpg://{ROLE}:{self.role_password}@{HOST}:{self.port}/{database}"


def prepare(server: Postgres, extra_rights: tuple[str, ...] = ()) -> ProcessSpec:
    """Makes the cluster unless it exists, clears what a crash left, and says how the server is run.

    Raises StackRefused when initdb fails or another server still uses the directory.
    """
    placement = place(binaries.postgres_bin_dir(), server.data_dir)
    if not (placement.data_dir / "PG_VERSION").is_file():
        _initialise(server, placement)
    _require_version(placement)
    _clear_leftovers(placement.data_dir)
    settings = {
        "port": str(server.port),
        "listen_addresses": HOST,
        "unix_socket_directories": "",
        "max_connections": "200",
        "shared_buffers": "64MB",
        "shared_preload_libraries": "pg_stat_statements",
        "password_encryption": "scram-sha-256",
        "timezone": "UTC",
        **({} if server.durable else NOT_DURABLE),
    }
    options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
    return ProcessSpec(
        name="postgres",
        argv=(str(placement.bin_dir / "postgres"), "-D", str(placement.data_dir), *options),
        env=_environment(),
        log_path=server.log_path,
        stop_signal=signal.SIGINT,  # fast shutdown: sessions are ended, the data is written out
        stop_grace_s=30.0,
        rights=placement.rights + extra_rights,
    )


async def wait_ready(server: Postgres, deadline_s: float = 60.0) -> None:
    """Returns once the superuser can connect. Raises StackRefused at the deadline."""
    now_s = asyncio.get_running_loop().time
    until_s = now_s() + deadline_s
    while True:
        try:
            await (await connect(server)).close()
            return
        except (OSError, TimeoutError, asyncpg.CannotConnectNowError, asyncpg.ConnectionDoesNotExistError) as error:
            if now_s() > until_s:
                tail = child.log_tail(server.log_path)
                raise StackRefused(f"Postgres did not become ready in {deadline_s:.0f} s: {tail}") from error
        except asyncpg.InvalidPasswordError as error:
            raise StackRefused(
                f"Postgres refuses our own password: {server.data_dir} belongs to other secrets; "
                "put them back, or remove the state directory to begin anew"
            ) from error
        await asyncio.sleep(POLL_S)


async def connect(server: Postgres, database: str = "postgres") -> asyncpg.Connection:
    """A superuser connection; the caller closes it."""
    return await asyncpg.connect(
        host=HOST, port=server.port, user=SUPERUSER, password=server.superuser_password, database=database,
        ssl=False, timeout=CONNECT_DEADLINE_S,
    )


async def ensure_role(server: Postgres) -> None:
    """Makes the role `meridian` unless it exists; gives it its password again in any case."""
    connection = await connect(server)
    try:
        exists = await connection.fetchval("select 1 from pg_roles where rolname = $1", ROLE)
        verb = "alter" if exists else "create"
        await connection.execute(f"{verb} role {ROLE} login nosuperuser password '{_plain(server.role_password)}'")
    finally:
        await connection.close()


async def ensure_database(server: Postgres, database: str = DATABASE, template: str = "template1") -> None:
    """Makes a database that the role owns, unless it exists."""
    connection = await connect(server)
    try:
        if not await connection.fetchval("select 1 from pg_database where datname = $1", database):
            await connection.execute(f"create database {_plain(database)} owner {ROLE} template {_plain(template)}")
    finally:
        await connection.close()


async def drop_database(server: Postgres, database: str) -> None:
    """Removes a database and ends its sessions."""
    connection = await connect(server)
    try:
        await connection.execute(f"drop database if exists {_plain(database)} with (force)")
    finally:
        await connection.close()


def _initialise(server: Postgres, placement: Placement) -> None:
    """Runs initdb into a directory beside, then renames: a killed initdb leaves nothing that looks like a cluster."""
    partial = placement.data_dir.with_name(f"{placement.data_dir.name}.new")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    password_file = partial.with_name(f"{partial.name}.password")
    try:
        with open(os.open(password_file, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600), "w") as file:
            file.write(server.superuser_password)
        if placement.account is not None:
            os.chown(password_file, placement.account.uid, placement.account.gid)
        own(partial, placement.account)
        spec = ProcessSpec(
            name="initdb",
            argv=(
                str(placement.bin_dir / "initdb"), "-D", str(partial), "-U", SUPERUSER, "-E", "UTF8",
                "--locale-provider=builtin", "--builtin-locale=C.UTF-8", "--locale=C", "--auth=scram-sha-256",
                "--pwfile", str(password_file), "--no-sync", "--no-instructions",
            ),
            env=_environment(), log_path=server.log_path, rights=placement.rights,
        )  # fmt: skip
        process = child.start(spec)
        try:
            code = process.wait(INITDB_DEADLINE_S)
        except subprocess.TimeoutExpired:
            code = child.stop(process, spec)
        if code != 0:
            raise StackRefused(f"Postgres could not be initialised: {child.log_tail(server.log_path)}")
        os.sync() if server.durable else None
        partial.rename(placement.data_dir)
    finally:
        password_file.unlink(missing_ok=True)
        shutil.rmtree(partial, ignore_errors=True)


def _require_version(placement: Placement) -> None:
    made_by = (placement.data_dir / "PG_VERSION").read_text().strip()
    if made_by != str(binaries.POSTGRES_MAJOR):
        raise StackRefused(
            f"{placement.data_dir} was made by PostgreSQL {made_by}, this release runs {binaries.POSTGRES_MAJOR}; "
            "move the state directory away to begin anew"
        )


def _clear_leftovers(data_dir: Path) -> None:
    """Ends a server that a killed `meridian up` left on this directory, and removes a stale pid file.

    Postgres itself mistakes a stale pid file for a live server when its number was given to another process.
    """
    pid_file = data_dir / "postmaster.pid"
    with contextlib.suppress(OSError, ValueError, IndexError):
        pid = int(pid_file.read_text().splitlines()[0])
        command = Path(f"/proc/{pid}/cmdline").read_bytes() if Path("/proc/self").exists() else None
        if command is None or str(data_dir).encode() in command.split(b"\0"):
            os.kill(pid, signal.SIGINT)
            if not child.wait_gone(pid, 30.0):
                raise StackRefused(f"another Postgres (process {pid}) still uses {data_dir}; stop it and try again")
            return
        pid_file.unlink()


def _environment() -> dict[str, str]:
    return {"PATH": "/usr/local/bin:/usr/bin:/bin", "LC_ALL": "C", "TZ": "UTC"}


def _plain(word: str) -> str:
    """A word that needs no quoting in SQL; these statements take no parameters."""
    if not word.replace("_", "").isalnum():
        raise ValueError("only letters, digits and _ are allowed here")
    return word

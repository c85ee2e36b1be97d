"""The launcher of Postgres on real servers: who may connect, what survives, as whom it runs."""

import asyncio
import contextlib
import os
import signal
import stat
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import asyncpg
import psutil
import pytest

from infra.local import account, child, postgres
from infra.local.errors import StackRefused
from infra.local.ports import free_port
from infra.local.postgres import Postgres
from tests import throwaway

root_only = pytest.mark.skipif(os.geteuid() != 0, reason="only root lends out another account")


@contextlib.contextmanager
def running(server: Postgres) -> Iterator[psutil.Process]:
    """The server, started as the stack starts it."""
    spec = postgres.prepare(server)
    process = child.start(spec)
    try:
        throwaway.run(postgres.wait_ready(server))
        yield psutil.Process(process.pid)
    finally:
        child.stop(process, spec)


@pytest.fixture
def server(open_directory: Path) -> Postgres:
    """A server that was never started."""
    return Postgres(open_directory / "data", free_port(), open_directory / "postgres.log", "super", "role")


async def fetch(url: str, query: str) -> object:
    connection = await asyncpg.connect(url.replace("+asyncpg", ""), ssl=False)
    try:
        return await connection.fetchval(query)
    finally:
        await connection.close()


async def test_it_is_postgres_18_with_time_ordered_ids(empty_database_url: str) -> None:
    assert str(await fetch(empty_database_url, "show server_version")).startswith("18.")
    assert await fetch(empty_database_url, "select uuid_extract_version(uuidv7())") == 7


async def test_the_application_role_owns_its_database_and_is_no_superuser(empty_database_url: str) -> None:
    assert await fetch(empty_database_url, "select current_user") == "meridian"
    assert await fetch(empty_database_url, "select rolsuper from pg_roles where rolname = current_user") is False
    await fetch(empty_database_url, "create table t (id int)")


async def test_a_wrong_password_is_refused(postgres_server: Postgres) -> None:
    with pytest.raises(asyncpg.InvalidPasswordError):
        await fetch(replace(postgres_server, role_password="wrong").url("postgres"), "select 1")


async def test_passwords_are_stored_for_scram_only(postgres_server: Postgres) -> None:
    connection = await postgres.connect(postgres_server)
    try:
        stored = [row[0] for row in await connection.fetch("select rolpassword from pg_authid where rolcanlogin")]
        methods = {row[0] for row in await connection.fetch("select auth_method from pg_hba_file_rules")}
    finally:
        await connection.close()
    assert len(stored) == 2
    assert all(password.startswith("SCRAM-SHA-256$") for password in stored)
    assert methods == {"scram-sha-256"}


async def test_each_test_has_a_database_of_its_own(empty_database_url: str, postgres_server: Postgres) -> None:
    await fetch(empty_database_url, "create table t (id int)")
    with throwaway.database(postgres_server) as other:
        assert other != empty_database_url
        assert await fetch(other, "select to_regclass('t')") is None


def test_it_listens_on_loopback_alone_and_has_no_socket_file(server: Postgres) -> None:
    with running(server) as process:
        listeners = {c.laddr for c in process.net_connections() if c.status == psutil.CONN_LISTEN}
    assert listeners == {("127.0.0.1", server.port)}


def test_the_data_is_closed_to_others_and_the_password_file_is_gone(server: Postgres) -> None:
    postgres.prepare(server)
    assert stat.S_IMODE(server.data_dir.stat().st_mode) == 0o700
    assert sorted(path.name for path in server.data_dir.parent.iterdir()) == ["data", "postgres.log"]


def test_data_survives_a_restart(server: Postgres) -> None:
    with running(server):
        throwaway.run(postgres.ensure_role(server))
        throwaway.run(postgres.ensure_database(server))
        throwaway.run(fetch(server.url(), "create table kept as select 42 as answer"))
    with running(server):
        assert throwaway.run(fetch(server.url(), "select answer from kept")) == 42


def test_making_role_and_database_again_changes_the_password_and_nothing_else(server: Postgres) -> None:
    changed = replace(server, role_password="other")
    with running(server):
        for _ in range(2):
            throwaway.run(postgres.ensure_role(changed))
            throwaway.run(postgres.ensure_database(changed))
        assert throwaway.run(fetch(changed.url(), "select 1")) == 1


def test_committed_data_survives_a_kill_of_every_process(server: Postgres) -> None:
    with running(server) as process:
        throwaway.run(postgres.ensure_role(server))
        throwaway.run(postgres.ensure_database(server))
        throwaway.run(fetch(server.url(), "create table kept as select 42 as answer"))
        child.kill_group(process.pid)
        process.wait(10)
    with running(server):
        assert throwaway.run(fetch(server.url(), "select answer from kept")) == 42


def test_a_server_that_a_killed_start_left_behind_is_ended_before_the_next(server: Postgres) -> None:
    with running(server) as left:
        moved = replace(server, port=free_port())
        postgres.prepare(moved)
        assert not left.is_running() or left.status() == psutil.STATUS_ZOMBIE
    with running(moved):
        pass


def test_a_stale_pid_file_with_a_number_used_again_does_not_stop_the_start(server: Postgres) -> None:
    postgres.prepare(server)
    pid_file = server.data_dir / "postmaster.pid"
    pid_file.write_text(f"{os.getppid()}\n")
    with running(server):
        pass
    assert psutil.pid_exists(os.getppid())


def test_a_killed_initdb_leaves_nothing_that_looks_like_a_cluster(server: Postgres) -> None:
    half = server.data_dir.with_name("data.new")
    half.mkdir()
    (half / "PG_VERSION").write_text("18\n")
    postgres.prepare(server)
    assert (server.data_dir / "global" / "pg_control").is_file()
    assert not half.exists()


def test_data_of_another_major_version_is_refused_with_both_versions(server: Postgres) -> None:
    postgres.prepare(server)
    (server.data_dir / "PG_VERSION").write_text("17\n")
    with pytest.raises(StackRefused, match=r"PostgreSQL 17.*18"):
        postgres.prepare(server)


def test_other_secrets_than_those_of_the_data_are_one_line(server: Postgres) -> None:
    with running(server), pytest.raises(StackRefused, match="belongs to other secrets"):
        throwaway.run(postgres.wait_ready(replace(server, superuser_password="other")))


def test_a_server_that_does_not_come_up_is_one_line_with_the_reason(server: Postgres) -> None:
    server.log_path.write_text("FATAL: no space\n")
    with pytest.raises(StackRefused, match=r"not become ready in 0 s: FATAL: no space"):
        throwaway.run(postgres.wait_ready(server, deadline_s=0.1))


async def test_a_stop_does_not_wait_for_open_sessions(server: Postgres) -> None:
    with running(server) as process:
        connection = await postgres.connect(server)
        process.send_signal(signal.SIGINT)
        assert await asyncio.to_thread(process.wait, 10) == 0
        with pytest.raises((asyncpg.PostgresConnectionError, asyncpg.InterfaceError, asyncpg.AdminShutdownError)):
            await connection.fetchval("select 1")
        connection.terminate()


@root_only
def test_root_runs_it_as_an_account_without_rights(server: Postgres) -> None:
    lent = account.unprivileged_account()
    assert lent is not None
    with running(server) as process:
        assert process.uids().real == lent.uid
        assert process.gids().real == lent.gid


@root_only
def test_below_a_closed_directory_root_runs_it_from_outside(
    server: Postgres, open_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(account, "OUTSIDE", open_directory / "outside")
    closed = open_directory / "closed"
    closed.mkdir(mode=0o700)
    hidden = replace(server, data_dir=closed / "data")
    for _ in range(2):
        with running(hidden) as process:
            assert process.uids().real != 0
    assert (closed / "data").is_symlink()


@root_only
def test_without_any_account_root_runs_it_in_a_user_namespace(
    server: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(account, "ACCOUNTS", ("nobody-of-this-name",))
    with running(server):
        assert server.data_dir.stat().st_uid == 0

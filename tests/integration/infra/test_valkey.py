"""The launcher of Valkey on real servers."""

import contextlib
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from redis import Redis
from redis.exceptions import AuthenticationError

from infra.local import child, valkey
from infra.local.errors import StackRefused
from infra.local.ports import free_port, is_free
from infra.local.valkey import Valkey
from tests import throwaway


@contextlib.contextmanager
def running(server: Valkey) -> Iterator[psutil.Process]:
    """The server, started as the stack starts it."""
    spec = valkey.prepare(server)
    process = child.start(spec)
    try:
        throwaway.run(valkey.wait_ready(server))
        yield psutil.Process(process.pid)
    finally:
        child.stop(process, spec)


@contextlib.contextmanager
def client(server: Valkey) -> Iterator[Redis]:
    with Redis.from_url(server.url) as connected:
        yield connected


@pytest.fixture
def server(tmp_path: Path) -> Valkey:
    """A server that was never started, in a directory with a space in its name."""
    return Valkey(tmp_path / "with space" / "data", free_port(), tmp_path / "valkey.log", "secret")


def test_it_is_valkey_9(server: Valkey) -> None:
    with running(server), client(server) as connected:
        assert connected.info("server")["valkey_version"].startswith("9.")


def test_without_the_password_nothing_is_answered(server: Valkey) -> None:
    with running(server), client(replace(server, password="wrong")) as stranger, pytest.raises(AuthenticationError):
        stranger.ping()


def test_the_password_is_no_argument_and_its_file_is_private(server: Valkey) -> None:
    with running(server) as process:
        assert "secret" not in " ".join(process.cmdline())
    assert stat.S_IMODE((server.data_dir / "valkey.conf").stat().st_mode) == 0o600


def test_it_listens_on_loopback_alone(server: Valkey) -> None:
    with running(server) as process:
        listeners = {c.laddr for c in process.net_connections() if c.status == psutil.CONN_LISTEN}
    assert listeners == {("127.0.0.1", server.port)}


def test_data_survives_a_restart(server: Valkey) -> None:
    with running(server), client(server) as connected:
        connected.set("kept", "42")
    with running(server), client(server) as connected:
        assert connected.get("kept") == b"42"


def test_data_survives_a_kill(server: Valkey) -> None:
    with running(server) as process, client(server) as connected:
        connected.set("kept", "42")
        process.send_signal(signal.SIGKILL)
        process.wait(5)
    with running(server), client(server) as connected:
        assert connected.get("kept") == b"42"


def test_it_refuses_writes_rather_than_forget_when_memory_is_short(server: Valkey) -> None:
    with running(server), client(server) as connected:
        assert connected.config_get("maxmemory-policy") == {"maxmemory-policy": "noeviction"}
        assert connected.config_get("appendfsync") == {"appendfsync": "everysec"}


def test_another_server_on_our_port_is_one_line(server: Valkey) -> None:
    with running(server), pytest.raises(StackRefused, match=f"port {server.port} is held by another Valkey"):
        throwaway.run(valkey.wait_ready(replace(server, password="other")))


def test_a_server_that_does_not_come_up_is_one_line(server: Valkey) -> None:
    with pytest.raises(StackRefused, match="Valkey did not become ready in 0 s: nothing was logged"):
        throwaway.run(valkey.wait_ready(server, deadline_s=0.1))


def test_tests_find_an_empty_server(valkey_url: str) -> None:
    with Redis.from_url(valkey_url) as connected:
        assert connected.dbsize() == 0


def test_a_throw_away_server_ends_with_the_process_that_asked_for_it() -> None:
    code = (
        "import os, signal, sys\nfrom tests import throwaway\n"
        "with throwaway.valkey_server() as server:\n"
        "    print(server.port, flush=True)\n    os.kill(os.getpid(), signal.SIGKILL)"
    )
    asker = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert asker.returncode == -signal.SIGKILL
    until_s = time.monotonic() + 5
    while not is_free(int(asker.stdout)):
        assert time.monotonic() < until_s, "it still listens"
        time.sleep(0.02)

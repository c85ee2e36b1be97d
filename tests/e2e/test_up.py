"""Starting, stopping and starting again: `meridian up` itself, with the smallest stack."""

import os
import shutil
import signal
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from infra.local.layout import Layout
from tests.e2e.stack import LocalStack, state_directory, until

pytestmark = [pytest.mark.stack, pytest.mark.slow]
MODEL = "sim/glm-5.3"
NOBODY = 65534


def is_open_to_all(program: Path) -> bool:
    """Whether every account may reach and run `program`."""
    return all(place.stat().st_mode & 0o001 for place in (program, *program.parents))


@pytest.fixture
def small() -> Iterator[LocalStack]:
    """One datacenter, one edge, one replica; not started."""
    with state_directory() as state:
        stack = LocalStack(state, datacenters=1, edges=1, replicas=1)
        yield stack
        stack.kill_all()


def ask(stack: LocalStack) -> int:
    facts = stack.facts
    answer = httpx.post(f"{facts['edge_url']}/chat/completions", timeout=20.0, trust_env=False,
                        headers={"authorization": f"Bearer {facts['api_key']}"},
                        json={"model": MODEL, "max_tokens": 2, "messages": [{"role": "user", "content": "hello"}]})
    return answer.status_code


def test_a_second_start_finds_the_state_of_the_first(small: LocalStack) -> None:
    small.start()
    first = small.facts
    assert ask(small) == 200
    until(lambda: small.json("usage")["total"]["requests"] >= 1, 10, "a record")
    recorded = small.json("usage")["total"]["requests"]
    assert small.stop() == 0
    assert small.processes() == []

    small.start()
    assert small.facts["api_key"] == first["api_key"]
    assert ask(small) == 200
    assert small.json("usage")["total"]["requests"] >= recorded
    assert len(small.operator("/operator/v1/teams")["data"]) == 1
    assert small.stop(signal.SIGTERM) == 0
    assert small.processes() == []


def test_a_start_after_sigkill_takes_over_what_was_left(small: LocalStack) -> None:
    small.start()
    small.stop(signal.SIGKILL)
    left = {process.pid for process in small.processes()}
    assert left
    small.start()
    assert ask(small) == 200
    assert small.stop() == 0
    assert small.processes() == []


def test_a_start_heals_after_the_database_was_lost(small: LocalStack) -> None:
    small.start()
    assert small.stop() == 0
    shutil.rmtree(Layout(small.state).postgres_data)

    small.start()
    small.settle()
    assert ask(small) == 200
    status = small.operator("/operator/v1/status")
    assert [(edge["live"], edge["behind"], edge["nack"]) for edge in status["edges"]] == [(True, 0, None)]
    assert [fleet["lease_live"] for place in status["datacenters"] for fleet in place["fleets"]] == [True]
    until(lambda: small.json("usage")["total"]["requests"] >= 1, 10, "a record")
    assert small.stop() == 0
    assert small.processes() == []


def test_a_second_stack_on_the_same_state_is_refused_in_one_line(small: LocalStack) -> None:
    small.start()
    done = small.meridian("up", "--port-base", str(small.port_base + 1000))
    assert done.returncode == 1
    assert "already runs" in done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    assert ask(small) == 200
    assert small.stop() == 0


def test_a_taken_port_is_named_and_nothing_stays(small: LocalStack) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", small.port_base))
        taken.listen()
        done = small.meridian("up", "--port-base", str(small.port_base), "--datacenters", "1")
    assert done.returncode == 1
    assert str(small.port_base) in done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    assert small.processes() == []


@pytest.mark.skipif(os.geteuid() != 0, reason="this whole run is a plain user's already")
@pytest.mark.skipif(not is_open_to_all(Path(sys.executable).resolve()), reason="only root may run this Python")
def test_a_plain_user_can_run_it_too() -> None:
    with state_directory() as state:
        os.chown(state.parent, NOBODY, NOBODY)
        stack = LocalStack(state, datacenters=1, edges=1, replicas=1, user=NOBODY)
        try:
            stack.start()
            assert ask(stack) == 200
            assert {process.uids().effective for process in stack.processes()} == {NOBODY}
            assert stack.stop() == 0
            assert stack.processes() == []
        finally:
            stack.kill_all()

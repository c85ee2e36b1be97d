"""Every runbook once, from its first command to its last, on a stack in the situation that it is for."""

import contextlib
import json
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import psutil
import pytest

from tests.chaos.victims import kind_of
from tests.e2e.runbooks import commands, filled, missing, pages, run
from tests.e2e.stack import LocalStack, until, words_of

pytestmark = [pytest.mark.stack, pytest.mark.slow, pytest.mark.timeout(600)]

Situation = Callable[[LocalStack], contextlib.AbstractContextManager[None]]


def words(stack: LocalStack) -> dict[str, str]:
    """What the words in capitals are on this stack; an operation is the newest."""
    facts = stack.facts
    first, second = facts["datacenters"][:2]
    operations = newest_operation(stack)
    return {
        "DATACENTER": first["id"], "OTHER": second["id"], "MODEL": facts["model"], "TEAM": facts["team"],
        "FLEET": f"{first['id']}-a", "EDGE_URL": facts["edge_url"].removesuffix("/v1"),
        "CONTROL_PLANE_URL": facts["control_plane_url"], "STATE": str(stack.state),
        **({"OPERATION": operations} if operations else {})}


def back_in_service(stack: LocalStack) -> None:
    """What a page left drained takes traffic again."""
    until(lambda: stack.meridian("status").returncode == 0, 60, "a control plane")
    for place in stack.operator("/operator/v1/status")["datacenters"]:
        if place["traffic_state"] != "active":
            stack.meridian("restore", place["id"], "--reason", "the page is over", "--wait", "--force", "-y")
    stack.settle()
    until(lambda: all(lease_is_live(stack, place["id"]) for place in stack.facts["datacenters"]), 60, "live leases")


def newest_operation(stack: LocalStack) -> str:
    """Its id; empty while the control plane is away or nothing was ever ordered."""
    with contextlib.suppress(ConnectionError, httpx.HTTPError):
        found = stack.operator("/operator/v1/operations", limit=1)["data"]
        return str(found[0]["id"]) if found else ""
    return ""


@contextlib.contextmanager
def well(stack: LocalStack) -> Iterator[None]:
    """Nothing is wrong."""
    yield


@contextlib.contextmanager
def drained(stack: LocalStack) -> Iterator[None]:
    """The first datacenter is drained."""
    done = stack.meridian("drain", stack.facts["datacenters"][0]["id"], "--reason", "test", "--wait", "-y")
    assert done.returncode == 0, done.stderr
    yield


@contextlib.contextmanager
def under_way(stack: LocalStack) -> Iterator[None]:
    """A drain is under way, and takes as long as a request that is open there."""
    done = stack.meridian("drain", stack.facts["datacenters"][0]["id"], "--reason", "test", "-y")
    assert done.returncode == 0, done.stderr
    yield


@contextlib.contextmanager
def nothing_above(stack: LocalStack) -> Iterator[None]:
    """Control plane, worker, Postgres and Valkey are gone, and nobody starts them again."""
    assert stack.meridian("status").returncode == 0  # what an operator saw last is what the command line remembers
    supervisor = psutil.Process(stack.facts["pids"]["up"])
    supervisor.suspend()
    try:
        for kind in ("control plane", "celery worker", "postgres", "valkey"):
            for process in of_kind(stack, kind):
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
        yield
    finally:
        supervisor.resume()


@contextlib.contextmanager
def older_copy(stack: LocalStack) -> Iterator[None]:
    """Postgres holds a copy of itself from before a change that edges know of."""
    data, copy = stack.state / "postgres" / "data", stack.state / "postgres" / "copy"
    with without_postgres(stack):
        shutil.copytree(data, copy, symlinks=True)
        keep_owners(data, copy)
    for _ in range(3):
        with_other_weight(stack)
    stack.settle()
    with without_postgres(stack):
        shutil.rmtree(data)
        copy.rename(data)
    until(lambda: len(ahead(stack)) >= len(stack.facts["edge_urls"]), 60, "edges that are ahead of their database")
    yield


@contextlib.contextmanager
def without_postgres(stack: LocalStack) -> Iterator[None]:
    """Nobody runs it, and nobody starts it again."""
    supervisor = psutil.Process(stack.facts["pids"]["up"])
    supervisor.suspend()
    try:
        found = of_kind(stack, "postgres")
        assert found
        for process in found:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(found, timeout=10)
        yield
    finally:
        supervisor.resume()


def ahead(stack: LocalStack) -> list[object]:
    """Who has seen more than the database holds."""
    with contextlib.suppress(ConnectionError, httpx.HTTPError):
        return list(stack.operator("/operator/v1/recovery")["ahead"])
    return []


def keep_owners(data: Path, copy: Path) -> None:
    """Postgres runs as another account when this is root."""
    for place in (data, *data.rglob("*")):
        owner = place.lstat()
        os.chown(copy / place.relative_to(data), owner.st_uid, owner.st_gid, follow_symlinks=False)


def with_other_weight(stack: LocalStack) -> None:
    """A new snapshot, which every edge takes."""
    until(lambda: stack.meridian("status").returncode == 0, 60, "a control plane")
    wanted = stack.json("topology", "show")
    place = wanted["datacenters"][0]
    place["weight"] = 99 if place["weight"] == 100 else 100
    file = stack.state / "topology.json"
    file.write_text(json.dumps(wanted))
    done = stack.meridian("topology", "apply", "--file", str(file))
    assert done.returncode == 0, done.stderr


@contextlib.contextmanager
def without_valkey(stack: LocalStack) -> Iterator[None]:
    """Valkey stands still for as long as this lasts."""
    with stopped(stack, of_kind(stack, "valkey")):
        yield


@contextlib.contextmanager
def silent_agent(stack: LocalStack) -> Iterator[None]:
    """The first datacenter's agent stands still until its lease has lapsed and longer."""
    place = stack.facts["datacenters"][0]["id"]
    with stopped(stack, [one for one in of_kind(stack, "agent") if f"/datacenters/{place}/" in words_of(one)]):
        until(lambda: not lease_is_live(stack, place), 60, "a lapsed lease")
        yield


@contextlib.contextmanager
def stopped(stack: LocalStack, found: list[psutil.Process]) -> Iterator[None]:
    """These processes get SIGSTOP, and whoever would take them for dead, too."""
    victims = [psutil.Process(stack.facts["pids"]["up"]), *found]
    assert found
    for process in victims:
        process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        for process in reversed(victims):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGCONT)


def of_kind(stack: LocalStack, kind: str) -> list[psutil.Process]:
    """The stack's processes of one kind."""
    found = []
    for process in stack.processes():
        with contextlib.suppress(psutil.Error):
            if kind_of(process.cmdline()) == kind:
                found.append(process)
    return found


def lease_is_live(stack: LocalStack, place: str) -> bool:
    """Whether the datacenter's agent holds its lease."""
    with contextlib.suppress(ConnectionError, httpx.HTTPError):
        [datacenter] = [one for one in stack.operator("/operator/v1/status")["datacenters"] if one["id"] == place]
        return bool(datacenter["fleets"][0]["lease_live"])
    return False


SITUATIONS: dict[str, Situation] = {
    "restore-a-datacenter": drained, "operation-stuck": under_way, "control-plane-down": nothing_above,
    "restore-postgres": older_copy, "valkey-lost": without_valkey, "agent-silent": silent_agent}


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.stem))
def test_a_runbook_does_what_it_says(stack: LocalStack, page: Path) -> None:
    faults = []
    with SITUATIONS.get(page.stem, well)(stack):
        values = words(stack)
        for typed in commands(page.read_text()):
            if "OPERATION" in typed.command:
                values = words(stack)
            began_s = time.monotonic()
            done = run(filled(typed.command, values), stack.state)
            said = done.stdout + done.stderr
            if os.environ.get("MERIDIAN_SHOW_RUNBOOKS"):
                print(f"$ {typed.command}   [{done.returncode}, {time.monotonic() - began_s:.1f} s]\n{said}")  # noqa: T201
            gap = missing(said, [filled(line, values) for line in typed.said])
            if done.returncode != typed.code or gap:
                faults.append(f"$ {filled(typed.command, values)}\nexit {done.returncode}, {typed.code} was told; "
                              f"missing: {gap!r}\n{said}")
    back_in_service(stack)
    assert faults == [], "\n".join(faults)

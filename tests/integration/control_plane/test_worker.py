"""The worker as a process: it does what the outbox asks for, shows that it lives, and stops when told."""

import asyncio
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator
from datetime import datetime
from pathlib import Path

import httpx
import pytest

from control_plane.db import Database
from control_plane.reconcile import repository as outbox
from control_plane.reconcile.outbox import LazyPublisher, Relay
from control_plane.usage.service import ROLLUP_TOPIC
from control_plane.worker import SCHEDULE_FILE
from infra.local.ports import free_port

HOUR = "2026-11-30T10:00:00+00:00"
RECORD = """
    INSERT INTO usage_record (
        day, id, edge_id, team_id, key_id, model_id, datacenter_id, price_version, outcome, meter, streamed,
        http_status, prompt_tokens, cached_tokens, completion_tokens, reasoning_tokens, cost_usd, attempts,
        opened_at, duration_ms, finish_reason, body_sha)
    SELECT '2026-11-30', (lpad(to_hex(ms), 12, '0') || '70008000000000000000')::uuid, 'e', 't', 'k', 'm', 'd', 'pv',
        'completed', 'engine', true, 200, 7, 0, 3, 0, 0.5, '[]', now(), 1, 'stop', ''
    FROM (SELECT (extract(epoch FROM $1::timestamptz) * 1000)::bigint + 5 AS ms)"""


@pytest.fixture
async def db(database_url: str) -> AsyncIterator[Database]:
    database = Database(database_url)
    yield database
    await database.aclose()


async def rollups(db: Database) -> list[tuple[str, int, int]]:
    async with db.engine.connect() as connection:
        return [(team, requests, tokens) for team, requests, tokens in await connection.exec_driver_sql(
            "SELECT team_id, requests, prompt_tokens FROM usage_rollup_hourly")]


@pytest.mark.parametrize("has_state", [True, False])
async def test_the_beat_writes_to_the_workers_state_directory_and_never_to_the_current_one(
        database_url: str, valkey_url: str, tmp_path: Path, has_state: bool) -> None:
    here, state, heartbeat, log = (tmp_path / name for name in ("here", "state", "heartbeat", "log"))
    here.mkdir()
    environment = os.environ | {
        "MERIDIAN_DATABASE_URL": database_url, "MERIDIAN_REDIS_URL": valkey_url,
        "MERIDIAN_SIGNING_KEY_FILE": str(tmp_path / "key"), "MERIDIAN_HEARTBEAT_FILE": str(heartbeat),
        "MERIDIAN_WORKER_PORT": "0"}
    if has_state:
        environment |= {"MERIDIAN_STATE_DIR": str(state)}
    with log.open("wb") as sink:
        worker = await asyncio.create_subprocess_exec(
            sys.executable, "-c", "from control_plane.worker import serve; serve()", env=environment, cwd=here,
            stdout=sink, stderr=sink)
    try:
        async with asyncio.timeout(60):
            while not heartbeat.exists() or (has_state and not list(state.glob(f"{SCHEDULE_FILE}*"))):
                assert worker.returncode is None, log.read_text()
                await asyncio.sleep(0.1)
            await asyncio.sleep(1.0)
    finally:
        worker.send_signal(signal.SIGTERM)
        async with asyncio.timeout(30):
            assert await worker.wait() == 0
    assert list(here.iterdir()) == []
    assert state.exists() is has_state


async def test_what_the_outbox_asks_for_is_done_by_the_worker(
        db: Database, database_url: str, valkey_url: str, tmp_path: Path) -> None:
    heartbeat, log = tmp_path / "heartbeat", tmp_path / "log"
    environment = os.environ | {
        "MERIDIAN_DATABASE_URL": database_url, "MERIDIAN_REDIS_URL": valkey_url,
        "MERIDIAN_SIGNING_KEY_FILE": str(tmp_path / "key"), "MERIDIAN_HEARTBEAT_FILE": str(heartbeat),
        "MERIDIAN_WORKER_PORT": "0"}
    async with db.engine.begin() as connection:
        await connection.exec_driver_sql(RECORD, (datetime.fromisoformat(HOUR),))
    async with db.begin() as session:
        await outbox.put(session, ROLLUP_TOPIC, HOUR, {"hour": HOUR})
    await Relay(db, LazyPublisher(valkey_url)).once()
    with log.open("wb") as sink:
        worker = await asyncio.create_subprocess_exec(
            sys.executable, "-c", "from control_plane.worker import serve; serve()", env=environment, cwd=tmp_path,
            stdout=sink, stderr=sink)
    try:
        async with asyncio.timeout(60):
            while not (await rollups(db) and heartbeat.exists()):
                assert worker.returncode is None, log.read_text()
                await asyncio.sleep(0.1)
        assert await rollups(db) == [("t", 1, 7)]
    finally:
        worker.send_signal(signal.SIGTERM)
        async with asyncio.timeout(30):
            assert await worker.wait() == 0
    assert "Traceback" not in log.read_text()


async def test_the_worker_answers_for_its_health_and_counts_its_tasks(
        database_url: str, valkey_url: str, tmp_path: Path) -> None:
    heartbeat, log, port = tmp_path / "heartbeat", tmp_path / "log", free_port()
    environment = os.environ | {
        "MERIDIAN_DATABASE_URL": database_url, "MERIDIAN_REDIS_URL": valkey_url,
        "MERIDIAN_SIGNING_KEY_FILE": str(tmp_path / "key"), "MERIDIAN_HEARTBEAT_FILE": str(heartbeat),
        "MERIDIAN_WORKER_PORT": str(port)}
    with log.open("wb") as sink:
        worker = await asyncio.create_subprocess_exec(
            sys.executable, "-c", "from control_plane.worker import serve; serve()", env=environment, cwd=tmp_path,
            stdout=sink, stderr=sink)
    try:
        async with asyncio.timeout(60), httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", trust_env=False) as http:
            while not heartbeat.exists():
                assert worker.returncode is None, log.read_text()
                await asyncio.sleep(0.1)
            assert [(await http.get(path)).status_code for path in ("/healthz", "/readyz", "/else")] == [200, 200, 404]
            counted = 'meridian_worker_tasks_total{result="done",task="worker.heartbeat"}'
            while counted not in (await http.get("/metrics")).text:
                assert worker.returncode is None, log.read_text()
                await asyncio.sleep(0.5)
    finally:
        worker.send_signal(signal.SIGTERM)
        async with asyncio.timeout(30):
            assert await worker.wait() == 0


async def test_a_worker_whose_port_is_taken_says_so_in_one_line(
        database_url: str, valkey_url: str, tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        worker = await asyncio.create_subprocess_exec(
            sys.executable, "-c", "from control_plane.worker import serve; serve()", stderr=asyncio.subprocess.PIPE,
            env=os.environ | {
                "MERIDIAN_DATABASE_URL": database_url, "MERIDIAN_REDIS_URL": valkey_url,
                "MERIDIAN_SIGNING_KEY_FILE": str(tmp_path / "key"), "MERIDIAN_WORKER_PORT": str(port)})
        async with asyncio.timeout(30):
            _, said = await worker.communicate()
    assert worker.returncode == 1
    assert f"cannot listen on 127.0.0.1:{port}" in said.decode().splitlines()[-1]

"""What happens around every request: size limit, deadline, access log."""

import asyncio
from collections.abc import AsyncIterator

import httpx
import pytest
import structlog
from fastapi import FastAPI, Request
from prometheus_client import REGISTRY

from control_plane.contracts.clock import ManualClock
from control_plane.middleware import AccessLog, Limits


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    app = FastAPI()
    clock = ManualClock()
    app.add_middleware(Limits, max_body_bytes=1_000, deadline_s=0.2)
    app.add_middleware(AccessLog, clock=clock)

    @app.post("/size")
    async def size(request: Request) -> int:
        return len(await request.body())

    @app.get("/slow/{name}")
    async def slow(name: str) -> None:
        clock.advance(3)
        await asyncio.sleep(30)

    @app.get("/healthz")
    async def healthz() -> str:
        return "ok"

    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://here") as started:
        yield started


async def in_parts(count: int) -> AsyncIterator[bytes]:
    for _ in range(count):
        yield b"x" * 100


async def test_a_body_within_the_limit_passes(client: httpx.AsyncClient) -> None:
    assert (await client.post("/size", content=b"x" * 1_000)).json() == 1_000


async def test_a_body_that_says_it_is_too_large_is_refused(client: httpx.AsyncClient) -> None:
    answer = await client.post("/size", content=b"x" * 1_001)
    assert (answer.status_code, answer.json()["code"]) == (413, "too_large")


async def test_a_body_that_turns_out_too_large_is_refused(client: httpx.AsyncClient) -> None:
    answer = await client.post("/size", content=in_parts(11))
    assert (answer.status_code, answer.json()["code"]) == (413, "too_large")


async def test_a_body_in_parts_within_the_limit_passes(client: httpx.AsyncClient) -> None:
    assert (await client.post("/size", content=in_parts(10))).json() == 1_000


async def test_a_request_over_its_deadline_is_ended(client: httpx.AsyncClient) -> None:
    answer = await client.get("/slow/x")
    assert (answer.status_code, answer.json()["code"]) == (503, "deadline")


async def test_the_access_log_names_route_status_and_duration_and_nothing_that_was_sent(
        client: httpx.AsyncClient) -> None:
    with structlog.testing.capture_logs() as lines:
        await client.get("/slow/s3cret?token=s3cret", headers={"authorization": "Bearer s3cret"})
    (line,) = [line for line in lines if line["event"] == "request"]
    assert (line["route"], line["status"], line["duration_ms"]) == ("/slow/{name}", 503, 3_000.0)
    assert "s3cret" not in str(lines)


async def test_probes_are_not_logged(client: httpx.AsyncClient) -> None:
    with structlog.testing.capture_logs() as lines:
        await client.get("/healthz")
    assert lines == []


async def test_requests_are_counted_by_route_and_status(client: httpx.AsyncClient) -> None:
    labels = {"route": "/size", "method": "POST", "status": "413"}
    before = REGISTRY.get_sample_value("meridian_control_plane_requests_total", labels) or 0
    await client.post("/size", content=b"x" * 1_001)
    await client.post("/size", content=in_parts(11))
    counted = (REGISTRY.get_sample_value("meridian_control_plane_requests_total", labels) or 0) - before
    assert counted == 1  # the one that is refused by its length never reaches a route

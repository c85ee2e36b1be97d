"""When a part, a datacenter and an edge may be called ready. Probes never raise for what is merely not there yet."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import httpx

from control_plane.contracts.agent_sync import DeploymentPhase
from control_plane.contracts.operator import DeploymentStatus, StatusView
from infra.local.errors import StackRefused
from infra.local.provision import OperatorApi
from infra.local.shape import MODEL

PROBE_DEADLINE_S = 2.0
REQUEST_DEADLINE_S = 20.0
FIRST_REQUEST_DEADLINE_S = 60.0
CLUSTER_DEADLINE_S = 180.0
PAUSE_S = 0.2

Probe = Callable[[], Awaitable[bool]]
Server = TypeVar("Server")


def answers(client: httpx.AsyncClient, url: str) -> Probe:
    """Ready once the URL answers 2xx."""

    async def probe() -> bool:
        try:
            return (await client.get(url, timeout=PROBE_DEADLINE_S)).is_success
        except httpx.TransportError:
            return False

    return probe


def exists(path: Path) -> Probe:
    """Ready once the file is there."""

    async def probe() -> bool:
        return await asyncio.to_thread(path.exists)

    return probe


def connects(wait_ready: Callable[[Server], Awaitable[None]], server: Server) -> Probe:
    """Ready once a server's own wait is over."""

    async def probe() -> bool:
        await wait_ready(server)
        return True

    return probe


async def first_request(client: httpx.AsyncClient, edge_url: str, api_key: str) -> None:
    """Returns once a small chat completion came through the edge. Raises StackRefused at the deadline."""
    body = {"model": MODEL, "max_tokens": 1, "messages": [{"role": "user", "content": "hello"}]}
    headers = {"authorization": f"Bearer {api_key}"}
    until_s, fault = _now_s() + FIRST_REQUEST_DEADLINE_S, ""
    while _now_s() < until_s:
        try:
            answer = await client.post(
                f"{edge_url}/v1/chat/completions", json=body, headers=headers, timeout=REQUEST_DEADLINE_S)
        except httpx.TransportError as error:
            fault = type(error).__name__
        else:
            if answer.is_success:
                return
            fault = f"HTTP {answer.status_code}: {answer.text[:200]}"
        await asyncio.sleep(PAUSE_S)
    raise StackRefused(f"no chat completion came through {edge_url} in {FIRST_REQUEST_DEADLINE_S:.0f} s ({fault})")


async def deployment_ready(api: OperatorApi, deployment_id: str) -> None:
    """Returns once the control plane sees the deployment ready. Raises StackRefused at the deadline."""
    until_s, seen = _now_s() + CLUSTER_DEADLINE_S, "it was never observed"
    while _now_s() < until_s:
        status = find(await api.status(), deployment_id)
        if status is not None:
            if status.phase is DeploymentPhase.READY and status.observed_generation == status.generation:
                return
            seen = f"it is {status.phase}{', ' if status.message else ''}{status.message}"
        await asyncio.sleep(PAUSE_S)
    raise StackRefused(f"deployment {deployment_id} is not ready after {CLUSTER_DEADLINE_S:.0f} s: {seen}")


def find(view: StatusView, deployment_id: str) -> DeploymentStatus | None:
    """A deployment in the status."""
    for datacenter in view.datacenters:
        for deployment in datacenter.deployments:
            if deployment.id == deployment_id:
                return deployment
    return None


def _now_s() -> float:
    return asyncio.get_running_loop().time()

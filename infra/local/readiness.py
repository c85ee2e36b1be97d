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
from infra.local.shape import MODEL, deployment_id, fleet_id

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


async def datacenter_ready(api: OperatorApi, lists_model: Probe, datacenter: str, epoch_before: int) -> None:
    """Returns once the frontend lists the model and the agent that was started now reports its deployment ready.

    What the control plane knows outlives a stop, so only the word of a newer lease than `epoch_before` counts.

    Raises:
        StackRefused: not within the deadline.
    """
    until_s = _now_s() + CLUSTER_DEADLINE_S
    while _now_s() < until_s:
        if await lists_model() and not unready(await api.status(), datacenter, epoch_before):
            return
        await asyncio.sleep(PAUSE_S)
    fault = unready(await api.status(), datacenter, epoch_before) or "its frontend does not list the model"
    raise StackRefused(f"datacenter {datacenter} is not ready after {CLUSTER_DEADLINE_S:.0f} s: {fault}")


def lists_model(client: httpx.AsyncClient, ingress_url: str) -> Probe:
    """Ready once a datacenter's frontend names the model: before that it has no worker."""

    async def probe() -> bool:
        try:
            answer = await client.get(f"{ingress_url}/v1/models", timeout=PROBE_DEADLINE_S)
        except httpx.TransportError:
            return False
        return answer.is_success and MODEL in answer.text

    return probe


def unready(view: StatusView, datacenter: str, epoch_before: int) -> str:
    """Why a datacenter is not ready yet, in words; empty when it is."""
    epoch = lease_epoch(view, datacenter)
    if epoch <= epoch_before:
        return "its agent has not reported yet"
    for place in view.datacenters:
        for deployment in place.deployments:
            if deployment.id == deployment_id(datacenter):
                return _unready(deployment)
    return "its deployment is unknown to the control plane"


def lease_epoch(view: StatusView, datacenter: str) -> int:
    """The epoch of the lease that the datacenter's agent holds or held; 0 when there was none."""
    for place in view.datacenters:
        for fleet in place.fleets:
            if fleet.id == fleet_id(datacenter):
                return fleet.epoch or 0
    return 0


def _unready(deployment: DeploymentStatus) -> str:
    if deployment.phase is DeploymentPhase.READY and deployment.observed_generation == deployment.generation:
        return ""
    return f"its deployment is {deployment.phase}{', ' if deployment.message else ''}{deployment.message}"


def _now_s() -> float:
    return asyncio.get_running_loop().time()

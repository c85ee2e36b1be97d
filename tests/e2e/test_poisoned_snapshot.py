"""A poisoned snapshot, signed by the control plane's own key: every edge refuses it and serves on, operators are told,
and the next good one is taken."""

import asyncio
import hashlib
import json
from typing import Any

import asyncpg
import httpx
import pytest
from openai import AsyncOpenAI

from control_plane.contracts.signing import SigningKey
from control_plane.contracts.snapshot import SignedSnapshot, Snapshot
from control_plane.db import WAKEUP_CHANNEL
from control_plane.routing.publisher import CHANNEL
from infra.local.layout import Layout
from tests.e2e.stack import LocalStack, until

pytestmark = pytest.mark.stack
REFUSED = "meridian_routing_snapshots_refused_total"


async def poison(stack: LocalStack) -> int:
    """Puts a snapshot in which a model is routed nowhere in the place of the newest one; its version."""
    connection = await asyncpg.connect(stack.facts["database_url"].replace("+asyncpg", ""), timeout=10)
    try:
        async with connection.transaction():
            lineage, version = await connection.fetchrow("SELECT lineage, version FROM routing_head FOR UPDATE")
            body = await connection.fetchval(
                "SELECT body FROM routing_snapshot WHERE lineage = $1 AND version = $2", lineage, version)
            sealed = SignedSnapshot.seal(poisoned(json.loads(body), version + 1), signing_key(stack))
            await connection.execute(
                "INSERT INTO routing_snapshot (lineage, version, body, signature, key_id, content_digest, cause, "
                "built_at) VALUES ($1, $2, $3, $4, $5, $6, 'test', now())", lineage, version + 1, sealed.body,
                sealed.signature, sealed.key_id, hashlib.sha256(sealed.body.encode()).hexdigest())
            await connection.execute("UPDATE routing_head SET version = $1", version + 1)
            await connection.execute("SELECT pg_notify($1, $2)", WAKEUP_CHANNEL, CHANNEL)
        return int(version) + 1
    finally:
        await connection.close()


def poisoned(body: dict[str, Any], version: int) -> Snapshot:
    snapshot = Snapshot.model_validate(body | {"version": version})
    nowhere = snapshot.models[0].routes[0].model_copy(update={"datacenter_id": "atlantis"})
    return snapshot.model_copy(update={"models": [snapshot.models[0].model_copy(update={"routes": [nowhere]})]})


def signing_key(stack: LocalStack) -> SigningKey:
    return SigningKey.load_or_create(Layout(stack.state).signing_key)


def edges(stack: LocalStack) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = [edge for edge in stack.operator("/operator/v1/status")["edges"] if edge["live"]]
    return found


async def test_every_edge_refuses_it_serves_on_and_takes_the_next(stack: LocalStack, client: AsyncOpenAI) -> None:
    await asyncio.to_thread(stack.settle)
    before = sum(stack.gauge(url, REFUSED) for url in stack.facts["control_plane_urls"])
    version = await poison(stack)
    refusing = await asyncio.to_thread(
        until, lambda: (told := edges(stack)) and all(edge["nack"] for edge in told) and told, 15,
        "every edge's refusal")
    assert {edge["acked_version"] for edge in refusing} == {version - 1}
    assert {edge["nack"] for edge in refusing} == {"model sim/glm-5.3 is routed to an unknown datacenter atlantis"}
    assert "refuses" in (await asyncio.to_thread(stack.meridian, "status")).stdout
    assert sum(stack.gauge(url, REFUSED) for url in stack.facts["control_plane_urls"]) >= before + len(refusing)
    for url in stack.facts["edge_urls"]:
        answer = await client.with_options(base_url=url).chat.completions.create(
            model="sim/glm-5.3", messages=[{"role": "user", "content": "hi"}], max_tokens=2)
        assert answer.usage is not None
    await reweigh(stack, 101)
    await asyncio.to_thread(stack.settle)
    assert all(edge["acked_version"] > version and edge["nack"] is None for edge in edges(stack))
    await reweigh(stack, 100)


async def reweigh(stack: LocalStack, weight: int) -> None:
    """Declares another weight for a datacenter: any change makes a new snapshot."""
    headers = {"authorization": f"Bearer {stack.facts['operator_token']}"}
    async with httpx.AsyncClient(base_url=stack.facts["control_plane_urls"][0], headers=headers) as operator:
        document = (await operator.get("/operator/v1/topology")).json()
        document["datacenters"][0]["weight"] = weight
        (await operator.put("/operator/v1/topology", json=document)).raise_for_status()

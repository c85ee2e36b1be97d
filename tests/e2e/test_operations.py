"""What an operator does while clients are served."""

import asyncio
import json
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

import pytest
from openai import AsyncOpenAI, AuthenticationError

from tests.e2e.stack import LocalStack, until

pytestmark = pytest.mark.stack
MODEL = "sim/glm-5.3"


@dataclass
class Load:
    """Streams and short requests, and what went wrong with them."""

    client: AsyncOpenAI
    errors: list[str] = field(default_factory=list)
    answers: int = 0
    _asked: int = 0

    def _question(self) -> list[dict[str, str]]:
        """Never the same twice: equal beginnings share a session, and all of a session go to one datacenter."""
        self._asked += 1
        return [{"role": "user", "content": f"question {self._asked}"}]

    async def stream(self, tokens: int) -> None:
        try:
            stream = await self.client.chat.completions.create(
                model=MODEL, messages=self._question(), max_tokens=tokens, stream=True)
            words = "".join([event.choices[0].delta.content or "" async for event in stream]).split()
        except Exception as error:  # every kind of failure is what this test looks for
            self.errors.append(repr(error))
            return
        self.answers += 1
        if len(words) != tokens:
            self.errors.append(f"{len(words)} of {tokens} words")

    async def short(self) -> None:
        try:
            await self.client.chat.completions.create(
                model=MODEL, messages=self._question(), max_tokens=2)
        except Exception as error:  # every kind of failure is what this test looks for
            self.errors.append(repr(error))
            return
        self.answers += 1


async def restore(stack: LocalStack, datacenter: str) -> None:
    done = await asyncio.to_thread(stack.meridian, "restore", datacenter, "--reason", "test over", "--wait", "-y")
    assert done.returncode == 0, done.stdout + done.stderr


async def test_a_drain_under_load_shows_clients_nothing(stack: LocalStack, client: AsyncOpenAI) -> None:
    load, before = Load(client), stack.json("usage")["total"]["requests"]
    streams = [asyncio.create_task(load.stream(400)) for _ in range(20)]
    await asyncio.sleep(0.5)
    drain = asyncio.create_task(asyncio.to_thread(
        stack.meridian, "drain", "us-east-1", "--reason", "test", "--wait", "-y", "-o", "json"))
    shorts = []
    while not drain.done() and len(shorts) < 1200:
        shorts.append(asyncio.create_task(load.short()))
        await asyncio.sleep(0.05)
    done = await drain
    await asyncio.gather(*streams, *shorts)
    assert done.returncode == 0, done.stdout + done.stderr
    assert load.errors == []
    assert load.answers == 20 + len(shorts)
    until(lambda: stack.json("usage")["total"]["requests"] == before + load.answers, 10, "a record for each request")

    served_there = stack.gauge(stack.facts["datacenters"][0]["ingress_url"], "dynamo_frontend_requests_total")
    for _ in range(20):
        await load.short()
    assert load.errors == []
    ingress = stack.facts["datacenters"][0]["ingress_url"]
    assert stack.gauge(ingress, "dynamo_frontend_requests_total") == served_there
    await restore(stack, "us-east-1")


async def test_the_last_datacenter_is_not_drained(stack: LocalStack, client: AsyncOpenAI) -> None:
    done = await asyncio.to_thread(stack.meridian, "drain", "us-east-1", "--reason", "test", "--wait", "-y")
    assert done.returncode == 0, done.stdout + done.stderr
    second = ("drain", "eu-north-1", "--reason", "test", "--wait", "-y")
    refused = await asyncio.to_thread(stack.meridian, *second)
    assert refused.returncode == 3, refused.stdout + refused.stderr
    assert "away_at_once" in refused.stdout + refused.stderr
    done = await asyncio.to_thread(stack.meridian, *second, "--force")
    assert done.returncode == 0, done.stdout + done.stderr
    refused = await asyncio.to_thread(
        stack.meridian, "drain", "ap-south-1", "--reason", "test", "--wait", "-y", "-o", "json")
    assert refused.returncode == 3, refused.stdout + refused.stderr
    assert "last_datacenter" in refused.stdout + refused.stderr
    load = Load(client)
    await load.short()
    assert load.errors == []
    for datacenter in ("us-east-1", "eu-north-1"):
        await restore(stack, datacenter)


async def test_a_drain_goes_on_when_the_replica_at_work_is_killed(stack: LocalStack, client: AsyncOpenAI) -> None:
    load = Load(client)
    streams = [asyncio.create_task(load.stream(600)) for _ in range(6)]
    await asyncio.sleep(0.5)
    drain = asyncio.create_task(asyncio.to_thread(
        stack.meridian, "drain", "us-east-1", "--reason", "test", "--wait", "-y", "-o", "json"))
    await asyncio.sleep(1.0)
    stack.kill("control-plane", "MERIDIAN_PORT=" + stack.facts["control_plane_urls"][0].rsplit(":", 1)[1])
    await asyncio.gather(*streams)
    await drain
    assert load.errors == []

    def state() -> bool:
        newest = stack.operator("/operator/v1/operations", limit=1)["data"][0]
        return bool((newest["kind"], newest["datacenter"], newest["state"]) == ("drain", "us-east-1", "succeeded"))

    await asyncio.to_thread(until, state, 60, "the drain's success")
    await restore(stack, "us-east-1")


def test_a_dry_run_changes_nothing(stack: LocalStack) -> None:
    version = stack.operator("/operator/v1/status")["snapshot_version"]
    done = stack.meridian("drain", "us-east-1", "--reason", "test", "--dry-run", "-o", "json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["operation"] is None
    assert stack.operator("/operator/v1/status")["snapshot_version"] == version


async def test_a_revoked_key_is_refused_by_every_edge_within_five_seconds(stack: LocalStack) -> None:
    created = stack.json("keys", "create", stack.facts["team"], "--name", "short-lived")
    async with AsyncExitStack() as opened:
        clients = [await opened.enter_async_context(
            AsyncOpenAI(base_url=f"{url.removesuffix('/v1')}/v1", api_key=created["secret"], max_retries=0))
            for url in stack.facts["edge_urls"]]
        assert not any([await is_refused(client) for client in clients])
        assert stack.meridian("keys", "revoke", created["id"], "-y").returncode == 0
        ends = asyncio.get_running_loop().time() + 5
        while not all([await is_refused(client) for client in clients]):
            assert asyncio.get_running_loop().time() < ends, "the key still worked after 5 s"
            await asyncio.sleep(0.1)


async def is_refused(client: AsyncOpenAI) -> bool:
    try:
        await client.chat.completions.create(
            model=MODEL, messages=[{"role": "user", "content": "short"}], max_tokens=2)
    except AuthenticationError as error:
        return error.code == "invalid_api_key"  # the text that the SDK makes of it does not hold the code
    return False


def test_chat_answers_through_the_edge(stack: LocalStack) -> None:
    done = stack.meridian("chat", "hello", "--max-tokens", "5")
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.split()) >= 5


def test_teams_and_their_usage_are_apart(stack: LocalStack) -> None:
    team = stack.json("teams", "create", "Other Team", "--slug", "other-team")
    assert stack.json("usage", "--team", "other-team")["total"]["requests"] == 0
    assert stack.json("usage", "--team", stack.facts["team"])["total"]["requests"] >= 0
    assert team["slug"] == "other-team"

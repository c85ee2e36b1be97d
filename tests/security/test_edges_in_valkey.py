"""What an edge's account in Valkey reaches, in the hands of whoever took the edge over."""

from collections.abc import AsyncIterator
from urllib.parse import urlsplit

import pytest
from redis.asyncio import Redis
from redis.exceptions import AuthenticationError, NoPermissionError, ResponseError

from edge_api.admission.scripts import CORRECT, HOLD, TAKE
from infra.local.valkey import Valkey
from tests.integration.edge_api.admission.places import edge
from tests.unit.edge_api.admission.parts import key_limit, need, principal

QUEUE, OTHERS = "celery", "control_plane:lock"


@pytest.fixture
async def taken_over(valkey_server: Valkey, valkey_url: str) -> AsyncIterator[Redis]:
    async with Redis.from_url(valkey_url) as owner, Redis.from_url(valkey_server.edge_url) as client:
        await owner.lpush(QUEUE, "a task")
        await owner.set(OTHERS, "held")
        yield client


@pytest.mark.parametrize("command", [
    ("LPUSH", QUEUE, "a forged task"), ("LRANGE", QUEUE, "0", "-1"), ("RPOP", QUEUE), ("GET", OTHERS),
    ("SET", OTHERS, "mine"), ("KEYS", "*"), ("SCAN", "0"), ("FLUSHALL",), ("FLUSHDB",),
    ("DEL", "adm:{team_1}:open:key:key_1:"),
    ("CONFIG", "GET", "requirepass"), ("ACL", "LIST"), ("CLIENT", "LIST"), ("CLIENT", "KILL", "TYPE", "normal"),
    ("MONITOR",), ("SUBSCRIBE", "celeryev"), ("PUBLISH", "celeryev", "x"), ("SHUTDOWN",), ("REPLICAOF", "evil", "1"),
    ("SCRIPT", "FLUSH"), ("SCRIPT", "KILL"), ("FUNCTION", "LIST"), ("EVAL", "return 1", "0"),
])
async def test_nothing_but_limits_is_reached(taken_over: Redis, command: tuple[str, ...]) -> None:
    with pytest.raises(NoPermissionError):
        await taken_over.execute_command(*command)  # type: ignore[no-untyped-call]


@pytest.mark.parametrize("text", [
    f"return redis.call('LPUSH', '{QUEUE}', 'forged')", f"return redis.call('GET', '{OTHERS}')",
    "return redis.call('FLUSHALL')", f"return redis.call('SET', '{OTHERS}', 'mine')"])
async def test_nor_by_a_script_of_its_own(taken_over: Redis, text: str) -> None:
    sha = await taken_over.script_load(text)
    with pytest.raises(ResponseError, match=r"(?i)permission"):
        await taken_over.evalsha(sha, 0)


async def test_its_password_opens_no_other_account(valkey_server: Valkey) -> None:
    password = urlsplit(valkey_server.edge_url).password
    async with Redis(port=valkey_server.port, password=password) as client:
        with pytest.raises(AuthenticationError):
            await client.ping()


async def test_an_edge_needs_no_more(valkey_server: Valkey, valkey_url: str) -> None:
    """Each script runs, and limits are shared by two edges that have this account."""
    assert valkey_url
    async with Redis.from_url(valkey_server.edge_url) as client:
        for script, arguments in ((TAKE, (10, 1, 1)), (HOLD, ("a", 10, 0, 1, 0, 1000)), (CORRECT, (1, 1))):
            await client.script_load(script.text)
            assert await client.evalsha(script.sha, 1, f"adm:{script.sha}", *arguments)
    async with edge(valkey_server.edge_url, "boot_a", 2) as first, edge(valkey_server.edge_url, "boot_b", 2) as second:
        who = principal(key_limit(concurrency=2))
        held = [await one.admit(need(who)) for one in (first, second)]
        assert await first.try_admit(need(who)) is None
        assert (first.figure("valkey_up"), second.figure("valkey_up")) == (1, 1)
        for grant in held:
            grant.release()

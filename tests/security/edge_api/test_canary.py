"""Words that stand for what is secret go through every dialect and every fault, and are then looked for wherever the
edge writes: nothing but digests may be found. And nothing of a datacenter's own is found in what a client got.
"""

import json
import signal
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from control_plane.contracts import ids
from control_plane.contracts.keys import LimitScope, Principal, RateLimit, Scope
from infra.local.valkey import Valkey
from tests.integration.edge_api.control_plane import TOKEN, ControlPlane, serving
from tests.integration.edge_api.hot.datacenter import Datacenter, Upcall, chunk, stream_of, whole_answer
from tests.integration.edge_api.process import EdgeProcess
from tests.integration.edge_api.waiting import until
from tests.unit.edge_api.builders import MODEL, snapshot

KEY = ids.new_secret("sk_meridian_test")
STRANGER = ids.new_secret("sk_meridian_test")
PROMPT, ANSWER, TOOL, USER, SESSION, COOKIE, TEAM, WORDS = (
    f"canary-{name}-5d1e" for name in ("prompt", "answer", "tool", "user", "session", "cookie", "team", "words"))
CANARIES = (KEY, STRANGER, KEY[-20:], PROMPT, ANSWER, TOOL, USER, SESSION, COOKIE, TEAM, WORDS)
CLIENT_HEADERS = {
    "cookie": COOKIE, "x-session-id": SESSION, "user-agent": COOKIE, "x-forwarded-for": "198.51.100.7",
    "x-forwarded-host": COOKIE, "forwarded": COOKIE, "referer": COOKIE, "origin": COOKIE, "openai-organization": COOKIE,
    "x-stainless-lang": COOKIE, "anthropic-beta": COOKIE, "x-tenant-id": COOKIE, "x-dynamo-session-id": COOKIE,
    "x-request-id": COOKIE, "tracestate": f"a={COOKIE}", "baggage": COOKIE, "accept-language": COOKIE}
UPSTREAM_HEADERS = {"host", "content-type", "accept", "content-length", "x-request-id", "x-dynamo-session-id",
                    "traceparent"}
DATACENTERS_OWN = (
    f"server: {WORDS}\r\nset-cookie: a={WORDS}\r\nlocation: http://10.9.8.7/{WORDS}\r\nx-powered-by: {WORDS}\r\n"
    f"x-dynamo-worker: {WORDS}\r\nvia: {WORDS}\r\nx-upstream-address: 10.9.8.7\r\n")
OWN_NAMES = {line.partition(":")[0] for line in DATACENTERS_OWN.splitlines()}
PATHS: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": [{"role": "user", "content": PROMPT}], "user": USER, "tools": [
        {"type": "function", "function": {"name": TOOL, "parameters": {"type": "object"}}}]},
    "/v1/completions": {"prompt": PROMPT, "user": USER},
    "/v1/messages": {"messages": [{"role": "user", "content": PROMPT}], "max_tokens": 9, "metadata": {"user_id": USER},
                     "tools": [{"name": TOOL, "input_schema": {"type": "object"}}]},
    "/v1/responses": {"input": PROMPT, "user": USER, "tools": [
        {"type": "function", "name": TOOL, "parameters": {"type": "object"}}]},
    "/v1/messages/count_tokens": {"messages": [{"role": "user", "content": PROMPT}]},
    "/v1/embeddings": {"input": PROMPT},
}
LIMIT = RateLimit(scope=LimitScope.KEY, scope_id="key_1", requests_per_minute=1_000_000)
FAULTS = ("", "400", "404", "429", "500", "error", "reset", "garbage")


def datacenters_answer(status: int, body: bytes, kind: str = "application/json") -> bytes:
    return (f"HTTP/1.1 {status} {WORDS}\r\ncontent-type: {kind}\r\n{DATACENTERS_OWN}"
            f"content-length: {len(body)}\r\n\r\n").encode() + body


async def talkative(call: Upcall) -> None:
    """A datacenter that answers what the body's `seed` says, and tells all it knows wherever it can."""
    fault = FAULTS[call.body.get("seed") or 0]
    told = json.dumps({"message": f"{WORDS} {PROMPT} at 10.9.8.7", "type": WORDS, "code": 1}).encode()
    events = b"".join(stream_of([ANSWER, " b"]))
    if fault.isdigit():
        call.writer.write(datacenters_answer(int(fault), told))
    elif fault == "garbage":
        call.writer.write(b"HTTP/9 " + told)
        call.reset()
    elif call.body.get("stream"):
        begun = chunk(ANSWER, [1], completion=1)
        said = {"": events, "error": begun + b'data: {"error":%b}\n\n' % told}.get(fault, begun)
        call.writer.write(datacenters_answer(200, said, "text/event-stream"))
    else:
        call.writer.write(datacenters_answer(200, json.dumps(whole_answer(ANSWER)).encode()))
    if fault == "reset":
        call.reset()


@dataclass
class Everything:
    """All that can be read of an edge once all that has happened to it."""

    edge: EdgeProcess
    control_plane: ControlPlane
    valkey: Valkey
    seen: list[Upcall]
    answers: list[tuple[int, dict[str, str], bytes]] = field(default_factory=list)
    pages: str = ""


@pytest.fixture
async def everything(tmp_path: Path, valkey_server: Valkey) -> AsyncIterator[Everything]:
    """Every dialect, streamed and not, through every fault; strangers, foreign teams, nonsense, clients that leave, and
    one death of the edge in the middle of it."""
    (tmp_path / "token").write_text(TOKEN)
    frontend = Datacenter(talkative)
    await frontend.listen()
    principal = Principal(key_id="key_1", team_id="team_1", key_name="canary", scopes=[Scope.INFERENCE], limits=[LIMIT])
    async with serving(ControlPlane()) as control_plane:
        control_plane.principals[ids.secret_digest(KEY)] = principal
        control_plane.publish(snapshot(ports={"us-east-1": frontend.port}, weights={"us-east-1": 1}))
        edge = EdgeProcess(tmp_path, control_plane.url, valkey_url=valkey_server.url)
        try:
            await edge.start()
            told = Everything(edge, control_plane, valkey_server, frontend.seen)
            await _ask_all(told)
            await edge.stop(signal.SIGKILL)
            await edge.start()
            await _ask_all(told)
            await until(lambda: _asked_upstream(told) <= set(map(str, control_plane.records)))
            control_plane.away = True
            told.pages = await _pages(edge)
            await edge.stop()
            yield told
        finally:
            await edge.stop(signal.SIGKILL)
            await frontend.close()


def _asked_upstream(told: Everything) -> set[str]:
    """The requests that were sent upstream; prompts that are only counted have no id there."""
    return {call.headers["x-request-id"].partition(".")[0] for call in told.seen if "x-request-id" in call.headers}


async def _ask_all(told: Everything) -> None:
    async with httpx.AsyncClient(base_url=told.edge.url, headers=CLIENT_HEADERS, trust_env=False, timeout=20) as client:
        for path, body in PATHS.items():
            for fault in range(len(FAULTS)):
                for stream in (False, True):
                    fields = {"model": MODEL, **body} | ({"stream": True} if stream else {})
                    if path in ("/v1/chat/completions", "/v1/completions"):
                        fields["seed"] = fault
                    await _ask(told, client, path, KEY, json.dumps(fields).encode())
            await _ask(told, client, path, STRANGER, json.dumps(body).encode())
            await _ask(told, client, path, KEY[:-1], json.dumps(body).encode())
            await _ask(told, client, path, KEY, f'{{"model": "{PROMPT}", "{USER}'.encode())
            await _ask(told, client, path, KEY, json.dumps({"model": PROMPT, **body}).encode())
            whole = {"model": MODEL, **body}
            await _ask(told, client, path, KEY, json.dumps(whole).encode(), {"x-prime-team-id": TEAM})
            await _ask(told, client, path, KEY, json.dumps({**whole, TOOL: PROMPT}).encode())


async def _ask(told: Everything, client: httpx.AsyncClient, path: str, key: str, body: bytes,
               headers: dict[str, str] | None = None) -> None:
    answer = await client.post(path, content=body, headers={"authorization": f"Bearer {key}", **(headers or {})})
    told.answers.append((answer.status_code, dict(answer.headers), answer.content))


async def _pages(edge: EdgeProcess) -> str:
    async with httpx.AsyncClient(base_url=edge.url, trust_env=False) as client:
        return "".join([(await client.get(path)).text for path in ("/metrics", "/readyz", "/healthz", "/v1/models")])


async def test_no_canary_is_where_it_must_not_be(everything: Everything) -> None:
    assert len(everything.control_plane.records) > 50
    await _valkey_is_clean(everything.valkey)
    told = everything.control_plane
    places = {
        "log": everything.edge.log(), "pages": everything.pages, "told upwards":
        f"{told.lookups}{told.batches}{told.syncs}", "upstream heads": str(
            [call.headers for call in everything.seen]),
        "disk": b"".join(path.read_bytes() for path in everything.edge.state_dir.rglob("*") if path.is_file()).decode(
            "latin1")}
    for place, text in places.items():
        for canary in CANARIES:
            assert canary not in text, f"{canary} is in the {place}"
    assert ids.secret_digest(KEY) in places["disk"]  # so it would have been found


async def test_only_named_headers_go_upstream_and_nothing_of_a_datacenter_comes_back(everything: Everything) -> None:
    assert len(everything.seen) > 100
    for call in everything.seen:
        assert set(call.headers) <= UPSTREAM_HEADERS
        assert call.headers["host"].startswith("127.0.0.1:")
    for status, headers, body in everything.answers:
        assert not OWN_NAMES.intersection(headers)
        assert WORDS not in str(headers)
        if status != 400:  # what a request itself did wrong is told in the engine's words
            assert WORDS.encode() not in body
            assert b"10.9.8.7" not in body
    assert {status for status, _, _ in everything.answers} >= {200, 400, 401, 403, 404, 429, 502}


async def _valkey_is_clean(valkey: Valkey) -> None:
    from redis.asyncio import Redis

    async with Redis.from_url(valkey.url) as client:
        keys = [key.decode("latin1") async for key in client.scan_iter()]
    assert keys
    for canary in CANARIES:
        assert not any(canary in key for key in keys)

"""What the edge answers to requests that cannot be served: always an OpenAI-shaped error, never a usage record."""

import asyncio
import json
from typing import Any

import httpx
import openai
import pytest
from openai import AsyncOpenAI

from tests.e2e.stack import LocalStack

pytestmark = pytest.mark.stack
MODEL = "sim/glm-5.3"
HELLO = [{"role": "user", "content": "hello"}]


def post(stack: LocalStack, content: bytes, **headers: str) -> httpx.Response:
    facts = stack.facts
    sent = {"authorization": f"Bearer {facts['api_key']}", "content-type": "application/json"} | headers
    return httpx.post(f"{facts['edge_url']}/chat/completions", content=content, headers=sent, timeout=30.0,
                      trust_env=False)


def error_of(answer: httpx.Response) -> dict[str, Any]:
    error: dict[str, Any] = answer.json()["error"]
    assert {"message", "type", "param", "code"} <= error.keys()
    assert answer.headers["x-request-id"]
    return error


@pytest.mark.parametrize("key", ["", "nonsense", "sk_meridian_local_" + "a" * 38])
async def test_a_wrong_key_is_401(stack: LocalStack, key: str) -> None:
    async with AsyncOpenAI(base_url=stack.facts["edge_url"], api_key=key or "x", max_retries=0) as client:
        with pytest.raises(openai.AuthenticationError) as caught:
            await client.chat.completions.create(model=MODEL, messages=HELLO)
    assert caught.value.code == "invalid_api_key"


async def test_an_unknown_model_is_404_and_names_itself(client: AsyncOpenAI) -> None:
    with pytest.raises(openai.NotFoundError, match="no/such-model") as caught:
        await client.chat.completions.create(model="no/such-model", messages=HELLO)
    assert caught.value.code == "model_not_found"


@pytest.mark.parametrize("content", [
    b"", b"{", b"[]", b'"text"', b'{"model": 1}', b'{"messages": []}', b'\xff\xfe{"model":"x"}',
    b'{"model":"sim/glm-5.3","messages":"hello"}', b'{"model":"sim/glm-5.3","messages":[],"stream":"yes"}',
    b'{"model":"sim/glm-5.3","messages":[{"role":"user","content":"x"}],"max_tokens":"many"}',
    b'{"model":"sim/glm-5.3","messages":[{"role":"user","content":"\xff"}]}',
    b'{"model":"sim/glm-5.3","messages":[{"role":"user","content":"x"}],"max_tokens":-1}',
    b'{"model":"sim/glm-5.3","messages":[{"role":"user","content":"x"}],"max_tokens":131073}',
    b"[" * 100_000,
])
def test_a_body_that_is_wrong_is_400(stack: LocalStack, content: bytes) -> None:
    answer = post(stack, content)
    assert answer.status_code == 400
    assert error_of(answer)["type"] == "invalid_request_error"


def test_an_unknown_field_is_400_and_named(stack: LocalStack) -> None:
    answer = post(stack, json.dumps({"model": MODEL, "messages": HELLO, "bogus_field": 1}).encode())
    assert answer.status_code == 400
    assert "bogus_field" in error_of(answer)["message"]


def test_a_body_past_32_mib_is_413_and_one_just_below_is_not(stack: LocalStack) -> None:
    answer = post(stack, b" " * (32 * 1024 * 1024 + 1))
    assert answer.status_code == 413
    assert error_of(answer)["code"] == "payload_too_large"
    assert post(stack, b" " * (32 * 1024 * 1024 - 1)).status_code == 400


def test_an_unknown_route_and_a_wrong_method_are_openai_shaped(stack: LocalStack) -> None:
    base = stack.facts["edge_url"]
    for answer, status in ((httpx.get(f"{base}/nowhere", trust_env=False), 404),
                           (httpx.get(f"{base}/chat/completions", trust_env=False), 405)):
        assert answer.status_code == status
        error_of(answer)


@pytest.mark.slow
async def test_a_client_that_sends_nothing_more_is_let_go(stack: LocalStack) -> None:
    facts = stack.facts
    port = int(facts["edge_url"].split(":")[2].split("/")[0])
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {facts['api_key']}\r\n"
                 "Content-Type: application/json\r\nContent-Length: 1000\r\n\r\n{".encode())
    await writer.drain()
    answer = await asyncio.wait_for(reader.read(65536), 35)
    assert b" 408 " in answer.split(b"\r\n")[0]
    writer.close()


async def test_a_client_that_reads_slowly_gets_everything(stack: LocalStack) -> None:
    facts = stack.facts
    port = int(facts["edge_url"].split(":")[2].split("/")[0])
    body = json.dumps({"model": MODEL, "messages": HELLO, "stream": True, "max_tokens": 200}).encode()
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1024)
    writer.write(f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {facts['api_key']}\r\n"
                 f"Content-Type: application/json\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n".encode()
                 + body)
    received = b""
    while piece := await asyncio.wait_for(reader.read(512), 30):
        received += piece
        await asyncio.sleep(0.005)
    writer.close()
    assert received.count(b'"delta":{"content"') == 200
    assert b"data: [DONE]" in received

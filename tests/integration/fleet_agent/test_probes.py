"""Probes over real sockets: what a frontend's answer means."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import httpx
import pytest

from control_plane.contracts.clock import SystemClock
from fleet_agent.core import AgentState, Answered, Probed, step
from fleet_agent.probes import Prober
from fleet_agent.store import Accepted
from tests.unit.fleet_agent import examples

ANSWER = json.dumps({"choices": [], "usage": {"completion_tokens": 1, "prompt_tokens": 5}})


@dataclass
class Frontend:
    """A frontend that gives one answer to everybody."""

    url: str = ""
    status: int = 200
    body: str = ANSWER
    delay_s: float = 0.0
    heads: list[str] = field(default_factory=list)
    bodies: list[dict[str, object]] = field(default_factory=list)
    closing: asyncio.Event = field(default_factory=asyncio.Event)
    served: asyncio.Event = field(default_factory=asyncio.Event)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        length = int(head.lower().split("content-length: ")[1].split("\r\n")[0])
        self.heads.append(head)
        self.bodies.append(json.loads(await reader.readexactly(length)))
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.closing.wait(), self.delay_s)
        writer.write(f"HTTP/1.1 {self.status} X\r\ncontent-length: {len(self.body)}\r\nconnection: close\r\n\r\n"
                     f"{self.body}".encode())
        writer.close()
        await writer.wait_closed()
        self.served.set()


@pytest.fixture
async def frontend() -> AsyncIterator[Frontend]:
    made = Frontend()
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    made.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server:
        yield made
        made.closing.set()
        if made.bodies:
            await made.served.wait()


async def probed(frontend: Frontend, deadline_s: float = 30.0, deployment_id: str = "test-a-glm") -> Probed:
    clock = SystemClock()
    command = examples.probe(deadline_s=deadline_s, deployment_id=deployment_id)
    state, _ = step(AgentState(), Answered(examples.answer(1, None, command)), clock.time_s())
    accepted = Accepted(examples.desired(), examples.plan().model_copy(update={"ingress_url": frontend.url}))
    async with httpx.AsyncClient(trust_env=False) as client:
        (found,) = await Prober(client, clock, lambda: accepted).probe(state)
    return found


async def test_a_token_is_an_answer(frontend: Frontend) -> None:
    found = await probed(frontend)
    assert (found.command_id, found.is_answered) == ("probe_1", True)
    assert found.result.startswith("a token of sim/glm in 0.")


async def test_it_asks_for_one_token_of_the_deployments_model(frontend: Frontend) -> None:
    await probed(frontend)
    (asked,) = frontend.bodies
    assert (asked["model"], asked["max_tokens"], asked["stream"]) == ("sim/glm", 1, False)
    assert "x-request-id: probe_1" in frontend.heads[0].lower()


@pytest.mark.parametrize(("status", "body", "words"), [
    (500, "broken", "the frontend answered 500: broken"),
    (404, "no such model", "the frontend answered 404: no such model"),
    (200, "hello", "something else than a completion"),
    (200, '{"usage": {"completion_tokens": 0}}', "without a token"),
])
async def test_anything_else_is_a_fault_in_words(frontend: Frontend, status: int, body: str, words: str) -> None:
    frontend.status, frontend.body = status, body
    found = await probed(frontend)
    assert not found.is_answered
    assert words in found.result


async def test_an_answer_that_comes_too_late_is_none(frontend: Frontend) -> None:
    frontend.delay_s = 5.0
    found = await probed(frontend, deadline_s=0.2)
    assert not found.is_answered
    assert found.result.startswith("the frontend gave no answer within 0.")


async def test_a_frontend_that_is_not_there_is_a_fault(frontend: Frontend) -> None:
    found = await probed(Frontend(url="http://127.0.0.1:9"))
    assert not found.is_answered
    assert "cannot be asked" in found.result


async def test_a_deployment_that_the_fleet_does_not_run_is_a_fault(frontend: Frontend) -> None:
    found = await probed(frontend, deployment_id="another")
    assert (found.is_answered, found.result) == (False, "this fleet has no another")
    assert frontend.bodies == []

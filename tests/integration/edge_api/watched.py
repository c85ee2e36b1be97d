"""Real edge processes under a real control plane, and three datacenters that can die: what edges see, and what comes of
it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from sqlalchemy import text

from control_plane.contracts.enrolment import IdentityKind
from control_plane.contracts.operations import OperationView
from control_plane.contracts.operator import Page
from tests.integration.control_plane.simulated import World, declare, document, running_world
from tests.integration.edge_api.control_plane import listening
from tests.integration.edge_api.process import Datacenter, EdgeProcess, chat_body, client_of, edge_process

PLACES = ("us-east-1", "eu-north-1", "ap-south-1")
REQUEST_S = 10.0
AGENT_POLL_S = 2.0


class Mortal(Datacenter):
    """A frontend that dies on order: `die` refuses from then on, `hang` takes everything and answers nothing."""

    def __init__(self, tokens: int = 5, pause_s: float = 0.0) -> None:
        super().__init__(tokens, pause_s)
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._hangs, self._over = asyncio.Event(), asyncio.Event()
        self.fails = False

    async def start(self) -> None:
        self._server = await asyncio.start_server(self.serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def die(self) -> None:
        self._over.set()
        if self._server is not None:
            self._server.close()
            self._server = None
        for writer in list(self._writers):
            writer.transport.abort()

    def hang(self) -> None:
        self._hangs.set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            if not self._hangs.is_set():
                serving = asyncio.create_task(super().serve(reader, writer))
                hanging = asyncio.create_task(self._hangs.wait())
                await asyncio.wait({serving, hanging}, return_when=asyncio.FIRST_COMPLETED)
                hanging.cancel()
                if serving.done():
                    return
                serving.cancel()
            await self._over.wait()
        finally:
            self._writers.discard(writer)
            writer.transport.abort()

    async def _stream(self, writer: asyncio.StreamWriter) -> None:
        if self.fails:
            writer.write(b"HTTP/1.1 502 X\r\ncontent-length: 2\r\n\r\n{}")
            await writer.drain()
        else:
            await super()._stream(writer)


@dataclass
class Sent:
    """One request: when it was sent (loop time), how long it took, and its status, 0 without an answer."""

    at_s: float
    took_s: float
    status: int


@dataclass
class Watched:
    """The whole house."""

    world: World
    places: dict[str, Mortal]
    edges: list[EdgeProcess]
    clients: list[httpx.AsyncClient]
    sent: list[Sent] = field(default_factory=list)

    async def ask(self, edge: int, turn: int) -> None:
        """A whole stream."""
        loop = asyncio.get_running_loop()
        began_s, status = loop.time(), 0
        try:
            async with asyncio.timeout(REQUEST_S):
                answer = await self.clients[edge].post(
                    "/v1/chat/completions", json=chat_body(prompt_cache_key=f"s{turn}"))
            status = answer.status_code if answer.text.endswith("data: [DONE]\n\n") else 0
        except (httpx.HTTPError, TimeoutError):
            status = 0
        self.sent.append(Sent(began_s, loop.time() - began_s, status))

    async def ask_steadily(self, per_s: float, stop: asyncio.Event) -> None:
        """So many requests a second, over all edges in turn, each in a task of its own."""
        async with asyncio.TaskGroup() as group:
            turn = 0
            while not stop.is_set():
                group.create_task(self.ask(turn % len(self.edges), turn))
                turn += 1
                await asyncio.sleep(1 / per_s)

    async def operations(self) -> list[OperationView]:
        answer = await self.world.replica.client.get("/operator/v1/operations", headers=self.world.operator)
        return Page[OperationView].model_validate_json(answer.content).data

    async def rows(self, query: str, **values: object) -> list[Any]:
        async with self.world.replica.context.db.begin() as session:
            return list((await session.execute(text(query), values)).all())


@asynccontextmanager
async def watched(database_url: str, directory: Path, edges: int = 2, **settings: Any) -> AsyncIterator[Watched]:
    """Three datacenters in three regions, an edge in each of the first ones; everybody syncs."""
    async with AsyncExitStack() as stack:
        world = await stack.enter_async_context(
            running_world(database_url, directory, *PLACES, edges=0, **settings))
        places = {name: Mortal(pause_s=0.01) for name in PLACES}
        for place in places.values():
            await place.start()
            stack.push_async_callback(place.die)
        for agent in world.agents.values():
            agent.longest_poll_s = AGENT_POLL_S
        address = await stack.enter_async_context(listening(world.replica.app))
        await stack.enter_async_context(world.running(*world.agents.values()))
        fleets = [{"id": f"{name}-a", "datacenter": name, "ingress_url": f"http://127.0.0.1:{place.port}",
                   "gpu_type": "H200", "gpu_total": 8} for name, place in places.items()]
        declared = await declare(world.replica, world.operator, document(*PLACES, fleets=fleets))
        assert declared.status_code == 200, declared.text
        processes = []
        for name in PLACES[:edges]:
            own = directory / f"edge-{name}"
            await asyncio.to_thread(own.mkdir)
            token = await world.replica.enrolment_token(IdentityKind.EDGE, name)
            await asyncio.to_thread((own / "token").write_text, token)
            processes.append(await stack.enter_async_context(edge_process(own, address)))
        key = await world.replica.key((await world.replica.team()).id)
        clients = [await stack.enter_async_context(client_of(process, key.secret)) for process in processes]
        yield Watched(world, places, processes, clients)

"""One local stack: which parts it has, in which order they start, and when it may be called ready."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import httpx

from control_plane.contracts.operator import StatusView
from infra.local import local_file, postgres, processes, provision, readiness, valkey
from infra.local.child import ProcessSpec
from infra.local.layout import Layout, Secrets
from infra.local.ports import HOST
from infra.local.progress import Progress
from infra.local.provision import OperatorApi
from infra.local.shape import Shape
from infra.local.supervisor import Part, Supervisor
from infra.prometheus import scraping

# Ranks: what has a higher one depends on lower ones and stops sooner. The worker depends on the stores alone.
STORES, CONTROL_PLANE, AGENTS, EDGES = range(4)
WORKER = CONTROL_PLANE


class Stack:
    """Starts everything in order, as much at once as the order allows."""

    def __init__(self, layout: Layout, shape: Shape, supervisor: Supervisor, progress: Progress) -> None:
        self._layout, self._shape = layout, shape
        self._supervisor, self._progress = supervisor, progress
        self._http = httpx.AsyncClient(trust_env=False)
        self.secrets: Secrets = layout.read_secrets()

    async def start(self) -> None:
        """Returns when a chat completion works through every edge and every datacenter is ready.

        Raises:
            StackRefused: something did not start; what started already still runs.
        """
        shape, step = self._shape, self._progress.step
        await together(step("Postgres", self._start_postgres()), step("Valkey", self._start_valkey()))
        await together(*(
            step(f"control plane {index}", self._start_control_plane(index)) for index in range(shape.replica_count)
        ))  # fmt: skip
        await step("keys, team, topology", self._provision())
        async with OperatorApi(shape.control_plane_urls[0], self.secrets.operator_token) as api:
            self._tell_of_absent(await api.status())
            await together(
                *(step(f"datacenter {name}", self._start_datacenter(index, api))
                  for index, name in enumerate(shape.datacenters)),
                *(step(f"edge {index}", self._start_edge(index)) for index in range(shape.edge_count)),
                step("worker", self._start_worker()),
            )  # fmt: skip

    async def aclose(self) -> None:
        """Closes what this object itself holds; processes are the supervisor's."""
        await self._http.aclose()

    def write_local_file(self) -> None:
        """Tells programs what runs now, and where."""
        facts = local_file.local_facts(self._layout, self._shape, self.secrets, self._supervisor.pids())
        local_file.write(self._layout, facts)
        self._layout.prometheus_file.write_text(scraping.configuration(self._shape))

    async def _start_postgres(self) -> None:
        server = processes.postgres(self._layout, self._shape, self.secrets)
        ready = readiness.connects(postgres.wait_ready, server)
        await self._supervisor.start(Part("postgres", STORES, lambda: postgres.prepare(server), ready))
        await postgres.ensure_role(server)
        await postgres.ensure_database(server)

    async def _start_valkey(self) -> None:
        server = processes.valkey(self._layout, self._shape, self.secrets)
        ready = readiness.connects(valkey.wait_ready, server)
        await self._supervisor.start(Part("valkey", STORES, lambda: valkey.prepare(server), ready))

    async def _start_control_plane(self, index: int) -> None:
        spec = processes.control_plane(self._layout, self._shape, self.secrets, index)
        await self._start(CONTROL_PLANE, spec, f"{self._shape.control_plane_urls[index]}/readyz")

    async def _provision(self) -> None:
        layout, shape = self._layout, self._shape
        spec = processes.bootstrap(layout, shape, self.secrets)
        token = await asyncio.to_thread(provision.bootstrap, spec)
        self.secrets = self.secrets.model_copy(update={"operator_token": token})
        async with OperatorApi(shape.control_plane_urls[0], token) as api:
            self.secrets = await provision.provision(api, layout, shape, self.secrets)

    async def _start_datacenter(self, index: int, api: OperatorApi) -> None:
        shape, name = self._shape, self._shape.datacenters[index]
        epoch_before = readiness.lease_epoch(await api.status(), name)
        spec = processes.agent(self._layout, shape, index)
        await self._start(AGENTS, spec, f"http://{HOST}:{shape.ports.agent(index)}/healthz")
        lists_model = readiness.lists_model(self._http, shape.ingress_url(index))
        await readiness.datacenter_ready(api, lists_model, name, epoch_before)

    async def _start_edge(self, index: int) -> None:
        spec, url = processes.edge(self._layout, self._shape, self.secrets, index), self._shape.edge_urls[index]
        await self._start(EDGES, spec, f"{url}/readyz")
        await readiness.first_request(self._http, url, self.secrets.api_key)

    async def _start_worker(self) -> None:
        spec, heartbeat = processes.worker(self._layout, self._shape, self.secrets), processes.heartbeat(self._layout)

        def prepare() -> ProcessSpec:
            heartbeat.unlink(missing_ok=True)
            return spec

        await self._supervisor.start(Part(spec.name, WORKER, prepare, readiness.exists(heartbeat)))

    def _tell_of_absent(self, view: StatusView) -> None:
        absent = [place.id for place in view.datacenters if place.id not in self._shape.datacenters]
        if absent:
            self._progress.note(f"{', '.join(absent)}: known from an earlier start and not part of this one; requests "
                                "avoid what does not answer.")

    async def _start(self, rank: int, spec: ProcessSpec, ready_url: str) -> None:
        await self._supervisor.start(Part(spec.name, rank, lambda: spec, readiness.answers(self._http, ready_url)))


async def together(*work: Coroutine[Any, Any, None]) -> None:
    """Runs all at once; the first failure cancels the others and is raised as it is."""
    try:
        async with asyncio.TaskGroup() as group:
            for coroutine in work:
                group.create_task(coroutine)
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None

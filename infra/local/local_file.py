"""`local.json`, mode 0600: what programs and the command line read about a stack. Field names are an interface."""

import os

from pydantic import BaseModel

from control_plane.contracts.signing import write_private
from infra.local import processes
from infra.local.layout import Layout, Secrets
from infra.local.shape import MODEL, TEAM, Shape


class DatacenterPorts(BaseModel):
    """Loopback ports of a datacenter."""

    frontend: int
    agent: int


class LocalDatacenter(BaseModel):
    """A datacenter of the stack; `ingress_url` is its Dynamo frontend, without `/v1`."""

    id: str
    region: str
    ingress_url: str
    ports: DatacenterPorts


class LocalFacts(BaseModel):
    """The file's content. `edge_url` and `edge_urls` end in `/v1`. `pids` are the processes that run now, by name."""

    edge_url: str
    edge_urls: list[str]
    control_plane_url: str
    control_plane_urls: list[str]
    api_key: str
    model: str
    team: str
    operator_token: str
    database_url: str
    redis_url: str
    port_base: int
    datacenters: list[LocalDatacenter]
    pids: dict[str, int]


def local_facts(layout: Layout, shape: Shape, secrets: Secrets, pids: dict[str, int]) -> LocalFacts:
    """What the file says of a running stack."""
    edge_urls = [f"{url}/v1" for url in shape.edge_urls]
    return LocalFacts(
        edge_url=edge_urls[0],
        edge_urls=edge_urls,
        control_plane_url=shape.control_plane_urls[0],
        control_plane_urls=shape.control_plane_urls,
        api_key=secrets.api_key,
        model=MODEL,
        team=TEAM,
        operator_token=secrets.operator_token,
        database_url=processes.postgres(layout, shape, secrets).url(),
        redis_url=processes.valkey(layout, shape, secrets).url,
        port_base=shape.port_base,
        datacenters=[
            LocalDatacenter(
                id=name, region=name, ingress_url=shape.ingress_url(index),
                ports=DatacenterPorts(frontend=shape.ports.datacenter(index), agent=shape.ports.agent(index)),
            )
            for index, name in enumerate(shape.datacenters)
        ],
        pids={"up": os.getpid(), **pids} if pids else {},
    )  # fmt: skip


def write(layout: Layout, facts: LocalFacts) -> None:
    """Writes the file whole or not at all."""
    write_private(layout.local_file, facts.model_dump_json(indent=2).encode())

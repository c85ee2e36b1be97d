"""How large a local stack is, and what its parts are called: the topology document that it declares."""

from dataclasses import dataclass
from decimal import Decimal

from control_plane.contracts.deployment import Pool, PoolRole
from control_plane.contracts.topology import (
    DatacenterDocument,
    DeploymentDocument,
    DetailsDocument,
    FleetDocument,
    ModelDocument,
    PriceDocument,
    RegionDocument,
    TopologyDocument,
)
from infra.local.errors import StackRefused
from infra.local.ports import BLOCK, EDGES_MAX, HOST, PORT_MAX, PORT_MIN, REPLICAS_MAX, Ports

# Datacenter ids equal region ids in the local stack.
DATACENTERS = (
    "us-east-1", "eu-north-1", "ap-south-1", "us-west-2", "eu-west-1", "ap-northeast-1", "sa-east-1", "af-south-1",
    "ca-central-1",
)  # fmt: skip
MODEL = "sim/glm-5.3"
TEAM = "local"
ENGINES = ("sim",)
CONTEXT_WINDOW = 202_752
MAX_OUTPUT_TOKENS = 131_072
# The simulated engine refuses a request that names no limit; word salad needs no more than this.
DEFAULT_MAX_TOKENS = 256
# Simulated too: room for a few more replicas in each fleet, and what one of them is said to hold well.
GPUS, HOLDS = 8, 256


@dataclass(frozen=True)
class Shape:
    """What `meridian up` was asked for."""

    port_base: int
    datacenter_count: int
    edge_count: int
    replica_count: int
    engine: str

    @property
    def ports(self) -> Ports:
        return Ports(self.port_base)

    @property
    def datacenters(self) -> tuple[str, ...]:
        return DATACENTERS[: self.datacenter_count]

    @property
    def control_plane_urls(self) -> list[str]:
        return [f"http://{HOST}:{self.ports.control_plane(index)}" for index in range(self.replica_count)]

    @property
    def edge_urls(self) -> list[str]:
        """Without `/v1`."""
        return [f"http://{HOST}:{self.ports.edge(index)}" for index in range(self.edge_count)]

    def ingress_url(self, index: int) -> str:
        return f"http://{HOST}:{self.ports.datacenter(index)}"

    def edge_region(self, index: int) -> str:
        """Edges are spread over the regions in turn."""
        return self.datacenters[index % self.datacenter_count]


def fleet_id(datacenter: str) -> str:
    """The only fleet of a local datacenter."""
    return f"{datacenter}-a"


def deployment_id(datacenter: str) -> str:
    """The only deployment of a local fleet."""
    return f"{fleet_id(datacenter)}-glm"


def check(shape: Shape) -> None:
    """Raises StackRefused when the stack cannot be that large, or not there."""
    for option, count, most in (
        ("--datacenters", shape.datacenter_count, len(DATACENTERS)),
        ("--edges", shape.edge_count, EDGES_MAX),
        ("--replicas", shape.replica_count, REPLICAS_MAX),
    ):
        if not 1 <= count <= most:
            raise StackRefused(f"{option} {count} is not possible; choose 1 to {most}")
    highest = PORT_MAX - BLOCK * (shape.datacenter_count + 1)
    if not PORT_MIN <= shape.port_base <= highest:
        raise StackRefused(f"--port-base {shape.port_base} is not possible with "
                           f"{shape.datacenter_count} datacenters; choose {PORT_MIN} to {highest}")
    if shape.engine == "vllm":
        raise StackRefused("--engine vllm (a real model) is not part of this release yet; leave the option out")
    if shape.engine not in ENGINES:
        raise StackRefused(f"--engine {shape.engine} is unknown; choose {' or '.join(ENGINES)}")


def topology(shape: Shape) -> TopologyDocument:
    """Everything that the stack declares: one fleet and one deployment a datacenter, one model."""
    return TopologyDocument(
        regions=[RegionDocument(id=name) for name in shape.datacenters],
        datacenters=[DatacenterDocument(id=name, region=name) for name in shape.datacenters],
        fleets=[
            FleetDocument(
                id=fleet_id(name), datacenter=name, ingress_url=shape.ingress_url(index),
                gpu_type="simulated", gpu_total=GPUS,
            )
            for index, name in enumerate(shape.datacenters)
        ],
        models=[
            ModelDocument(
                id=MODEL, display_name="GLM-5.3 (simulated)", owned_by="meridian", context_window=CONTEXT_WINDOW,
                max_output_tokens=MAX_OUTPUT_TOKENS, default_max_tokens=DEFAULT_MAX_TOKENS,
                price=PriceDocument(
                    version="pv_1", input_usd=Decimal("0.0000006"), cached_input_usd=Decimal("0.00000011"),
                    output_usd=Decimal("0.0000022"),
                ),
                details=DetailsDocument(tokenizer="bytes and plain words (simulated)"),
            )
        ],
        deployments=[
            DeploymentDocument(
                id=deployment_id(name), model=MODEL, fleet=fleet_id(name),
                pools=[Pool(role=PoolRole.PREFILL, replicas=1, max_inflight=HOLDS),
                       Pool(role=PoolRole.DECODE, replicas=2, max_inflight=HOLDS)],
                engine={"kind": shape.engine},
            )
            for name in shape.datacenters
        ],
    )  # fmt: skip

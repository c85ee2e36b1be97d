"""One edge before a real frontend whose engine says what its prompts tell it to: answers that no simulated model gives.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from control_plane.contracts.usage import UsageRecord
from edge_api.metering.frames import decode, scan
from edge_api.metering.outbox import segment_numbers, segment_path
from tests.bench.prepared_edge import running_edge
from tests.contract.clients import request_id_of
from tests.engine.cluster import MODEL, cluster
from tests.engine.cluster import scripted as scripted_fleet
from tests.engine.scripted import script
from tests.ports import claim_ports


@dataclass(frozen=True)
class ScriptedEdge:
    """A running edge. `url` is without `/v1`; `datacenter_url` is the frontend's behind it."""

    url: str
    key: str
    datacenter_url: str
    state_dir: Path

    def records(self) -> list[UsageRecord]:
        """All usage records that the edge has written."""
        directory = self.state_dir / "outbox"
        data = b"".join(segment_path(directory, number).read_bytes() for number in segment_numbers(directory))
        frames = [decode(stretch.payload) for stretch in scan(data, at_end=True) if stretch.payload is not None]
        return [frame for frame in frames if isinstance(frame, UsageRecord)]

    def record_of(self, header: str) -> UsageRecord:
        """The one record of the request that the `x-request-id` header named."""
        [record] = [record for record in self.records() if record.request_id == request_id_of(header)]
        return record


@contextmanager
def scripted_edge(directory: Path) -> Iterator[ScriptedEdge]:
    """The edge and its one datacenter, until the block ends."""
    with cluster(scripted_fleet(directory / "datacenter", claim_ports())) as running:
        [facts] = running.plan.facts.values()
        with running_edge(directory / "edge", [running.url], model=MODEL, engine=facts) as edge:
            yield ScriptedEdge(edge.url, edge.key, running.url, edge.state_dir)


def say(answer: str) -> list[Any]:
    """The conversation that makes the engine give this answer, for every dialect that has conversations."""
    return [{"role": "user", "content": script(answer)}]


def call(name: str, **arguments: str) -> str:
    """A tool call as the model writes it."""
    given = "".join(f"<arg_key>{key}</arg_key><arg_value>{value}</arg_value>" for key, value in arguments.items())
    return f"<tool_call>{name}{given}</tool_call>"


def schema(**types: str) -> dict[str, Any]:
    """The schema of an object that has all these properties and no others."""
    return {"type": "object", "properties": {name: {"type": kind} for name, kind in types.items()},
            "required": list(types), "additionalProperties": False}


def compact(value: object) -> str:
    """JSON as the engine writes it."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))

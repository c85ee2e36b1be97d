"""`POST /edge/v1/sync`: one idempotent long-poll in which an edge reports and learns.

It answers at once when there is a newer snapshot or a new revocation, else after `wait_s`. The poll is the edge's
sign of life, its ACK or NACK, and its evidence of how many requests are open in each datacenter.
"""

from control_plane.contracts.keys import Revocation
from control_plane.contracts.snapshot import SignedSnapshot
from control_plane.contracts.wire import Wire


class Nack(Wire):
    """A snapshot that this edge refused, and why."""

    lineage: int
    version: int
    error: str


class EdgeSyncRequest(Wire):
    """`acked_*` is the snapshot in use (0 before the first). `open_requests` maps datacenter to count."""

    boot_id: str
    release: str
    acked_lineage: int
    acked_version: int
    nack: Nack | None = None
    revocations_after: int
    open_requests: dict[str, int]
    wait_s: float


class EdgeSyncAnswer(Wire):
    """`snapshot` is null when the edge has the newest. `next_wait_s` is what to ask for next time."""

    snapshot: SignedSnapshot | None
    revocations: list[Revocation]
    next_wait_s: float

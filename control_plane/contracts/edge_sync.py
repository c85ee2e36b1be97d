"""`POST /edge/v1/sync`: one idempotent long-poll in which an edge reports and learns.

It answers at once when there is a newer snapshot, a new revocation or a changed team, else after `wait_s`. The poll is
the edge's sign of life, its ACK or NACK, and its evidence of how many requests are open in each datacenter.
"""

from pydantic import Field

from control_plane.contracts.evidence import MAX_MINUTES, QualityMinute, Vote
from control_plane.contracts.keys import Revocation, TeamChange
from control_plane.contracts.override import MAX_ORDERS, OverrideReport
from control_plane.contracts.snapshot import SignedSnapshot
from control_plane.contracts.wire import Count, Name, Note, Wait, Wire

MAX_ENDED_KEYS = 1_000


class Nack(Wire):
    """A snapshot that this edge refused, and why."""

    lineage: Count
    version: Count
    error: Note


class EdgeSyncRequest(Wire):
    """`acked_*` is the snapshot in use (0 before the first). `open_requests` maps datacenter to count, and so do
    `open_streams` (those of them that stream) and `sessions` (known to have had a turn there within 15 minutes).
    `changes_after` null: an edge of a release that knows no changes, and is told none. `overrides` are the orders that
    operators gave it directly, repeated until they are answered as taken; `override_url` is where they do. `ended_keys`
    are digests that the edge knew ended when a new lineage began: the control plane may have forgotten."""

    boot_id: Name
    release: Name
    acked_lineage: Count
    acked_version: Count
    nack: Nack | None = None
    revocations_after: Count
    changes_after: Count | None = None
    open_requests: dict[Name, Count] = Field(max_length=10_000)
    open_streams: dict[Name, Count] = Field(default_factory=dict, max_length=10_000)
    sessions: dict[Name, Count] = Field(default_factory=dict, max_length=10_000)
    votes: list[Vote] = Field(default_factory=list, max_length=1_000)
    minutes: list[QualityMinute] = Field(default_factory=list, max_length=MAX_MINUTES)
    ended_keys: list[Name] = Field(default_factory=list, max_length=MAX_ENDED_KEYS)
    overrides: list[OverrideReport] = Field(default_factory=list, max_length=MAX_ORDERS)
    override_url: str | None = Field(default=None, max_length=200)
    wait_s: Wait


class EdgeSyncAnswer(Wire):
    """`snapshot` is null when the edge has the newest. `next_wait_s` is what to ask for next time. `live_edges` counts
    the edges that polled of late, the asking one included: the shares of a limit while Valkey is away.
    `overrides_taken` are the ids of the reported orders that need not be reported for the record any more."""

    snapshot: SignedSnapshot | None
    revocations: list[Revocation]
    changes: list[TeamChange] = Field(default_factory=list)
    next_wait_s: float
    live_edges: int = 1
    overrides_taken: list[str] = Field(default_factory=list)

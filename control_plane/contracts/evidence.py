"""What an edge has seen of datacenters: its votes on those that do not serve, and quality by the minute.

Votes are the data plane's evidence: a quorum of them makes an automatic failover. Minutes are whole values of one boot
of one edge, so that a repeated report changes nothing.
"""

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from control_plane.contracts.wire import Count, Name, Note, Wire

TTFT_BOUNDS_S = (0.05, 0.1, 0.2, 0.35, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 7.5, 10.0, 15.0, 30.0, 60.0, 120.0)
"""Upper bounds of the buckets of the time to the first token; one more bucket holds what took longer."""

ITL_BOUNDS_S = (0.005, 0.01, 0.015, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.35, 0.5, 1.0, 2.0)
"""The same for the mean time between two tokens of a request."""

MAX_MINUTES = 2_000
"""In one report: each is a row of a dozen values, and one statement stores them all."""

Attempts = Annotated[int, Field(ge=0, le=10**9)]
"""A count of one minute. The bound is far above what one edge can do, and keeps sums over many rows within 64 bits."""

Histogram = list[Attempts]


class VoteVerdict(StrEnum):
    """What an edge believes. `lost`: nobody can connect to it. `faltering`: it can be reached and does not serve."""

    LOST = "lost"
    FALTERING = "faltering"


class Vote(Wire):
    """An edge's word against a datacenter. `held_s` is for how long it has been so, by the edge's own clock; `evidence`
    says in words what it saw. A datacenter without a vote is fine, as far as the edge knows."""

    datacenter_id: Name
    verdict: VoteVerdict
    held_s: float = Field(ge=0, allow_inf_nan=False)
    evidence: Note = ""


class QualityMinute(Wire):
    """Attempts of one model in one datacenter that ended in one minute (`minute`: Unix seconds of its start).

    `succeeded` and `failed` are what uptime counts, `excluded` is no fault of the datacenter's: the rules are in
    `docs/operations/quality.md`. `ttft` and `itl` count requests by bucket (`TTFT_BOUNDS_S`, `ITL_BOUNDS_S`), one more
    than there are bounds.
    """

    minute: Count
    model_id: Name
    datacenter_id: Name
    succeeded: Attempts = 0
    failed: Attempts = 0
    excluded: Attempts = 0
    ttft: Histogram = Field(default_factory=list, max_length=len(TTFT_BOUNDS_S) + 1)
    itl: Histogram = Field(default_factory=list, max_length=len(ITL_BOUNDS_S) + 1)
    prompt_tokens: Count = 0
    cached_tokens: Count = 0
    completion_tokens: Count = 0

"""What a request on the hot path needs from the rest of the edge, named by what it calls.

Built once, by the process's entry point. Everything but the look-up of an unknown key is synchronous: the hot path
never waits for anything but the client and the datacenter.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol
from uuid import UUID

from msgspec import Raw

from control_plane.contracts.clock import Clock
from control_plane.contracts.keys import Principal
from control_plane.contracts.usage import UsageOpen, UsageRecord
from edge_api.hot.fields import Fields
from edge_api.routing.table import Route, RoutedModel, RoutingTable
from edge_api.tool_calls.verdict import Called

MEBIBYTE = 1 << 20


class KeyDirectoryAway(Exception):
    """Nobody can say now whether the key is good: 503, never 401."""


class TooManyUnknownKeys(Exception):
    """This client address asked for too many unknown keys: 429."""


class OutboxFull(Exception):
    """The usage outbox has reached its bound: a request that cannot be metered is not served (503)."""


class TableHolder(Protocol):
    """Holds the routing table of the snapshot in use."""

    @property
    def current(self) -> RoutingTable | None: ...


class Keyring(Protocol):
    """Who a key's digest speaks for. A revoked or expired key is never cached."""

    def cached(self, digest: str) -> Principal | None: ...

    async def find(self, digest: str, client_address: str) -> Principal | None:
        """Raises: KeyDirectoryAway, TooManyUnknownKeys."""
        ...


class Need(NamedTuple):
    """What a request asks of admission, at worst: tokens of its prompt (an upper bound) and of its answer, and what
    they cost in nano-dollars, rounded up."""

    request_id: UUID
    principal: Principal
    model_id: str
    prompt_tokens: int
    completion_tokens: int
    cost_nusd: int


class Grant(Protocol):
    """What one request was let in with. `headers` are its `x-ratelimit-*` lines, each with its line end."""

    headers: bytes

    def settle(self, tokens: int, cost_nusd: int) -> None:
        """What it used in truth. To be called once the usage record is in the outbox, before `release`."""
        ...

    def release(self) -> None:
        """The request is over, however it ended. What was never settled counts as nothing used. Safe to repeat."""
        ...


class Admission(Protocol):
    """Lets requests in, within every limit and every balance that binds them."""

    def admit_now(self, need: Need) -> Grant | None:
        """The grant, if what this edge holds suffices; none: `admit` must be asked.

        Raises:
            Refusal: it is certain that it may not be let in.
        """
        ...

    async def admit(self, need: Need) -> Grant:
        """As `admit_now`, asking for more where it has to. Takes 50 ms at most where nobody answers.

        Raises:
            Refusal: 402 or 429, saying which limit and when to try again.
        """
        ...


class RouteNeed(NamedTuple):
    """What routing must know of a request: about how long its prompt is, and the regions it may be served in (none:
    any)."""

    prompt_tokens: int = 0
    regions: frozenset[str] | None = None


ANYWHERE = RouteNeed()


class Chooser(Protocol):
    """Chooses the datacenter of a request, and learns from what became of it."""

    def choose(self, model: RoutedModel, session_key: str, excluded: frozenset[str],
               need: RouteNeed = ANYWHERE) -> Route | None: ...

    def has_other(self, model: RoutedModel, excluded: frozenset[str], need: RouteNeed = ANYWHERE) -> bool:
        """Whether a datacenter outside `excluded` could serve the request and can be reached, as far as is known."""
        ...

    def failed(self, datacenter_id: str) -> None:
        """No connection to it: refused, reset or timed out before any answer."""
        ...

    def succeeded(self, datacenter_id: str) -> None: ...

    def broke(self, datacenter_id: str) -> bool:
        """It answered a plain 500, which may be the request's own doing. True if others' requests failed there before,
        and none was served since: then it is not."""
        ...

    def erred(self, route: Route) -> None:
        """An answer broke off, or was 502, 504, or 404 for a model that should be there."""
        ...

    def overloaded(self, route: Route, retry_after_s: float | None) -> None:
        """It answered 429, 503 or 529."""
        ...


class RetryBudget(Protocol):
    """Bounds retries to a share of requests, so that a retry storm cannot start here."""

    def note_request(self) -> None: ...

    def note_answer(self) -> None:
        """A datacenter answered a request wholly."""
        ...

    def allow(self) -> bool: ...

    def allow_move(self) -> bool:
        """Takes a move, for a request that was open in a datacenter when that was lost."""
        ...


class Outbox(Protocol):
    """The usage journal on disk. A frame is in the file (write(2) returned) when the call returns.

    Raises:
        OutboxFull, OSError: the frame is not in the file.
    """

    def open(self, frame: UsageOpen) -> None: ...

    def record(self, frame: UsageRecord) -> None: ...


class OpenRequests(Protocol):
    """How many requests this edge has open in each datacenter, and at each deployment."""

    def enter(self, datacenter_id: str, deployment_id: str = "") -> None: ...

    def leave(self, datacenter_id: str, deployment_id: str = "") -> None: ...


class HotMetrics(Protocol):
    """Counters of the hot path. Labels are bounded sets: statuses, datacenters, kinds of failure."""

    def answered(self, status: int) -> None: ...

    def first_byte(self, ttft_s: float) -> None: ...

    def streamed(self, token_gap_s: float) -> None:
        """A stream ended well; the mean time between two of its tokens."""
        ...

    def broken(self) -> None:
        """An answer that had begun with 200 could not be finished."""
        ...

    def upstream_failed(self, datacenter_id: str, kind: str) -> None: ...

    def retried(self) -> None: ...

    def not_resumed(self, reason: str) -> None:
        """A broken stream does not go on; reasons are words of this code."""
        ...

    def resumed(self, gap_s: float) -> None:
        """A broken stream goes on: its first new event is there, so long after the break."""
        ...

    def unsettled(self) -> None:
        """A usage record could not be written: its `open` frame stays for the witness to settle."""
        ...


class CallJudge(Protocol):
    """Judges the tool calls of answers, some time later."""

    def take(self, model_id: str, datacenter_id: str, tools: Sequence[Raw], calls: Sequence[Called]) -> None:
        """An answer to a request with these tools ended with these calls."""
        ...


class NoJudge:
    """Nobody asks how well tools are called."""

    def take(self, model_id: str, datacenter_id: str, tools: Sequence[Raw], calls: Sequence[Called]) -> None:
        """Nothing is judged."""


NO_JUDGE = NoJudge()


@dataclass(frozen=True, slots=True)
class Limits:
    """Sizes in bytes, times in seconds.

    `max_bodies_bytes` is how much the bodies of all requests together may have, from their first byte to the end of
    their answers.
    `max_connections` is how many clients may be connected: past the process's own bound of open files nothing of it,
    its journal and its link to the control plane included, would work any more.
    `header_timeout_s` is how long a request's head may take, `body_pause_s` how long a client may pause within a body,
    `body_timeout_s` how long a body may take in all; `keep_alive_s` how long a client's connection is kept without use,
    `client_stall_timeout_s` how long a client may leave its answer unread; `leaving_arrival_s` how long a request may
    still arrive once the edge ends. `first_byte_timeout_s` is how long a datacenter may be silent before its answer
    begins, `idle_timeout_s` between two pieces of it; `pool_idle_s` how long its connection is kept without use.
    `resume_wait_s` is how long a stream that broke waits for a datacenter that can be reached.
    """

    max_body_bytes: int = 32 * MEBIBYTE
    max_bodies_bytes: int = 4096 * MEBIBYTE
    max_header_bytes: int = 64 * 1024
    max_answer_bytes: int = 64 * MEBIBYTE
    max_event_bytes: int = 8 * MEBIBYTE
    max_pipelined: int = 8
    max_connections: int = 10_000
    max_attempts: int = 3
    header_timeout_s: float = 15.0
    body_pause_s: float = 30.0
    body_timeout_s: float = 600.0
    keep_alive_s: float = 75.0
    leaving_arrival_s: float = 2.0
    connect_timeout_s: float = 2.0
    first_byte_timeout_s: float = 300.0
    idle_timeout_s: float = 120.0
    client_stall_timeout_s: float = 120.0
    linger_s: float = 5.0
    resume_wait_s: float = 15.0
    pool_idle_s: float = 55.0
    pool_max_idle: int = 512
    pool_max_open: int = 20_000


@dataclass(slots=True)
class Services:
    """All that a request needs."""

    table: TableHolder
    keyring: Keyring
    chooser: Chooser
    retries: RetryBudget
    outbox: Outbox
    open_requests: OpenRequests
    clock: Clock
    limits: Limits
    metrics: HotMetrics
    session_key: Callable[[Mapping[bytes, bytes], Fields, str], str]
    admission: Admission
    client_address: Callable[[str, bytes], str]
    """The client's address, of the peer's and the `X-Forwarded-For` that it sent."""
    judge: CallJudge = NO_JUDGE

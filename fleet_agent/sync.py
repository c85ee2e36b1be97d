"""The long-poll with the control plane: whole state up, orders down, for as long as the agent lives.

Idempotent: any poll may be cut, lost or repeated. A poll in flight is dropped and sent anew as soon as there is
something to tell, so the control plane learns of a lost worker or a finished drain at once and not at the next poll.
When the control plane is away, or does not know this agent, it asks again with a growing pause; the cluster is none the
wiser.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import httpx
import structlog
from pydantic import ValidationError

from control_plane.contracts import ids
from control_plane.contracts.agent_sync import AgentSyncAnswer, AgentSyncRequest, ObservedDeployment
from control_plane.contracts.clock import Clock
from control_plane.contracts.sealed import SealBroken
from control_plane.contracts.signing import VerifyKey
from control_plane.contracts.transport import ControlPlaneAway, ControlPlaneClient, IdentityUnknown
from control_plane.contracts.version import RELEASE
from fleet_agent.core import Answered, LeaseMoved, LeaseTaken
from fleet_agent.executor import Executor

SYNC_PATH = "/agent/v1/sync"
ANSWER_MARGIN_S = 10.0
MAX_WAIT_S = 25.0
BUSY_WAIT_S = 1.0
MIN_PAUSE_S = 0.1
FIRST_RETRY_S = 0.5
MAX_PROBLEM = 300
MAX_RETRY_S = 7.0
RETRY_JITTER = 0.3
"""After an outage every agent is back within 9.1 s, which is less than its lease lasts, and they are not in step."""
SUPERSEDED_RETRY_S = 30.0

log = structlog.get_logger()


Renew = Callable[[], Awaitable[bool]]
"""Tries to get this agent a new identity; whether it has one."""


async def no_renewal() -> bool:
    """For an agent that cannot enrol again."""
    return False


class SyncLoop:
    """Owns this boot's conversation with the control plane. `synced_at_s` is monotonic, None before the first;
    `problem` says what is in the way, empty if nothing is."""

    def __init__(self, client: ControlPlaneClient, executor: Executor, clock: Clock,
                 observed: Callable[[], list[ObservedDeployment]], renew: Renew = no_renewal,
                 keys: Sequence[VerifyKey] = ()) -> None:
        self._client, self._executor, self._clock, self._observed = client, executor, clock, observed
        self._renew, self._keys = renew, list(keys)
        self._boot_id = ids.new_id("boot")
        self._epoch: int | None = None
        self._wait_s = 0.0
        self._retry_s = FIRST_RETRY_S
        self._told: AgentSyncRequest | None = None
        self._told_trouble = ""
        self._news = asyncio.Event()
        self.synced_at_s: float | None = None
        self.problem = "no answer from the control plane yet"

    def look(self) -> None:
        """Called after each observation: cuts the poll in flight short if it has become old news."""
        if self._told is not None and _gist(self._request()) != _gist(self._told):
            self._news.set()

    async def poll(self) -> float:
        """One exchange; returns how long to pause before the next, in seconds."""
        self._told = request = self._request()
        self._news.clear()
        try:
            answer = await self._post(request)
        except IdentityUnknown as error:
            self.problem = str(error)
            if self._is_news("identity_unknown"):
                log.error("identity_unknown", error=str(error))
            return MIN_PAUSE_S if await self._renew() else self._back_off()
        except ControlPlaneAway as error:
            self.problem = f"the control plane is away: {error}"
            if self._is_news("control_plane_away"):
                log.warning("control_plane_away", error=str(error))
            return self._back_off()
        if answer is None:
            return MIN_PAUSE_S
        return self._take(answer)

    def _request(self) -> AgentSyncRequest:
        state = self._executor.state
        return AgentSyncRequest(
            boot_id=self._boot_id, release=RELEASE, epoch=self._epoch, seen_generation=state.generation,
            seen_epoch=state.epoch, lineage=state.lineage,
            deployments=self._observed(), acks=state.acks(),
            wait_s=min(self._wait_s, BUSY_WAIT_S) if state.has_open_commands else self._wait_s)

    async def _post(self, request: AgentSyncRequest) -> httpx.Response | None:
        """The answer, or None when there was something newer to tell before it came."""
        content = request.model_dump_json().encode()
        post = asyncio.ensure_future(self._client.post(SYNC_PATH, content, request.wait_s + ANSWER_MARGIN_S))
        news = asyncio.ensure_future(self._news.wait())
        try:
            await asyncio.wait((post, news), return_when=asyncio.FIRST_COMPLETED)
            return post.result() if post.done() else None
        finally:
            post.cancel()
            news.cancel()
            await asyncio.gather(post, news, return_exceptions=True)

    def _take(self, answer: httpx.Response) -> float:
        match answer.status_code:
            case 200:
                return self._granted(answer)
            case 409:
                self._heard()
                self._epoch = None
                self._executor.handle(LeaseMoved())
                return MIN_PAUSE_S
            case 410:
                self._heard()
                # The epoch is kept: asking without one would take the lease from the newer boot.
                self._executor.handle(LeaseTaken())
                return ids.jitter(SUPERSEDED_RETRY_S)
            case status:
                if self._is_news("sync_refused"):
                    log.error("sync_refused", status=status, problem=answer.text[:MAX_PROBLEM])
                return self._back_off()

    def _granted(self, response: httpx.Response) -> float:
        try:
            answer = AgentSyncAnswer.model_validate_json(response.content)
        except ValidationError as error:
            if self._is_news("sync_answer_unreadable"):
                log.error("sync_answer_unreadable", faults=error.error_count())
            return self._back_off()
        before = self._executor.state
        self._executor.handle(Answered(answer, self._proved_lineage(answer)))
        state = self._executor.state
        if state.lineage > before.lineage:
            log.warning("lineage_raised", lineage=state.lineage, before=before.lineage)
        if (answer.lineage, answer.epoch) != (state.lineage, state.epoch):
            return self._back_off()
        self._epoch, self.synced_at_s, self.problem = answer.epoch, self._clock.monotonic_s(), ""
        self._wait_s = max(0.0, min(answer.next_wait_s, MAX_WAIT_S))
        if answer.desired is not None and answer.desired.generation != state.generation:
            return self._back_off()  # refused; it will be sent again at once, so do not ask at once
        self._heard()
        self._retry_s = FIRST_RETRY_S
        return MIN_PAUSE_S

    def _proved_lineage(self, answer: AgentSyncAnswer) -> int:
        """The lineage that the control plane's signature proves; 0 if the answer holds no proof."""
        if answer.recovery is None:
            return 0
        try:
            return answer.recovery.open(self._keys).lineage
        except SealBroken as error:
            log.error("recovery_refused", error=str(error))
            return 0

    def _is_news(self, trouble: str) -> bool:
        """Whether this is in the way since now: it is logged once, for an outage may last for days."""
        was_told, self._told_trouble = self._told_trouble, trouble
        return was_told != trouble

    def _heard(self) -> None:
        """The control plane has an answer for this agent."""
        if self._told_trouble:
            log.info("control_plane_back")
        self._told_trouble = ""

    def _back_off(self) -> float:
        pause_s = ids.jitter(self._retry_s, RETRY_JITTER)
        self._retry_s = min(2 * self._retry_s, MAX_RETRY_S)
        self._wait_s = 0.0
        return pause_s


def _gist(request: AgentSyncRequest) -> object:
    """What is worth a poll of its own: everything but the counts of requests, which always change."""
    deployments = [d.model_copy(update={"inflight": None, "queued": None}) for d in request.deployments]
    return request.seen_generation, request.acks, deployments

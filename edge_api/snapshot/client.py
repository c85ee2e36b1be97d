"""The edge's one poll of the control plane: snapshots, revocations and changes of keys down, acknowledgements and open
requests up.

A snapshot is put to use only if its signature, its meaning and its age are right; else the one in use stays and the
next poll says why (NACK). While nobody answers, or nobody knows this edge, it goes on with what it has, for ever.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

import httpx
import structlog
from pydantic import ValidationError

from control_plane.contracts import ids
from control_plane.contracts.edge_sync import MAX_ENDED_KEYS, EdgeSyncAnswer, EdgeSyncRequest, Nack
from control_plane.contracts.evidence import QualityMinute, Vote
from control_plane.contracts.snapshot import SignedSnapshot, Snapshot, SnapshotRefused, is_newer
from control_plane.contracts.transport import ControlPlaneAway, IdentityUnknown
from control_plane.contracts.version import RELEASE
from control_plane.contracts.wire import Wire
from edge_api.auth import Keyring
from edge_api.identity import ControlPlaneLink
from edge_api.metrics import Metrics
from edge_api.open_requests import OpenRequests
from edge_api.override.board import Overrides
from edge_api.snapshot.holder import TableHolder
from edge_api.snapshot.store import SnapshotStore

PATH = "/edge/v1/sync"
ANSWER_MARGIN_S = 10.0
FIRST_BACKOFF_S = 0.25
LONGEST_BACKOFF_S = 3.0
QUIET_PAUSE_S = 0.1
SHORTEST_WAIT_S = 0.1
LONGEST_WAIT_S = 60.0
SHORTEST_REFUSAL_S = 1.0
LONGEST_REFUSAL_S = 3.0
MAX_NACK_CHARS = 500
MAX_VOTES = 1_000
LOOK_S = 0.25
"""How often a poll that waits is looked at for votes that have changed since."""

log = structlog.get_logger()


Renew = Callable[[], Awaitable[bool]]
"""Tries to get this edge a new identity; whether it has one."""


async def no_renewal() -> bool:
    """For an edge that cannot enrol again."""
    return False


class _Claim(Wire):
    """The part of a snapshot that names it."""

    lineage: int
    version: int


def check_loss(candidate: Snapshot, current: Snapshot | None) -> None:
    """Refuses a snapshot of the same lineage that drops a model without a word: a model that cannot be routed is
    still listed, with its reason.

    Raises:
        SnapshotRefused: a model is gone.
    """
    if current is None or candidate.lineage > current.lineage:
        return
    lost = {model.id for model in current.models} - {model.id for model in candidate.models}
    if lost:
        raise SnapshotRefused(f"model {min(lost)} is gone without a reason")


class Evidence(Protocol):
    """What this edge says of datacenters; `arrived` is told when a report is with the control plane."""

    def votes(self) -> list[Vote]: ...

    def minutes(self) -> list[QualityMinute]: ...

    def streams(self) -> Mapping[str, int]: ...

    def sessions(self) -> Mapping[str, int]: ...

    def arrived(self) -> None: ...


class SyncClient:
    """Owns the poll's state: what was refused, how long to wait, and how many edges the control plane knows alive.
    Without `evidence` it says nothing of datacenters but what is open there."""

    def __init__(
        self, link: ControlPlaneLink, holder: TableHolder, store: SnapshotStore, keyring: Keyring,
        open_requests: OpenRequests, boot_id: str, poll_wait_s: float, metrics: Metrics,
        renew: Renew = no_renewal, overrides: Overrides | None = None, override_url: str | None = None,
        on_lineage: Callable[[], None] = lambda: None,
    ) -> None:
        self._link, self._holder, self._store, self._keyring = link, holder, store, keyring
        self._open_requests, self._boot_id, self._wait_s, self._metrics = open_requests, boot_id, poll_wait_s, metrics
        self._renew, self._overrides, self._override_url = renew, overrides, override_url
        self._on_lineage = on_lineage
        self._lineage = holder.snapshot.lineage if holder.snapshot else 0
        self.evidence: Evidence | None = None
        self._nack: Nack | None = None
        self._refusals = 0
        self._brought_news = False
        self.live_edges = 1
        self.problem = "no answer from the control plane yet"

    async def run(self) -> None:
        """Polls for ever."""
        backoff_s, told = FIRST_BACKOFF_S, ""
        while True:
            try:
                await self.poll_once()
            except ControlPlaneAway as error:
                is_unknown = isinstance(error, IdentityUnknown)
                event = "identity_unknown" if is_unknown else "control_plane_away"
                self.problem = str(error) if is_unknown else f"control plane away: {error}"
                self._metrics.control_plane_away.set(1)
                if event != told:  # once: an outage may last for days
                    log.warning("identity_unknown" if is_unknown else "control_plane_away", error=str(error))
                told = event
                if is_unknown and await self._renew():
                    continue
                await asyncio.sleep(ids.jitter(backoff_s))
                backoff_s = min(2 * backoff_s, LONGEST_BACKOFF_S)
            else:
                if told:
                    log.info("control_plane_back")
                self._metrics.control_plane_away.set(0)
                backoff_s, told = FIRST_BACKOFF_S, ""
                await asyncio.sleep(self._pause_s())

    async def poll_once(self) -> None:
        """One poll; what it brought is in use, and on disk, when this returns. One that waits is cut short when there
        is another vote to cast: that goes out with the next, at once.

        Raises:
            ControlPlaneAway: nobody answered, or the answer cannot be used.
        """
        request = self._request()
        answer = await self._post(request)
        if answer is None:
            self._brought_news = True
            return
        if answer.status_code != httpx.codes.OK:
            raise ControlPlaneAway(f"sync was refused with HTTP {answer.status_code}")
        try:
            news = EdgeSyncAnswer.model_validate_json(answer.content)
        except ValidationError as error:
            raise ControlPlaneAway(f"an answer that is no EdgeSyncAnswer: {error.error_count()} faults") from error
        self._wait_s = min(max(news.next_wait_s, SHORTEST_WAIT_S), LONGEST_WAIT_S)
        self._brought_news = bool(news.snapshot or news.revocations or news.changes)
        self.live_edges = max(news.live_edges, 1)
        self._keyring.told(request.ended_keys)
        self._keyring.revoke(news.revocations)
        self._keyring.change(news.changes)
        if self.evidence is not None:
            self.evidence.arrived()
        if self._overrides is not None:
            await self._forget_reported(self._overrides, news.overrides_taken)
        if news.snapshot is not None:
            await self._consider(news.snapshot)
        elif self._nack is None:
            self.problem = "" if self._holder.current else "the control plane has no routing snapshot yet"

    async def _post(self, request: EdgeSyncRequest) -> httpx.Response | None:
        """The answer; null when the poll was cut short. A poll may be repeated, so nothing is lost with it."""
        posted = asyncio.ensure_future(self._link.post(
            PATH, request.model_dump_json().encode(), request.wait_s + ANSWER_MARGIN_S))
        try:
            while not (await asyncio.wait({posted}, timeout=LOOK_S))[0]:
                if self.evidence is not None and _verdicts(self.evidence.votes()) != _verdicts(request.votes):
                    return None
            return posted.result()
        finally:
            posted.cancel()
            await asyncio.gather(posted, return_exceptions=True)

    async def _forget_reported(self, overrides: Overrides, taken: list[str]) -> None:
        try:
            await overrides.reported(taken)
        except OSError as error:
            log.error("overrides_not_stored", error=str(error))

    async def _consider(self, signed: SignedSnapshot) -> None:
        """Takes a snapshot or notes why not."""
        try:
            snapshot = self._open(signed)
        except SnapshotRefused as refusal:
            self._refuse(signed, str(refusal))
            return
        self._holder.take(snapshot)
        self._begin(snapshot.lineage)
        self._nack, self._refusals, self.problem = None, 0, ""
        self._metrics.snapshot_in_use(snapshot)
        log.info("snapshot_taken", lineage=snapshot.lineage, version=snapshot.version)
        try:
            await asyncio.to_thread(self._store.save, signed)
        except OSError as error:
            log.error("snapshot_not_stored", error=str(error))

    def _begin(self, lineage: int) -> None:
        """Of a snapshot of a new lineage: what the older one's control plane stored may be lost with it."""
        before, self._lineage = self._lineage, lineage
        self._keyring.follow(lineage)
        if before and lineage > before:
            log.warning("lineage_raised", lineage=lineage, before=before)
            self._on_lineage()

    def _open(self, signed: SignedSnapshot) -> Snapshot:
        identity, current = self._link.identity, self._holder.snapshot
        snapshot = signed.open(identity.control_plane_keys if identity else [])
        if not is_newer(snapshot, current) and current is not None:
            raise SnapshotRefused(
                f"{snapshot.lineage}.{snapshot.version} is not newer than {current.lineage}.{current.version} in use")
        check_loss(snapshot, current)
        return snapshot

    def _refuse(self, signed: SignedSnapshot, error: str) -> None:
        lineage, version = _claimed_version(signed)
        self._nack = Nack(lineage=lineage, version=version, error=error[:MAX_NACK_CHARS])
        self._refusals += 1
        self.problem = f"the last snapshot was refused: {error}"
        self._metrics.snapshots_refused.inc()
        log.error("snapshot_refused", lineage=lineage, version=version, error=error)

    def _pause_s(self) -> float:
        """After news none, so that an acknowledgement or the first refusal goes out at once; but a control plane that
        offers the same bad snapshot again and again is asked less and less often."""
        if not self._brought_news:
            return ids.jitter(QUIET_PAUSE_S)
        if self._refusals <= 1:
            return 0.0
        return ids.jitter(min(SHORTEST_REFUSAL_S * 2.0 ** min(self._refusals - 2, 10), LONGEST_REFUSAL_S))

    def _request(self) -> EdgeSyncRequest:
        current = self._holder.snapshot
        listed = {datacenter.id: 0 for datacenter in current.datacenters} if current else {}
        return EdgeSyncRequest(
            boot_id=self._boot_id,
            release=RELEASE,
            acked_lineage=current.lineage if current else 0,
            acked_version=current.version if current else 0,
            nack=self._nack,
            revocations_after=self._keyring.revocations_after,
            changes_after=self._keyring.changes_after,
            open_requests=listed | self._open_requests.counts(),
            ended_keys=self._keyring.untold(MAX_ENDED_KEYS),
            overrides=self._overrides.reports() if self._overrides else [],
            override_url=self._override_url,
            wait_s=self._wait_s,
            **self._seen(),
        )

    def _seen(self) -> dict[str, Any]:
        """What this edge says of datacenters."""
        evidence = self.evidence
        if evidence is None:
            return {}
        return {"votes": evidence.votes()[:MAX_VOTES], "minutes": evidence.minutes(),
                "open_streams": dict(evidence.streams()), "sessions": dict(evidence.sessions())}


def _verdicts(votes: list[Vote]) -> set[tuple[str, str]]:
    """What votes say, whatever the time and the words."""
    return {(vote.datacenter_id, vote.verdict) for vote in votes}


def _claimed_version(signed: SignedSnapshot) -> tuple[int, int]:
    """What a refused snapshot says it is, for the report only; (0, 0) if it does not even say that."""
    try:
        claimed = _Claim.model_validate_json(signed.body)
    except ValidationError:
        return 0, 0
    return claimed.lineage, claimed.version

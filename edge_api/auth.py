"""Who a key speaks for. Keys are known by digest only: looked up once, cached, kept on disk, revoked by a delta stream.

While the control plane is away cached keys are served and unknown ones cannot be judged (`KeyDirectoryAway`, 503,
never 401). Unknown keys are asked for once at a time, remembered as unknown for 2 s, and limited by client address,
so that guessing costs the control plane nothing. A key in use is looked up again now and then in the background: it
may have changed, or its revocation may have been missed while this edge was down. When a team has changed, its keys are
looked up again at once, and serve as they were known until that is answered.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from math import inf

import httpx
import structlog
from pydantic import ValidationError

from control_plane.contracts import ids
from control_plane.contracts.clock import Clock
from control_plane.contracts.keys import KeyLookup, Principal, Revocation, TeamChange
from control_plane.contracts.transport import ControlPlaneAway
from edge_api.client_address import UnknownKeyLimit
from edge_api.hot.services import KeyDirectoryAway, TooManyUnknownKeys
from edge_api.identity import ControlPlaneLink
from edge_api.key_store import KeyStore, StoredKeys
from edge_api.metrics import Metrics

PATH = "/edge/v1/keys/lookup"
LOOKUP_DEADLINE_S = 3.0
UNKNOWN_S = 2.0
MAX_UNKNOWN = 10_000
MAX_REVOKED = 100_000
MAX_LOOKUPS = 64
MAX_STALE = 1_000
MAX_REFRESHES = 8
MAX_CHANGED_TEAMS = 10_000
SAVE_AFTER_S = 0.5
AWAY_PAUSE_S = 5.0

log = structlog.get_logger()


@dataclass(slots=True)
class _Entry:
    """A cached principal, and when the question was asked that confirmed it last, in monotonic seconds."""

    principal: Principal
    confirmed_s: float


class Keyring:
    """Owns the cached principals, at most `size` of them, and where the streams stand.

    `revocations_after` and `changes_after` are the last revocation and the last change that were applied; they are
    stored with the keys that they were applied to, and with the lineage that they are of.
    """

    def __init__(
            self, link: ControlPlaneLink, store: KeyStore, clock: Clock, metrics: Metrics, size: int,
            refresh_s: float) -> None:
        self._link, self._store, self._clock, self._metrics = link, store, clock, metrics
        self._size, self._refresh_s = size, refresh_s
        self._entries: OrderedDict[str, _Entry] = OrderedDict()
        self._unknown: OrderedDict[str, float] = OrderedDict()
        self._ends_s: OrderedDict[str, float] = OrderedDict()  # Unix time from which a key is refused, 0: always
        self._team_changed_s: OrderedDict[str, float] = OrderedDict()
        self._lookups: dict[str, asyncio.Task[Principal | None]] = {}
        self._limit = UnknownKeyLimit(clock)
        self._stale: OrderedDict[str, None] = OrderedDict()
        self._wake_refresh, self._changed = asyncio.Event(), asyncio.Event()
        self.revocations_after = self.changes_after = self._lineage = 0
        self._untold: list[str] = []

    def restore(self) -> None:
        """Takes over what an earlier process stored; each key is confirmed in the background at its first use."""
        stored = self._store.load()
        self.revocations_after, self.changes_after = stored.revocations_after, stored.changes_after
        self._lineage = stored.lineage
        self._ends_s.update(dict.fromkeys(stored.revoked, 0.0) | stored.ending)
        for digest, principal in stored.keys.items():
            self._entries[digest] = _Entry(principal, -self._refresh_s)
        self._metrics.cached_keys.set(len(self._entries))

    def cached(self, digest: str) -> Principal | None:
        """Whom the key speaks for, if that is known here. Never a revoked or an expired key."""
        entry = self._entries.get(digest)
        if entry is None:
            return None
        principal = entry.principal
        if principal.expires_at_s is not None and principal.expires_at_s <= self._clock.time_s():
            self._note_end(digest, principal.expires_at_s)  # certain from now on, whoever is away
            self._forget(digest)
            return None
        self._entries.move_to_end(digest)
        if self._clock.monotonic_s() - entry.confirmed_s >= self._refresh_s:
            self._queue_refresh(digest)
        return principal

    async def find(self, digest: str, client_address: str) -> Principal | None:
        """Whom the key speaks for, asking the control plane if need be. None: nobody, and that is certain.

        Raises:
            KeyDirectoryAway: nobody can say now.
            TooManyUnknownKeys: this client address asked for too many unknown keys.
        """
        if (principal := self.cached(digest)) is not None:
            return principal
        if self._has_ended(digest) or self._unknown.get(digest, 0.0) > self._clock.monotonic_s():
            return None
        task = self._lookups.get(digest)
        if task is None:
            task = self._begin_lookup(digest, client_address)
        return await asyncio.shield(task)  # a client that leaves must not take the answer from the others

    def revoke(self, revocations: Iterable[Revocation]) -> None:
        """Stops serving keys for ever: at once, or from the time on that the revocation names, whoever is away then."""
        for revocation in revocations:
            digest = revocation.digest
            self._note_end(digest, revocation.effective_at_s or 0.0)
            if self._has_ended(digest):
                self._entries.pop(digest, None)
            elif (entry := self._entries.get(digest)) is not None:
                entry.principal = _ending(entry.principal, self._ends_s[digest])
            self.revocations_after = max(self.revocations_after, revocation.seq)
            self._changed.set()
        self._metrics.cached_keys.set(len(self._entries))

    def change(self, changes: Iterable[TeamChange]) -> None:
        """Has the keys of these teams looked up again, now as far as the queue reaches, the rest at their next use."""
        teams = set()
        for change in changes:
            teams.add(change.team_id)
            self._team_changed_s[change.team_id] = self._clock.monotonic_s()
            self._team_changed_s.move_to_end(change.team_id)
            self.changes_after = max(self.changes_after, change.seq)
            self._changed.set()
        while len(self._team_changed_s) > MAX_CHANGED_TEAMS:
            self._team_changed_s.popitem(last=False)
        if teams:
            for digest, entry in self._entries.items():
                if entry.principal.team_id in teams:
                    entry.confirmed_s = -inf
                    self._queue_refresh(digest)

    def follow(self, lineage: int) -> None:
        """A snapshot of `lineage` is in use. In a new one the streams are numbered anew, and read from their start.
        Keys that ended stay ended here, and the control plane is told which, for it may have forgotten."""
        if lineage <= self._lineage:
            return
        if self._lineage:
            log.warning("key_streams_begin_anew", lineage=lineage, ended=len(self._ends_s))
            self._untold = [digest for digest in self._ends_s if self._has_ended(digest)]
        self._lineage = lineage
        self.revocations_after = self.changes_after = 0
        self._changed.set()

    def untold(self, limit: int) -> list[str]:
        """Digests of keys that have ended, which the control plane of this lineage was not told yet."""
        return self._untold[:limit]

    def told(self, digests: Iterable[str]) -> None:
        """The control plane was told of these."""
        done = set(digests)
        self._untold = [digest for digest in self._untold if digest not in done]

    async def run_refresh(self) -> None:
        """Looks keys up again, a few at a time, for ever."""
        while True:
            await self._wake_refresh.wait()
            self._wake_refresh.clear()
            while self._stale:
                batch = list(islice(self._stale, MAX_REFRESHES))
                if not all(await asyncio.gather(*map(self._refresh, batch))):
                    await asyncio.sleep(ids.jitter(AWAY_PAUSE_S))
                for digest in batch:
                    del self._stale[digest]
                    if digest in self._entries and self._entries[digest].confirmed_s == -inf:  # changed meanwhile
                        self._queue_refresh(digest)

    async def run_save(self) -> None:
        """Stores what changed, many changes at once, for ever; with many keys less often, so that it stays a twentieth
        of the time."""
        took_s = 0.0
        while True:
            await self._changed.wait()
            await asyncio.sleep(max(SAVE_AFTER_S, 20 * took_s))
            started_s = self._clock.monotonic_s()
            try:
                await self.save()
            except OSError as error:
                log.error("keys_not_stored", error=str(error))
                self._changed.set()
            took_s = self._clock.monotonic_s() - started_s

    async def save(self) -> None:
        """Stores the keys and where the revocations stand.

        Raises:
            OSError: the disk failed.
        """
        self._changed.clear()
        await asyncio.to_thread(self._store.save, StoredKeys(
            lineage=self._lineage, revocations_after=self.revocations_after, changes_after=self.changes_after,
            revoked=[digest for digest, end_s in self._ends_s.items() if not end_s],
            ending={digest: end_s for digest, end_s in self._ends_s.items() if end_s},
            keys={digest: entry.principal for digest, entry in self._entries.items()}))

    def _begin_lookup(self, digest: str, client_address: str) -> asyncio.Task[Principal | None]:
        if not self._limit.take(client_address):
            self._metrics.key_lookups.labels("limited").inc()
            raise TooManyUnknownKeys(client_address)
        if len(self._lookups) >= MAX_LOOKUPS:
            self._limit.give_back(client_address)
            raise KeyDirectoryAway("too many look-ups at once")
        task = asyncio.create_task(self._look_up_unknown(digest, client_address))
        task.add_done_callback(lambda done: self._end_lookup(digest, done))
        self._lookups[digest] = task
        return task

    def _end_lookup(self, digest: str, task: asyncio.Task[Principal | None]) -> None:
        del self._lookups[digest]
        if not task.cancelled():
            task.exception()  # whoever waits has it; a lost one is not worth asyncio's warning

    async def _look_up_unknown(self, digest: str, client_address: str) -> Principal | None:
        asked_s = self._clock.monotonic_s()
        try:
            principal = await self._ask(digest)
        except KeyDirectoryAway:
            self._metrics.key_lookups.labels("away").inc()
            self._limit.give_back(client_address)
            raise
        self._metrics.key_lookups.labels("found" if principal else "unknown").inc()
        if principal is None:
            self._note_unknown(digest)
            return None
        self._limit.give_back(client_address)
        return self._keep(digest, principal, asked_s)

    def _queue_refresh(self, digest: str) -> None:
        if len(self._stale) < MAX_STALE:
            self._stale[digest] = None
            self._wake_refresh.set()

    async def _refresh(self, digest: str) -> bool:
        """Whether the control plane could be asked."""
        asked_s = self._clock.monotonic_s()
        try:
            principal = await self._ask(digest)
        except KeyDirectoryAway:
            return False
        if principal is not None:
            self._keep(digest, principal, asked_s)
        elif digest in self._entries:
            log.info("key_gone", key_id=self._entries[digest].principal.key_id)
            self._forget(digest)
        return True

    async def _ask(self, digest: str) -> Principal | None:
        try:
            answer = await self._link.post(
                PATH, KeyLookup(digest=digest).model_dump_json().encode(), LOOKUP_DEADLINE_S)
        except ControlPlaneAway as error:
            raise KeyDirectoryAway(str(error)) from error
        if answer.status_code == httpx.codes.NOT_FOUND:
            return None
        try:
            if answer.status_code == httpx.codes.OK:
                return Principal.model_validate_json(answer.content)
        except ValidationError as error:
            raise KeyDirectoryAway(f"an answer that is no Principal: {error.error_count()} faults") from error
        raise KeyDirectoryAway(f"the look-up was refused with HTTP {answer.status_code}")

    def _keep(self, digest: str, principal: Principal, asked_s: float) -> Principal | None:
        """Caches a principal, unless its key was revoked while the answer was under way. An answer to a question that
        was asked before its team changed may be of before: it is asked again."""
        if self._has_ended(digest):
            return None
        principal = _ending(principal, self._ends_s.get(digest, inf))
        former = self._entries.get(digest)
        is_older = asked_s < self._team_changed_s.get(principal.team_id, -inf)
        self._entries[digest] = _Entry(principal, -inf if is_older else asked_s)
        self._entries.move_to_end(digest)
        if len(self._entries) > self._size:
            self._entries.popitem(last=False)
        if former is None or former.principal != principal:
            self._changed.set()
        self._metrics.cached_keys.set(len(self._entries))
        return self.cached(digest)

    def _note_end(self, digest: str, end_s: float) -> None:
        """The earliest end counts."""
        self._ends_s[digest] = min(end_s, self._ends_s.get(digest, inf))
        if len(self._ends_s) > MAX_REVOKED:
            self._ends_s.popitem(last=False)

    def _has_ended(self, digest: str) -> bool:
        return self._ends_s.get(digest, inf) <= self._clock.time_s()

    def _forget(self, digest: str) -> None:
        self._entries.pop(digest, None)
        self._metrics.cached_keys.set(len(self._entries))
        self._changed.set()

    def _note_unknown(self, digest: str) -> None:
        self._unknown[digest] = self._clock.monotonic_s() + UNKNOWN_S
        self._unknown.move_to_end(digest)
        if len(self._unknown) > MAX_UNKNOWN:
            self._unknown.popitem(last=False)


def _ending(principal: Principal, end_s: float) -> Principal:
    """The principal, ending no later than `end_s`."""
    if (inf if principal.expires_at_s is None else principal.expires_at_s) <= end_s:
        return principal
    return principal.model_copy(update={"expires_at_s": end_s})

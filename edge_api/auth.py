"""Who a key speaks for. Keys are known by digest only: looked up once, cached, kept on disk, revoked by a delta stream.

While the control plane is away cached keys are served and unknown ones cannot be judged (`KeyDirectoryAway`, 503,
never 401). Unknown keys are asked for once at a time, remembered as unknown for 2 s, and limited by client address,
so that guessing costs the control plane nothing. A key in use is looked up again now and then in the background: it
may have changed, or its revocation may have been missed while this edge was down.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv6Address, IPv6Network

import httpx
import structlog
from pydantic import ValidationError

from control_plane.contracts import ids
from control_plane.contracts.clock import Clock
from control_plane.contracts.keys import KeyLookup, Principal, Revocation
from control_plane.contracts.transport import ControlPlaneAway
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
UNKNOWN_BURST = 20.0
UNKNOWN_PER_S = 1.0
MAX_ADDRESSES = 10_000
MAX_STALE = 1_000
SAVE_AFTER_S = 0.5
AWAY_PAUSE_S = 5.0

log = structlog.get_logger()


@dataclass(slots=True)
class _Entry:
    """A cached principal and when it was last confirmed, in monotonic seconds."""

    principal: Principal
    confirmed_s: float


class UnknownKeyLimit:
    """How many unknown keys a client address may ask for: a bucket each, of at most `MAX_ADDRESSES` addresses. The
    addresses of one IPv6 network of 64 bits share a bucket: whoever has one of them has them all."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, address: str) -> bool:
        """Takes one look-up, if there is one left."""
        address = _network(address)
        left = self._left(address)
        if left < 1:
            return False
        self._put(address, left - 1)
        return True

    def give_back(self, address: str) -> None:
        """The key was known after all, or nobody answered."""
        address = _network(address)
        self._put(address, min(self._left(address) + 1, UNKNOWN_BURST))

    def _left(self, address: str) -> float:
        left, since_s = self._buckets.get(address, (UNKNOWN_BURST, 0.0))
        return min(UNKNOWN_BURST, left + UNKNOWN_PER_S * (self._clock.monotonic_s() - since_s))

    def _put(self, address: str, left: float) -> None:
        self._buckets[address] = (left, self._clock.monotonic_s())
        self._buckets.move_to_end(address)
        if len(self._buckets) > MAX_ADDRESSES:
            self._buckets.popitem(last=False)


def _network(address: str) -> str:
    """What stands for the address in the limit."""
    if ":" not in address:
        return address
    six = IPv6Address(address)
    return str(six.ipv4_mapped or IPv6Network((int(six) >> 64 << 64, 64)))


class Keyring:
    """Owns the cached principals, at most `size` of them, and where the revocations stand.

    `revocations_after` is the last revocation that was applied; it is stored with the keys that it was applied to.
    """

    def __init__(
            self, link: ControlPlaneLink, store: KeyStore, clock: Clock, metrics: Metrics, size: int,
            refresh_s: float) -> None:
        self._link, self._store, self._clock, self._metrics = link, store, clock, metrics
        self._size, self._refresh_s = size, refresh_s
        self._entries: OrderedDict[str, _Entry] = OrderedDict()
        self._unknown: OrderedDict[str, float] = OrderedDict()
        self._revoked: OrderedDict[str, None] = OrderedDict()
        self._lookups: dict[str, asyncio.Task[Principal | None]] = {}
        self._limit = UnknownKeyLimit(clock)
        self._stale: OrderedDict[str, None] = OrderedDict()
        self._wake_refresh, self._changed = asyncio.Event(), asyncio.Event()
        self.revocations_after = 0

    def restore(self) -> None:
        """Takes over what an earlier process stored; each key is confirmed in the background at its first use."""
        stored = self._store.load()
        self.revocations_after = stored.revocations_after
        self._revoked.update(dict.fromkeys(stored.revoked))
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
            self._forget(digest)
            return None
        self._entries.move_to_end(digest)
        if self._clock.monotonic_s() - entry.confirmed_s >= self._refresh_s and len(self._stale) < MAX_STALE:
            self._stale[digest] = None
            self._wake_refresh.set()
        return principal

    async def find(self, digest: str, client_address: str) -> Principal | None:
        """Whom the key speaks for, asking the control plane if need be. None: nobody, and that is certain.

        Raises:
            KeyDirectoryAway: nobody can say now.
            TooManyUnknownKeys: this client address asked for too many unknown keys.
        """
        if (principal := self.cached(digest)) is not None:
            return principal
        if digest in self._revoked or self._unknown.get(digest, 0.0) > self._clock.monotonic_s():
            return None
        task = self._lookups.get(digest)
        if task is None:
            task = self._begin_lookup(digest, client_address)
        return await asyncio.shield(task)  # a client that leaves must not take the answer from the others

    def revoke(self, revocations: Iterable[Revocation]) -> None:
        """Stops serving keys, at once and for ever."""
        for revocation in revocations:
            self._revoked[revocation.digest] = None
            self._entries.pop(revocation.digest, None)
            self.revocations_after = max(self.revocations_after, revocation.seq)
            self._changed.set()
        while len(self._revoked) > MAX_REVOKED:
            self._revoked.popitem(last=False)
        self._metrics.cached_keys.set(len(self._entries))

    async def run_refresh(self) -> None:
        """Looks keys in use up again, one after the other, for ever."""
        while True:
            await self._wake_refresh.wait()
            self._wake_refresh.clear()
            while self._stale:
                digest = next(iter(self._stale))
                try:
                    await self._refresh(digest)
                except KeyDirectoryAway:
                    await asyncio.sleep(ids.jitter(AWAY_PAUSE_S))
                finally:
                    self._stale.pop(digest, None)

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
            revocations_after=self.revocations_after, revoked=list(self._revoked),
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
        return self._keep(digest, principal)

    async def _refresh(self, digest: str) -> None:
        principal = await self._ask(digest)
        if principal is not None:
            self._keep(digest, principal)
        elif digest in self._entries:
            log.info("key_gone", key_id=self._entries[digest].principal.key_id)
            self._forget(digest)

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

    def _keep(self, digest: str, principal: Principal) -> Principal | None:
        """Caches a principal, unless its key was revoked while the answer was under way."""
        if digest in self._revoked:
            return None
        former = self._entries.get(digest)
        self._entries[digest] = _Entry(principal, self._clock.monotonic_s())
        self._entries.move_to_end(digest)
        if len(self._entries) > self._size:
            self._entries.popitem(last=False)
        if former is None or former.principal != principal:
            self._changed.set()
        self._metrics.cached_keys.set(len(self._entries))
        return self.cached(digest)

    def _forget(self, digest: str) -> None:
        self._entries.pop(digest, None)
        self._metrics.cached_keys.set(len(self._entries))
        self._changed.set()

    def _note_unknown(self, digest: str) -> None:
        self._unknown[digest] = self._clock.monotonic_s() + UNKNOWN_S
        self._unknown.move_to_end(digest)
        if len(self._unknown) > MAX_UNKNOWN:
            self._unknown.popitem(last=False)

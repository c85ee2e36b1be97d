"""Verifies machines: whose signature it is, whether that identity still lives, and that nothing is replayed.

Public keys are kept in process for a few seconds (`identity_cache_s`, at most 5), so a revocation takes that long.
"""

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass

from control_plane import metrics
from control_plane.contracts.clock import Clock
from control_plane.contracts.enrolment import UNKNOWN_IDENTITY, IdentityKind
from control_plane.contracts.signing import (
    TIME_HEADER,
    BadSignature,
    Nonces,
    NotSigned,
    SignedRequest,
    VerifyKey,
    claimed_identity,
)
from control_plane.db import Database
from control_plane.errors import Unauthenticated
from control_plane.identity import repository

MAX_CACHED = 10_000


@dataclass(frozen=True, slots=True)
class Machine:
    """Who signed the request: believed, because the signature was checked."""

    id: str
    kind: IdentityKind
    subject: str


@dataclass(frozen=True, slots=True)
class _Known:
    machine: Machine
    key: VerifyKey
    until_s: float


class Identities:
    """The machine identities as this replica knows them."""

    def __init__(self, db: Database, clock: Clock, ttl_s: float) -> None:
        self._db, self._clock, self._ttl_s = db, clock, ttl_s
        self._known: OrderedDict[str, _Known] = OrderedDict()
        self._nonces = Nonces()

    async def verify(self, request: SignedRequest, headers: Mapping[str, str]) -> Machine:
        """Who signed `request`.

        Raises:
            Unauthenticated: unsigned, unknown, revoked, wrongly signed, too old, or seen before.
        """
        try:
            known = await self._find(claimed_identity(headers))
            request.check(headers, known.key, self._clock, self._nonces)
        except (NotSigned, BadSignature) as error:
            raise Unauthenticated(str(error)) from error
        metrics.MACHINE_CLOCK_OFFSET_S.labels(known.machine.kind.value, known.machine.id).set(
            float(headers[TIME_HEADER]) - self._clock.time_s())
        return known.machine

    async def _find(self, identity_id: str) -> _Known:
        now_s = self._clock.monotonic_s()
        known = self._known.get(identity_id)
        if known is None or known.until_s <= now_s:
            known = await self._load(identity_id, now_s + self._ttl_s)
        return known

    async def _load(self, identity_id: str, until_s: float) -> _Known:
        async with self._db.begin() as session:
            row = await repository.identity(session, identity_id)
        if row is None or row.revoked_at is not None:
            self._forget(identity_id)
            raise Unauthenticated(
                "the identity is unknown or revoked; enrol again with a new token", code=UNKNOWN_IDENTITY)
        known = _Known(Machine(row.id, row.kind, row.subject), VerifyKey.from_text(row.public_key), until_s)
        self._known[identity_id] = known
        self._known.move_to_end(identity_id)
        if len(self._known) > MAX_CACHED:
            self._forget(next(iter(self._known)))
        return known

    def _forget(self, identity_id: str) -> None:
        known = self._known.pop(identity_id, None)
        if known is not None:
            metrics.MACHINE_CLOCK_OFFSET_S.remove_by_labels({"identity": identity_id})

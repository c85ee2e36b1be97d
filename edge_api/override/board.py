"""The orders that this edge was given: which of them count now, and what they make of the snapshot in use.

An order is believed while the snapshot in use knows its key, so a key that is revoked takes its orders with it as soon
as a snapshot says so. It ends by the wall clock or by the monotonic one, whichever is first: a clock that is set back
does not prolong it.
"""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge

from control_plane.contracts.clock import Clock
from control_plane.contracts.override import (
    ACCEPTED,
    MAX_TTL_S,
    Override,
    OverrideAction,
    OverrideAnswer,
    OverrideOutcome,
    OverrideReport,
    OverrideStanding,
    OverrideView,
    SignedOverride,
)
from control_plane.contracts.sealed import SealBroken
from control_plane.contracts.signing import VerifyKey
from control_plane.contracts.snapshot import Snapshot
from edge_api.override.effect import apply
from edge_api.override.judge import is_lifted, judge
from edge_api.override.store import OrderStore, StoredOrder
from edge_api.snapshot.holder import TableHolder

TICK_S = 0.5

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Held:
    """An order that this edge keeps. `ends_s` is monotonic."""

    signed: SignedOverride
    order: Override
    ends_s: float
    is_reported: bool = False


class Figures:
    """The metrics of overrides."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.in_force = Gauge(
            "meridian_edge_overrides_in_force", "Operators' orders that beat the snapshot now.", registry=registry)
        self.orders = Counter(
            "meridian_edge_override_orders", "Orders that this edge was handed, by what became of them.", ["outcome"],
            registry=registry)


class Overrides:
    """Owns the orders, on disk too, and the effect that they have on the table in use."""

    def __init__(self, holder: TableHolder, store: OrderStore, clock: Clock, registry: CollectorRegistry,
                 name: Callable[[], str]) -> None:
        self._holder, self._store, self._clock, self._name = holder, store, clock, name
        self._figures = Figures(registry)
        self._held: list[Held] = []
        self._counting: list[str] = []
        self._suspended: frozenset[str] = frozenset()
        self._proofs: dict[tuple[str, str], bool] = {}
        self._saving = asyncio.Lock()
        holder.effect = self._effect

    def restore(self) -> None:
        """Takes over what an earlier process stored."""
        for stored in self._store.load():
            try:
                order = Override.model_validate_json(stored.signed.body)
            except ValueError as error:
                log.error("stored_override_refused", error=str(error))
                continue
            self._held.append(self._hold(stored.signed, order, stored.is_reported))
        self._holder.rebuild()

    async def take(self, signed: SignedOverride) -> OverrideAnswer:
        """Takes an order or says why not; it is on disk, and obeyed, when this returns.

        Raises:
            OSError: the disk failed; the order is not taken.
        """
        async with self._saving:
            outcome, message, order = self._judged(signed)
            if outcome is OverrideOutcome.TAKEN and order is not None:
                taken = [*self._held, self._hold(signed, order)]
                await self._save(taken)
                self._held = taken
                self._holder.rebuild()
        self._figures.orders.labels(outcome).inc()
        level = log.warning if outcome in ACCEPTED else log.error
        level("override_order", outcome=outcome.value, message=message, key_id=signed.key_id[:64],
              order=None if order is None else order.model_dump(mode="json"))
        return OverrideAnswer(edge=self._name(), outcome=outcome, message=message)

    def keys(self) -> dict[str, tuple[VerifyKey, str]]:
        """The operators' keys that the snapshot in use knows, with their names."""
        return _keys(self._holder.snapshot)

    def views(self) -> list[OverrideView]:
        """Every order that is kept, the oldest first."""
        keys, orders = self.keys(), [held.order for held in self._held]
        return [self._view(held, orders, keys) for held in self._held]

    def reports(self) -> list[OverrideReport]:
        """What to tell the control plane: what it does not have yet, and what counts now."""
        return [OverrideReport(signed=held.signed, view=view) for held, view in zip(
                    self._held, self.views(), strict=True)
                if not held.is_reported or view.state not in (OverrideStanding.LIFTED, OverrideStanding.EXPIRED)]

    async def reported(self, order_ids: Iterable[str]) -> None:
        """The control plane has these; those of them that are over are forgotten.

        Raises:
            OSError: the disk failed; they will be reported again.
        """
        known, now_s = set(order_ids), self._clock.time_s()
        if not known:
            return
        async with self._saving:
            held = [Held(one.signed, one.order, one.ends_s, one.is_reported or one.order.id in known)
                    for one in self._held]
            held = [one for one in held if not (one.is_reported and _is_forgettable(one.order, now_s))]
            if held != self._held:
                await self._save(held)
                self._held = held
                kept = {one.order.id for one in held}
                self._proofs = {name: proof for name, proof in self._proofs.items() if name[0] in kept}

    async def run(self) -> None:
        """Ends orders in time, for ever."""
        while True:
            await asyncio.sleep(TICK_S)
            if self._counting and self._counting != self._in_time(self._holder.snapshot):
                self._holder.rebuild()

    def _effect(self, snapshot: Snapshot) -> Snapshot:
        """The snapshot under the orders that count."""
        counting = self._in_time(snapshot)
        drains = [held.order for held in self._held if held.order.id in counting]
        effect = apply(snapshot, drains)
        if (counting, effect.suspended) != (self._counting, self._suspended):
            log.warning("overrides_changed", in_force=[one for one in counting if one not in effect.suspended],
                        suspended=sorted(effect.suspended))
        self._counting, self._suspended = counting, effect.suspended
        self._figures.in_force.set(len(counting) - len(effect.suspended))
        return effect.snapshot

    def _in_time(self, snapshot: Snapshot | None) -> list[str]:
        """The drains that are proved, not lifted and not over."""
        if not self._held:
            return []
        keys, orders = _keys(snapshot), [held.order for held in self._held]
        return [held.order.id for held in self._held if held.order.action is OverrideAction.DRAIN
                and self._state(held, orders, keys) in (OverrideStanding.IN_FORCE, OverrideStanding.SUSPENDED)]

    def _judged(self, signed: SignedOverride) -> tuple[OverrideOutcome, str, Override | None]:
        snapshot, name = self._holder.snapshot, self._name()
        if snapshot is None or not name:
            return OverrideOutcome.NOT_READY, "this edge has no snapshot yet, so it knows no operator's key", None
        try:
            order = signed.open([key for key, _ in self.keys().values()])
        except SealBroken as error:
            return OverrideOutcome.NOT_BELIEVED, f"the order is not believed: {error}", None
        drained = {held.order.datacenter for held in self._held
                   if held.order.id in self._counting and held.order.id not in self._suspended}
        outcome, message = judge(order, name, [held.order for held in self._held], sorted(drained), snapshot,
                                 self._clock.time_s())
        return outcome, message, order

    def _state(self, held: Held, orders: list[Override], keys: dict[str, tuple[VerifyKey, str]]) -> OverrideStanding:
        if self._clock.monotonic_s() >= held.ends_s or self._clock.time_s() >= held.order.expires_at_s:
            return OverrideStanding.EXPIRED
        if held.order.action is OverrideAction.DRAIN and is_lifted(held.order, orders):
            return OverrideStanding.LIFTED
        if not self._is_proved(held, keys):
            return OverrideStanding.UNPROVED
        return OverrideStanding.SUSPENDED if held.order.id in self._suspended else OverrideStanding.IN_FORCE

    def _is_proved(self, held: Held, keys: dict[str, tuple[VerifyKey, str]]) -> bool:
        """Whether the snapshot's keys prove the order. Each is checked once: a key's id is the digest of the key."""
        known = keys.get(held.signed.key_id)
        if known is None:
            return False
        name = (held.order.id, held.signed.key_id)
        if name not in self._proofs:
            try:
                held.signed.open([known[0]])
            except SealBroken as error:
                log.error("stored_override_refused", error=str(error), order_id=held.order.id)
                self._proofs[name] = False
            else:
                self._proofs[name] = True
        return self._proofs[name]

    def _view(self, held: Held, orders: list[Override], keys: dict[str, tuple[VerifyKey, str]]) -> OverrideView:
        order, known = held.order, keys.get(held.signed.key_id)
        return OverrideView(
            id=order.id, action=order.action, datacenter=order.datacenter, state=self._state(held, orders, keys),
            reason=order.reason, key_id=held.signed.key_id, key_name=known[1] if known else None,
            issued_at_s=order.issued_at_s, expires_at_s=order.expires_at_s, evacuate=order.evacuate, force=order.force)

    def _hold(self, signed: SignedOverride, order: Override, is_reported: bool = False) -> Held:
        left_s = min(order.expires_at_s - self._clock.time_s(), order.ttl_s)
        return Held(signed, order, self._clock.monotonic_s() + left_s, is_reported)

    async def _save(self, held: list[Held]) -> None:
        await asyncio.to_thread(
            self._store.save, [StoredOrder(signed=one.signed, is_reported=one.is_reported) for one in held])


def _keys(snapshot: Snapshot | None) -> dict[str, tuple[VerifyKey, str]]:
    told = snapshot.operator_keys if snapshot is not None else []
    keys = [(VerifyKey.from_text(key.public_key), key.name) for key in told]
    return {key.key_id: (key, name) for key, name in keys}


def _is_forgettable(order: Override, now_s: float) -> bool:
    """Whether nothing depends on the order any more. What a lift took back may come again until the longest time that
    an order can last is over."""
    kept_until_s = order.issued_at_s + MAX_TTL_S if order.action is OverrideAction.LIFT else order.expires_at_s
    return now_s > kept_until_s

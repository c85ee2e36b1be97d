"""Lends money to edges: closes what they gave back, then grants what they ask for. One transaction, safe to repeat.

The books are read in this order: leases first, then spend. An edge closes a lease only after the records that it paid
for were booked, so what is no lease any more is spend already, and nothing falls between the two.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime

from sqlalchemy.ext.asyncio import AsyncSession

from control_plane.billing import repository, service
from control_plane.billing.budget import windows
from control_plane.billing.lease import Purse
from control_plane.billing.models import MoneyLease
from control_plane.billing.standing import ScopeKey
from control_plane.contracts.money import LeaseAsk, LeaseGrant, MoneyLeaseAnswer, MoneyLeaseRequest
from control_plane.errors import Conflict, Unavailable


async def lend(session: AsyncSession, edge_id: str, asked: MoneyLeaseRequest, now: datetime) -> MoneyLeaseAnswer:
    """The edge's leases, closed and opened as `asked`.

    Raises:
        Conflict: an id belongs to another edge or another scope, or is named twice; nothing changed.
        Unavailable: another request opened or closed one of the ids at this moment; nothing changed.
    """
    asks = {ask.lease_id: ask for ask in asked.open}
    if len(asks) < len(asked.open):
        raise Conflict("a lease is asked for twice in one request", code="lease_repeated")
    keys = {(ask.scope, ask.scope_id) for ask in asked.open}
    await repository.lock_scopes(session, keys)
    known = {lease.id: lease for lease in await repository.leases(session, {*asks, *asked.close})}
    _check_owner(edge_id, known, asks)
    await _close(session, edge_id, asked, known)
    known = {lease.id: lease for lease in await repository.leases(session, set(asks))}
    purses = await _purses(session, keys, now)
    grants = [_grant(ask, known.get(ask.lease_id), purses[ask.scope, ask.scope_id]) for ask in asked.open]
    await _store(session, edge_id, asked.boot_id,
                 [(ask, grant) for ask, grant in zip(asked.open, grants, strict=True)
                  if grant.granted_nusd and ask.lease_id not in known])
    return MoneyLeaseAnswer(grants=grants)


def _check_owner(edge_id: str, known: Mapping[str, MoneyLease], asks: Mapping[str, LeaseAsk]) -> None:
    for lease in known.values():
        if lease.edge_id != edge_id:
            raise Conflict(f"lease {lease.id!r} belongs to another edge", code="lease_of_another_edge")
        ask = asks.get(lease.id)
        if ask and lease.scope is not None and (lease.scope, lease.scope_id) != (ask.scope, ask.scope_id):
            raise Conflict(f"lease {lease.id!r} is of {lease.scope} {lease.scope_id}", code="lease_of_another_scope")


async def _close(session: AsyncSession, edge_id: str, asked: MoneyLeaseRequest,
                 known: Mapping[str, MoneyLease]) -> None:
    """An id that is closed before it was opened is remembered as closed: its late ask must not open it for ever."""
    if asked.close:
        await repository.close_leases(session, edge_id, asked.close)
    if unknown := set(asked.close) - set(known):
        await repository.add_closed(session, edge_id, asked.boot_id, unknown)
    if asked.earlier_boots_shipped:
        await repository.close_earlier_boots(session, edge_id, asked.boot_id)
    await repository.forget_closed(session, edge_id)


async def _purses(session: AsyncSession, keys: set[ScopeKey], now: datetime) -> dict[ScopeKey, Purse]:
    if not keys:
        return {}
    standings, starts = await service.standings(session, keys, now), windows(now)
    return {key: Purse(standing.bounds(starts)) for key, standing in standings.items()}


def _grant(ask: LeaseAsk, lease: MoneyLease | None, purse: Purse) -> LeaseGrant:
    """What was granted under this id, nothing if it is closed, or a new grant. A refusal leaves no trace: a repeat may
    find money."""
    if lease is None:
        return purse.lend(ask)
    granted_nusd = 0 if lease.closed_at else lease.granted_nusd
    return LeaseGrant(lease_id=lease.id, granted_nusd=granted_nusd, left_nusd=purse.left_nusd)


async def _store(session: AsyncSession, edge_id: str, boot_id: str,
                 granted: Sequence[tuple[LeaseAsk, LeaseGrant]]) -> None:
    rows = [{"id": ask.lease_id, "edge_id": edge_id, "boot_id": boot_id, "scope": ask.scope, "scope_id": ask.scope_id,
             "granted_nusd": grant.granted_nusd} for ask, grant in granted]
    if rows and await repository.add_leases(session, rows) < len(rows):
        raise Unavailable("a lease was opened or closed by another request just now; ask again", code="lease_raced")

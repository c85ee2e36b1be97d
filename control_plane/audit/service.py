"""Writes, reads and verifies the audit log."""

from collections.abc import Mapping
from typing import Any

from sqlalchemy.ext.asyncio import AsyncSession

from control_plane import paging
from control_plane.audit import chain, repository
from control_plane.audit.chain import Tip
from control_plane.audit.models import AuditEvent
from control_plane.contracts import ids
from control_plane.contracts.audit import AuditView, ChainFault, ChainView, Link, link_hash
from control_plane.contracts.operator import Page
from control_plane.db import Database, before_commit

PAGE_EVENTS = 1_000
_NOTED = "audit"


def record(session: AsyncSession, *, actor: str, action: str, target: str, reason: str | None = None,
           before: Mapping[str, Any] | None = None, after: Mapping[str, Any] | None = None) -> None:
    """Notes a change in the transaction that makes it: both are committed, or neither.

    `actor` is ``operator:NAME``, ``machine:ID`` or ``meridian``; `action` is ``thing.verb``; `target` is ``thing:ID``.
    The event joins the chain just before the commit: the chain's head is then the last lock that is taken, whatever
    else the transaction locks and in whatever order, so nobody can wait for it in a circle.
    """
    if _NOTED not in session.info:
        session.info[_NOTED] = []
        before_commit(session, _append)
    session.info[_NOTED].append({
        "id": ids.new_id("audit"), "actor": actor, "action": action, "target": target, "reason": reason,
        "before": None if before is None else dict(before), "after": None if after is None else dict(after)})


async def events(session: AsyncSession, asked: paging.Asked, target: str | None = None) -> Page[AuditView]:
    """A page of the log, the newest first."""
    found = await repository.newest(session, asked.limit + 1, asked.cursor, target)
    return paging.page([_view(event) for event in found], asked, key=lambda event: event.id)


async def verify(db: Database, after: Tip, max_events: int, expected_head: bytes | None = None) -> ChainView:
    """Walks at most `max_events` of the chain from `after` on, which an earlier walk found sound.

    `expected_head` is the hash of an event that was the newest once, noted elsewhere: if it is in the log no more, then
    the log was cut or written anew.
    """
    async with db.begin() as session:
        head, newest_seq = await repository.head(session)
        if expected_head is not None and await repository.seq_of(session, expected_head) is None:
            return _told(after, ChainFault(seq=head.seq, event_id=None, problem=(
                f"no event has the expected hash {expected_head.hex()}: the log was cut, or written anew")))
    tip, walked = after, 0
    while tip.seq < head.seq and walked < max_events:
        async with db.begin() as session:  # one a page: a long walk must not hold back the database's cleaning
            links = await repository.links(session, tip.seq, min(PAGE_EVENTS, head.seq - tip.seq, max_events - walked))
        tip, fault = chain.walk(tip, links)
        walked += len(links)
        if fault is not None:
            return _told(tip, fault)
        if not links:
            break
    if walked >= max_events and tip.seq < head.seq:
        return ChainView(seq=tip.seq, hash=tip.hash.hex(), is_complete=False)
    return _told(tip, chain.check_end(tip, head, newest_seq))


def _told(tip: Tip, fault: ChainFault | None) -> ChainView:
    return ChainView(seq=tip.seq, hash=tip.hash.hex(), is_complete=True, fault=fault)


async def _append(session: AsyncSession) -> None:
    noted: list[dict[str, Any]] = session.info.pop(_NOTED)
    head, now = await repository.lock_head(session)
    prev_hash = head.hash
    for seq, event in enumerate(noted, head.seq + 1):
        event |= {"seq": seq, "at": now, "prev_hash": prev_hash}
        prev_hash = event["hash"] = link_hash(Link(**{name: event[name] for name in Link.__slots__}), prev_hash)
    await repository.append(session, noted)


def _view(event: AuditEvent) -> AuditView:
    return AuditView(
        id=event.id, at=event.at, actor=event.actor, action=event.action, target=event.target, reason=event.reason,
        before=event.before, after=event.after, seq=event.seq, hash=event.hash.hex())

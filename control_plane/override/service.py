"""Keys of operators who may override edges, and the import of what they did with them.

An edge's report proves itself: the order in it is signed by the operator. It becomes one audit event, whichever edge
reports it first and however often. What an edge cannot prove is only its own word: it is noted in the edge's name, a
bounded number of times, and never keeps the real order from the log.
"""

from collections.abc import Iterable, Mapping, Sequence

import structlog
from sqlalchemy.ext.asyncio import AsyncSession

from control_plane import paging
from control_plane.audit import service as audit
from control_plane.contracts.operator import Page
from control_plane.contracts.override import MAX_ORDERS, Override, OverrideAction, OverrideReport, OverrideStanding
from control_plane.contracts.override_keys import OperatorKeyRequest, OperatorKeyView
from control_plane.contracts.sealed import SealBroken
from control_plane.contracts.signing import VerifyKey
from control_plane.errors import Conflict, NotFound, Refusal
from control_plane.override import repository
from control_plane.override.models import OperatorKey

UNPROVED = "unproved:{edge_id}:"

log = structlog.get_logger()


async def register(session: AsyncSession, asked: OperatorKeyRequest, actor: str) -> OperatorKeyView:
    """Lets the key's owner override edges. A key that is known already is answered as it is.

    Raises:
        Refusal: it is no key.
        Conflict: it was revoked.
    """
    try:
        public = VerifyKey.from_text(asked.public_key)
    except ValueError as error:
        raise Refusal("the public key is not url-safe base64 of 32 bytes", code="bad_public_key") from error
    if await repository.add_key(session, OperatorKey(
            key_id=public.key_id, name=asked.name, public_key=public.text, created_by=actor)):
        audit.record(session, actor=actor, action="operator_key.register", target=f"operator_key:{public.key_id}",
                     after={"name": asked.name, "public_key": public.text})
    row = await repository.key(session, public.key_id)
    if row is None or row.revoked_at is not None or row.public_key != public.text:
        raise Conflict("this key was revoked, and stays so: make a new one", code="key_revoked")
    return _view(row)


async def revoke(session: AsyncSession, key_id: str, actor: str) -> None:
    """Ends a key: edges forget it, and what it ordered, with the next snapshot.

    Raises:
        NotFound: there is no such key alive.
    """
    if not await repository.revoke_key(session, key_id):
        raise NotFound(f"there is no living operator's key {key_id!r}")
    audit.record(session, actor=actor, action="operator_key.revoke", target=f"operator_key:{key_id}")


async def keys(session: AsyncSession, asked: paging.Asked) -> Page[OperatorKeyView]:
    """A page of the keys."""
    found = await repository.keys(session, asked.limit + 1, asked.cursor)
    return paging.page([_view(row) for row in found], asked, key=lambda row: row.key_id)


async def import_reports(session: AsyncSession, edge_id: str, reports: Sequence[OverrideReport]) -> list[str]:
    """Notes the orders that an edge reports, each once. The ids that it need not report for that any more."""
    if not reports:
        return []
    orders = {report.view.id: report for report in reports}
    known = await repository.known_orders(session, list(orders))
    news = {order_id: report for order_id, report in orders.items() if order_id not in known}
    keys = {row.key_id: row for row in await repository.keys_named(
        session, {report.signed.key_id for report in news.values()})}
    proofs = {order_id: _proved(report, keys.get(report.signed.key_id)) for order_id, report in news.items()}
    proved = {order_id: order for order_id, order in proofs.items() if order is not None}
    rows = [_row(order_id, news[order_id], edge_id) for order_id in sorted(proved)]
    for order_id in sorted(await repository.add_orders(session, rows)):
        signer = f"operator_key:{keys[news[order_id].signed.key_id].name}"
        _note(session, edge_id, news[order_id], proved[order_id], signer)
    await _note_unproved(session, edge_id, {
        order_id: report for order_id, report in news.items() if order_id not in proved})
    return list(orders)


def in_force(reports: Iterable[OverrideReport]) -> list[dict[str, object]]:
    """What an edge obeys now, to be shown."""
    drains = [report.view for report in reports if report.view.action is OverrideAction.DRAIN]
    return [view.model_dump(mode="json") for view in drains
            if view.state in (OverrideStanding.IN_FORCE, OverrideStanding.SUSPENDED)]


async def _note_unproved(session: AsyncSession, edge_id: str, reports: Mapping[str, OverrideReport]) -> None:
    """Notes, once each, what only this edge says. Its name is in the id, so that it takes no other order's place."""
    if not reports or await repository.count_orders(session, UNPROVED.format(edge_id=edge_id)) >= MAX_ORDERS:
        return
    named = {f"{UNPROVED.format(edge_id=edge_id)}{order_id}": report for order_id, report in reports.items()}
    rows = [_row(name, named[name], edge_id) for name in sorted(named)]
    for name in sorted(await repository.add_orders(session, rows)):
        report = named[name]
        _note(session, edge_id, report, None, f"machine:{edge_id}")
        log.error("override_unproved", order_id=report.view.id, edge=edge_id, key_id=report.signed.key_id)


def _row(order_id: str, report: OverrideReport, edge_id: str) -> dict[str, str]:
    return {"id": order_id, "datacenter_id": report.view.datacenter, "key_id": report.signed.key_id,
            "first_edge_id": edge_id}


def _note(session: AsyncSession, edge_id: str, report: OverrideReport, order: Override | None, actor: str) -> None:
    told = order or report.view
    facts = {"id": told.id, "edge": edge_id, "key": report.signed.key_id, "issued_at_s": told.issued_at_s,
             "expires_at_s": told.expires_at_s, "evacuate": told.evacuate, "forced": told.force,
             "proved": order is not None}
    audit.record(session, actor=actor, action=f"override.{told.action}", target=f"datacenter:{told.datacenter}",
                 reason=told.reason, after=facts)


def _proved(report: OverrideReport, key: OperatorKey | None) -> Override | None:
    """The order as it was signed, if it was by `key`, one that was ever registered here."""
    if key is None:
        return None
    try:
        order = report.signed.open([VerifyKey.from_text(key.public_key)])
    except SealBroken:
        return None
    return order if order.id == report.view.id else None


def _view(row: OperatorKey) -> OperatorKeyView:
    return OperatorKeyView(key_id=row.key_id, name=row.name, public_key=row.public_key, created_by=row.created_by,
                           created_at=row.created_at, revoked_at=row.revoked_at)

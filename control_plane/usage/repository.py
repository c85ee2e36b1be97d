"""SQL of the usage slice: batches in, each row once; sums and pages out."""

from collections.abc import Collection, Mapping, Sequence
from datetime import date, datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec
from sqlalchemy import Table, Text, and_, cast, delete, func, literal, select, text
from sqlalchemy.dialects.postgresql import JSONB, insert
from sqlalchemy.ext.asyncio import AsyncSession

from control_plane.contracts.operator import UsageGroup
from control_plane.usage.models import UsageOpening, UsageQuarantine, UsageRollup, UsageRow
from control_plane.usage.window import Window, floor_id

GROUP_COLUMNS = {
    UsageGroup.MODEL: UsageRow.model_id,
    UsageGroup.TEAM: UsageRow.team_id,
    UsageGroup.KEY: UsageRow.key_id,
    UsageGroup.DATACENTER: UsageRow.datacenter_id,
}
SUMS = (
    func.count().label("requests"),
    func.coalesce(func.sum(UsageRow.prompt_tokens), 0).label("prompt_tokens"),
    func.coalesce(func.sum(UsageRow.cached_tokens), 0).label("cached_tokens"),
    func.coalesce(func.sum(UsageRow.completion_tokens), 0).label("completion_tokens"),
    func.coalesce(func.sum(UsageRow.cost_usd), 0).label("cost_usd"),
)
ROLLUP_LOCK = 7_263_410_002
PARTITION_LOCK = 7_263_410_003


async def insert_records(session: AsyncSession, rows: Sequence[Mapping[str, Any]]) -> set[UUID]:
    """Stores what is not stored yet, in key order so that two batches cannot deadlock; the ids that are new."""
    return await _insert_missing(session, UsageRow.__table__, rows, [UsageRow.day, UsageRow.id])


async def insert_openings(session: AsyncSession, rows: Sequence[Mapping[str, Any]]) -> set[UUID]:
    """The same for requests that are about to be sent."""
    return await _insert_missing(session, UsageOpening.__table__, rows, [UsageOpening.id])


async def stored_records(session: AsyncSession, days: Collection[date], ids: Collection[UUID]) -> dict[UUID, bytes]:
    """Content digests of the stored records among `ids`."""
    rows = await session.execute(
        select(UsageRow.id, UsageRow.body_sha).where(UsageRow.day.in_(days), UsageRow.id.in_(ids)))
    return {row.id: row.body_sha for row in rows}


async def stored_openings(session: AsyncSession, ids: Collection[UUID]) -> dict[UUID, bytes]:
    """Content digests of the stored openings among `ids`."""
    rows = await session.execute(select(UsageOpening.id, UsageOpening.body_sha).where(UsageOpening.id.in_(ids)))
    return {row.id: row.body_sha for row in rows}


async def settle_openings(session: AsyncSession, ids: Collection[UUID]) -> None:
    """Removes openings whose record arrived; in key order, for the same reason as above."""
    held = select(UsageOpening.id).where(UsageOpening.id.in_(ids)).order_by(UsageOpening.id).with_for_update()
    await session.execute(delete(UsageOpening).where(UsageOpening.id.in_(held)))


async def quarantine(session: AsyncSession, rows: Sequence[Mapping[str, Any]]) -> int:
    """Keeps frames aside, each once; how many are new."""
    statement = insert(UsageQuarantine).values(list(rows)).on_conflict_do_nothing().returning(UsageQuarantine.id)
    return len((await session.execute(statement)).all())


async def sums(session: AsyncSession, window: Window, groups: Sequence[UsageGroup], team_id: str | None,
               limit: int) -> Sequence[Any]:
    """Sums of the window by `groups`, the dearest first and at most `limit`; without groups one row."""
    columns = [GROUP_COLUMNS[group].label(group.value) for group in groups]
    query = select(*columns, *SUMS).where(_within(window)).limit(limit)
    if team_id is not None:
        query = query.where(UsageRow.team_id == team_id)
    if columns:
        query = query.group_by(*(GROUP_COLUMNS[group] for group in groups)).order_by(
            text("cost_usd DESC"), *(GROUP_COLUMNS[group] for group in groups))
    return (await session.execute(query)).all()


async def newest(session: AsyncSession, limit: int, before: tuple[date, UUID] | None,
                 team_id: str | None) -> Sequence[UsageRow]:
    """Records from the newest backwards, starting below the key `before`."""
    query = select(UsageRow).order_by(UsageRow.day.desc(), UsageRow.id.desc()).limit(limit)
    if before is not None:
        query = query.where(UsageRow.day <= before[0], UsageRow.id < before[1])
    if team_id is not None:
        query = query.where(UsageRow.team_id == team_id)
    return (await session.execute(query)).scalars().all()


async def daily_costs(session: AsyncSession, team_id: str) -> Sequence[Any]:
    """What each key of a team has cost on each day."""
    return (await session.execute(
        select(UsageRow.key_id, UsageRow.day, func.sum(UsageRow.cost_usd).label("cost_usd"))
        .where(UsageRow.team_id == team_id).group_by(UsageRow.key_id, UsageRow.day))).all()


async def rebuild_hour(session: AsyncSession, hour: datetime) -> int:
    """Sums the hour's records again; how many rows it has now. One at a time: two would store the same keys."""
    await session.execute(select(func.pg_advisory_xact_lock(ROLLUP_LOCK)))
    await session.execute(delete(UsageRollup).where(UsageRollup.hour == hour))
    keys = [UsageRow.team_id, UsageRow.key_id, UsageRow.model_id, UsageRow.datacenter_id]
    totals = select(literal(hour), *keys, *SUMS).where(_within(Window(hour, hour + timedelta(hours=1)))).group_by(*keys)
    names = ["hour", *(column.key for column in keys), *(total.name for total in SUMS)]
    statement = insert(UsageRollup).from_select(names, totals).returning(UsageRollup.team_id)
    return len((await session.execute(statement)).all())


async def ensure_partition(session: AsyncSession, name: str, day: date) -> None:
    """Makes the day's partition if it is missing. Made apart and then attached, which lets others go on writing."""
    await session.execute(select(func.pg_advisory_xact_lock(PARTITION_LOCK)))
    if (await session.execute(select(func.to_regclass(name)))).scalar_one() is not None:
        return
    await session.execute(text(f"CREATE TABLE {name} (LIKE usage_record INCLUDING DEFAULTS INCLUDING CONSTRAINTS)"))
    await session.execute(text(
        f"ALTER TABLE usage_record ATTACH PARTITION {name} "
        f"FOR VALUES FROM ('{day.isoformat()}') TO ('{(day + timedelta(days=1)).isoformat()}')"))


async def _insert_missing(session: AsyncSession, table: Any, rows: Sequence[Mapping[str, Any]],
                          order: Sequence[Any]) -> set[UUID]:
    """One statement with one JSON parameter, whatever the number of rows: compiled once, 500 rows in a few ms."""
    assert isinstance(table, Table)  # noqa: S101
    columns = [table.c[name] for name in rows[0]]
    document = cast(literal(msgspec.json.encode(rows).decode(), Text), JSONB)
    source = func.jsonb_to_recordset(document).table_valued(*columns, name="shipped").render_derived(with_types=True)
    names = [column.name for column in columns]
    chosen = select(*(source.c[name] for name in names)).order_by(*(source.c[column.key] for column in order))
    statement = insert(table).from_select(names, chosen).on_conflict_do_nothing().returning(table.c.id)
    return set((await session.execute(statement)).scalars())


def _within(window: Window) -> Any:
    return and_(UsageRow.day.between(window.first_day, window.last_day),
                UsageRow.id >= window.first_id, UsageRow.id < floor_id(window.end))

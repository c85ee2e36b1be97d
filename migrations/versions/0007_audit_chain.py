"""The audit log as a chain, operators' keys and what edges were told with them, and recoveries from older copies."""

import hashlib
import json
from datetime import UTC
from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

BATCH = 1_000
ROWS_FROZEN = "audit_event_rows_frozen"
AGENT_FENCES = ("seen_lineage", "seen_epoch", "seen_generation")
CHAINED = ("id", "at", "actor", "action", "target", "reason")


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    chain_events()
    create_overrides()
    create_recoveries()


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    for column in AGENT_FENCES:
        op.drop_column("agent_lease", column)
    op.drop_column("edge", "url")
    op.drop_column("edge", "overrides")
    for table in ("recovery", "override_order", "operator_key", "audit_head"):
        op.drop_table(table)
    op.drop_constraint("uq_audit_event_seq", "audit_event")
    op.drop_constraint("uq_audit_event_hash", "audit_event")
    for name in ("seq", "prev_hash", "hash"):
        op.drop_column("audit_event", name)


def chain_events() -> None:
    """Chains what was noted so far, in order of time and id, so that the same log gives the same chain."""
    op.add_column("audit_event", count("seq", nullable=True))
    op.add_column("audit_event", digest("prev_hash", nullable=True))
    op.add_column("audit_event", digest("hash", nullable=True))
    op.execute(f"ALTER TABLE audit_event DISABLE TRIGGER {ROWS_FROZEN}")
    seq, tip = chain_rows(op.get_bind())
    op.execute(f"ALTER TABLE audit_event ENABLE TRIGGER {ROWS_FROZEN}")
    for name in ("seq", "prev_hash", "hash"):
        op.alter_column("audit_event", name, nullable=False)
    op.create_unique_constraint(None, "audit_event", ["seq"])
    op.create_unique_constraint(None, "audit_event", ["hash"])
    op.create_table(
        "audit_head", sa.Column("id", sa.Boolean(), server_default="true", nullable=False),
        count("seq", server_default="0"), digest("hash"),
        sa.CheckConstraint("id", name="single_row"), sa.PrimaryKeyConstraint("id"))
    op.execute(sa.text("INSERT INTO audit_head (seq, hash) VALUES (:seq, :hash)").bindparams(seq=seq, hash=tip))


def chain_rows(connection: sa.Connection) -> tuple[int, bytes]:
    """Numbers and hashes every event; the last number and hash."""
    event = sa.table("audit_event", *map(sa.column, CHAINED), sa.column("before", JSONB), sa.column("after", JSONB))
    ids = [row.id for row in connection.execute(sa.select(event.c.id).order_by(event.c.at, event.c.id))]
    seq, tip = 0, bytes(32)
    for begin in range(0, len(ids), BATCH):
        batch = event.c.id.in_(ids[begin:begin + BATCH])
        rows = {row.id: row for row in connection.execute(sa.select(event).where(batch))}
        chained = []
        for event_id in ids[begin:begin + BATCH]:
            seq += 1
            made = hash_of(seq, tip, rows[event_id])
            chained.append({"event_id": event_id, "seq": seq, "prev_hash": tip, "hash": made})
            tip = made
        connection.execute(sa.text(
            "UPDATE audit_event SET seq = :seq, prev_hash = :prev_hash, hash = :hash WHERE id = :event_id"), chained)
    return seq, tip


def hash_of(seq: int, prev_hash: bytes, row: Any) -> bytes:
    """As `control_plane.contracts.audit.link_hash` of the day when this was written: a migration never changes."""
    at = row.at.astimezone(UTC).isoformat(timespec="microseconds")
    fields = ["meridian-audit-v1", prev_hash.hex(), seq, row.id, at, row.actor, row.action, row.target, row.reason,
              plain(row.before), plain(row.after)]
    return hashlib.sha256(json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()).digest()


def plain(value: Any) -> Any:
    match value:
        case dict():
            return {name: plain(inner) for name, inner in value.items()}
        case list():
            return [plain(inner) for inner in value]
        case float() if value.is_integer():
            return int(value)
        case _:
            return value


def create_overrides() -> None:
    op.create_table(
        "operator_key", text("key_id"), text("name"), text("public_key"), text("created_by"),
        instant("created_at", now=True), instant("revoked_at", nullable=True),
        sa.PrimaryKeyConstraint("key_id"), sa.UniqueConstraint("public_key"))
    op.create_table(
        "override_order", text("id"), text("datacenter_id"), text("key_id"), text("first_edge_id"),
        instant("imported_at", now=True), sa.PrimaryKeyConstraint("id"))
    op.add_column("edge", text("url", nullable=True))
    op.add_column("edge", sa.Column("overrides", JSONB(), server_default="[]", nullable=False))


def create_recoveries() -> None:
    op.create_table(
        "recovery", count("lineage", autoincrement=False), text("reason"), text("recovered_by"),
        instant("recovered_at", now=True), text("body"), text("signature"), text("key_id"),
        sa.PrimaryKeyConstraint("lineage"))
    for column in AGENT_FENCES:
        op.add_column("agent_lease", count(column, server_default="0"))


def text(name: str, *, nullable: bool = False) -> sa.Column[str]:
    return sa.Column(name, sa.Text(), nullable=nullable)


def count(name: str, *, nullable: bool = False, **options: Any) -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger(), nullable=nullable, **options)


def digest(name: str, *, nullable: bool = False) -> sa.Column[bytes]:
    return sa.Column(name, sa.LargeBinary(), nullable=nullable)


def instant(name: str, *, now: bool = False, nullable: bool = False) -> sa.Column[Any]:
    return sa.Column(
        name, sa.DateTime(timezone=True), server_default=sa.func.now() if now else None, nullable=nullable)

"""What edges saw: votes on datacenters, quality by the minute, and how many streams and sessions they have where."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import ARRAY, JSONB

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

COUNTS = ("succeeded", "failed", "excluded", "prompt_tokens", "cached_tokens", "completion_tokens")


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    for name in ("open_streams", "sessions"):
        op.add_column("edge", sa.Column(name, JSONB(), server_default="{}", nullable=False))
    op.create_table(
        "edge_vote", text("edge_id"), text("datacenter_id"), sa.Column("verdict", sa.String(32), nullable=False),
        text("boot_id"), sa.Column("held_s", sa.Double(), nullable=False), text("evidence"),
        sa.Column("since", sa.DateTime(timezone=True), nullable=False),
        sa.Column("seen_at", sa.DateTime(timezone=True), nullable=False),
        sa.CheckConstraint("verdict IN ('lost', 'faltering')", name="voteverdict"),
        sa.ForeignKeyConstraint(["edge_id"], ["identity.id"]), sa.PrimaryKeyConstraint("edge_id", "datacenter_id"))
    op.create_table(
        "quality_minute", count("minute"), text("model_id"), text("datacenter_id"), text("edge_id"), text("boot_id"),
        *map(count, COUNTS), *(sa.Column(name, ARRAY(sa.BigInteger()), nullable=False) for name in ("ttft", "itl")),
        sa.PrimaryKeyConstraint("minute", "model_id", "datacenter_id", "edge_id", "boot_id"))
    op.create_table(
        "failover_watch", sa.Column("id", sa.Boolean(), server_default="true", nullable=False),
        sa.Column("findings", JSONB(), server_default="[]", nullable=False),
        sa.Column("lock_token", sa.Text()), sa.Column("lock_expires_at", sa.DateTime(timezone=True)),
        sa.CheckConstraint("id", name="single_row"),
        sa.CheckConstraint("(lock_token IS NULL) = (lock_expires_at IS NULL)", name="lock_whole"),
        sa.PrimaryKeyConstraint("id"))
    op.execute("INSERT INTO failover_watch DEFAULT VALUES")


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    for table in ("failover_watch", "quality_minute", "edge_vote"):
        op.drop_table(table)
    for name in ("sessions", "open_streams"):
        op.drop_column("edge", name)


def text(name: str) -> sa.Column[str]:
    return sa.Column(name, sa.Text(), nullable=False)


def count(name: str) -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger(), nullable=False)

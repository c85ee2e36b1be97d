"""Capacity samples, the planner's plans and moves, and what bounds it."""

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

ROLES = "role IN ('prefill', 'decode', 'aggregated')"


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.create_table(
        "capacity_sample", text("deployment_id"), instant("minute_at"), count("reports"),
        count("inflight", nullable=True), count("queued", nullable=True),
        sa.Column("kv_usage", sa.Double(), nullable=True),
        sa.ForeignKeyConstraint(["deployment_id"], ["deployment.id"]),
        sa.PrimaryKeyConstraint("deployment_id", "minute_at"))
    op.create_index(None, "capacity_sample", ["minute_at"])
    op.create_table(
        "capacity_planner", sa.Column("id", sa.Boolean(), server_default="true", nullable=False),
        sa.Column("mode", sa.String(32), nullable=True), text("reason", nullable=True),
        text("changed_by", nullable=True), instant("changed_at", nullable=True), instant("planned_at", nullable=True),
        sa.Column("signals", JSONB(), server_default="[]", nullable=False), text("lock_token", nullable=True),
        instant("lock_expires_at", nullable=True), sa.CheckConstraint("id", name="single_row"),
        sa.CheckConstraint("mode IN ('off', 'advise', 'auto')", name="plannermode"),
        sa.CheckConstraint("(lock_token IS NULL) = (lock_expires_at IS NULL)", name="lock_whole"),
        sa.PrimaryKeyConstraint("id"))
    op.execute("INSERT INTO capacity_planner DEFAULT VALUES")
    op.create_table(
        "capacity_plan", text("id"), instant("planned_at"), sa.Column("applied", sa.Boolean(), nullable=False),
        count("moves"), sa.Column("body", JSONB(), nullable=False), sa.PrimaryKeyConstraint("id"))
    op.create_index(None, "capacity_plan", ["planned_at"])
    op.create_table(
        "capacity_move", text("id"), text("plan_id"), instant("moved_at"), text("model_id"), text("fleet_id"),
        text("deployment_id"), sa.Column("role", sa.String(32), nullable=False), count("replicas"), count("gpus"),
        sa.CheckConstraint(ROLES, name="poolrole"),
        sa.ForeignKeyConstraint(["deployment_id"], ["deployment.id"]), sa.PrimaryKeyConstraint("id"))
    op.create_index(None, "capacity_move", ["moved_at"])
    op.create_table(
        "capacity_bound", text("deployment_id"), sa.Column("role", sa.String(32), nullable=False), count("minimum"),
        count("maximum", nullable=True), sa.CheckConstraint(ROLES, name="poolrole"),
        sa.CheckConstraint("minimum >= 0", name="minimum_not_negative"),
        sa.CheckConstraint("maximum >= minimum", name="maximum_not_below"),
        sa.ForeignKeyConstraint(["deployment_id"], ["deployment.id"]), sa.PrimaryKeyConstraint("deployment_id", "role"))


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    for table in ("capacity_bound", "capacity_move", "capacity_plan", "capacity_planner", "capacity_sample"):
        op.drop_table(table)


def text(name: str, *, nullable: bool = False) -> sa.Column[str]:
    return sa.Column(name, sa.Text(), nullable=nullable)


def instant(name: str, *, nullable: bool = False) -> sa.Column[Any]:
    return sa.Column(name, sa.DateTime(timezone=True), nullable=nullable)


def count(name: str, *, nullable: bool = False) -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger(), nullable=nullable)

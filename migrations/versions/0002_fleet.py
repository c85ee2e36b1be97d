"""Topology, agents' leases and reports, routing snapshots and edges, operations and commands."""

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

TABLES = (
    "command", "operation_step", "operation", "edge", "routing_snapshot", "routing_head", "fleet_view", "agent_lease",
    "pool", "deployment", "model", "fleet", "datacenter", "region")


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    create_places()
    create_deployments()
    create_agents()
    create_routing()
    create_operations()
    create_commands()


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    for table in TABLES:
        op.drop_table(table)


def text(name: str, **options: Any) -> sa.Column[str]:
    return sa.Column(name, sa.Text(), nullable=options.pop("nullable", False), **options)


def instant(name: str, *, now: bool = False, nullable: bool = False) -> sa.Column[Any]:
    return sa.Column(
        name, sa.DateTime(timezone=True), server_default=sa.func.now() if now else None, nullable=nullable)


def count(name: str, **options: Any) -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger(), nullable=options.pop("nullable", False), **options)


def document(name: str, *, nullable: bool = False) -> sa.Column[Any]:
    return sa.Column(name, JSONB(), nullable=nullable)


def choice(name: str, kind: str, *values: str, nullable: bool = False) -> list[Any]:
    """A text column and the check that holds it to `values`."""
    allowed = ", ".join(f"'{value}'" for value in values)
    return [sa.Column(name, sa.String(32), nullable=nullable), sa.CheckConstraint(f"{name} IN ({allowed})", name=kind)]


def refers(column: str, target: str) -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint([column], [target])


def create_places() -> None:
    op.create_table("region", text("id"), sa.PrimaryKeyConstraint("id"))
    op.create_table(
        "datacenter", text("id"), text("region_id"),
        *choice("traffic_state", "trafficstate", "active", "draining", "drained", "failed", "recovering", "warming"),
        count("weight"), count("generation"), instant("changed_at", now=True), text("changed_by"), text("reason"),
        sa.CheckConstraint("weight BETWEEN 1 AND 10000", name="weight_range"),
        refers("region_id", "region.id"), sa.PrimaryKeyConstraint("id"))
    op.create_table(
        "fleet", text("id"), text("datacenter_id"), text("ingress_url"), text("gpu_type"), count("gpu_total"),
        count("generation"), count("command_seq", server_default="0"),
        refers("datacenter_id", "datacenter.id"), sa.PrimaryKeyConstraint("id"))
    op.create_index(None, "fleet", ["datacenter_id"])


def create_deployments() -> None:
    op.create_table(
        "model", text("id"), text("display_name"), text("owned_by"), count("context_window"),
        count("max_output_tokens"), count("default_max_tokens", nullable=True), text("price_version"),
        instant("created_at", now=True), sa.PrimaryKeyConstraint("id"))
    op.create_table(
        "deployment", text("id"), text("model_id"), text("fleet_id"), document("engine"), count("generation"),
        *choice("phase", "deploymentphase", "pending", "provisioning", "ready", "degraded", "retiring", "gone",
                nullable=True),
        count("observed_generation", nullable=True), instant("observed_at", nullable=True),
        count("inflight", nullable=True), count("queued", nullable=True), text("message", server_default=""),
        refers("model_id", "model.id"), refers("fleet_id", "fleet.id"), sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("model_id", "fleet_id"))
    op.create_index(None, "deployment", ["fleet_id"])
    op.create_table(
        "pool", text("deployment_id"), *choice("role", "poolrole", "prefill", "decode", "aggregated"),
        count("replicas"), count("gpus_per_replica"), count("ready_replicas", nullable=True),
        sa.CheckConstraint("replicas >= 0", name="replicas_not_negative"),
        refers("deployment_id", "deployment.id"), sa.PrimaryKeyConstraint("deployment_id", "role"))


def create_agents() -> None:
    op.create_table(
        "agent_lease", text("fleet_id"), text("identity"), text("boot_id"), text("previous_boot_id", nullable=True),
        count("epoch"), text("release"), instant("renewed_at"), instant("expires_at"),
        sa.CheckConstraint("epoch > 0", name="epoch_positive"),
        refers("fleet_id", "fleet.id"), refers("identity", "identity.id"), sa.PrimaryKeyConstraint("fleet_id"))
    op.create_table(
        "fleet_view", text("fleet_id"), count("epoch"), instant("observed_at"), document("sample"),
        refers("fleet_id", "fleet.id"), sa.PrimaryKeyConstraint("fleet_id"))


def create_routing() -> None:
    op.create_table(
        "routing_head", sa.Column("id", sa.Boolean(), server_default="true", nullable=False),
        count("lineage", server_default="1"), count("version", server_default="0"),
        sa.CheckConstraint("id", name="single_row"), sa.PrimaryKeyConstraint("id"))
    op.execute("INSERT INTO routing_head DEFAULT VALUES")
    op.create_table(
        "routing_snapshot", count("lineage"), count("version"), text("body"), text("signature"), text("key_id"),
        text("content_digest"), text("cause"), instant("built_at"), sa.PrimaryKeyConstraint("lineage", "version"))
    op.create_table(
        "edge", text("id"), text("region"), text("boot_id"), text("release"), count("acked_lineage"),
        count("acked_version"), count("nack_lineage", nullable=True), count("nack_version", nullable=True),
        text("nack_error", nullable=True), document("open_requests"), instant("last_seen_at"),
        refers("id", "identity.id"), sa.PrimaryKeyConstraint("id"))


def create_operations() -> None:
    op.create_table(
        "operation", text("id"), *choice("kind", "operationkind", "drain", "restore"), text("datacenter_id"),
        *choice("state", "operationstate", "planned", "running", "succeeded", "failed", "refused", "cancelled"),
        text("reason"), text("requested_by"), text("idempotency_key", nullable=True),
        sa.Column("forced", sa.Boolean(), nullable=False), instant("deadline_at"), instant("created_at", now=True),
        instant("finished_at", nullable=True), text("error", nullable=True), text("rule", nullable=True),
        document("numbers", nullable=True), text("lock_token", nullable=True),
        instant("lock_expires_at", nullable=True),
        sa.CheckConstraint("(finished_at IS NULL) = (state IN ('planned', 'running'))", name="finished_when_closed"),
        sa.CheckConstraint("(lock_token IS NULL) = (lock_expires_at IS NULL)", name="lock_whole"),
        refers("datacenter_id", "datacenter.id"), sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("requested_by", "idempotency_key"))
    op.create_index("uq_operation_open", "operation", ["datacenter_id"], unique=True,
                    postgresql_where="state IN ('planned', 'running')")
    op.create_table(
        "operation_step", text("operation_id"), count("seq", autoincrement=False),
        *choice("name", "stepname", "preflight", "close", "await_edges", "await_idle", "verify", "settle", "warm",
                "probe", "open"),
        *choice("state", "stepstate", "pending", "running", "done", "failed"),
        text("detail", server_default=""), document("memory"), instant("started_at", nullable=True),
        instant("finished_at", nullable=True), refers("operation_id", "operation.id"),
        sa.PrimaryKeyConstraint("operation_id", "seq"))


def create_commands() -> None:
    op.create_table(
        "command", text("id"), text("operation_id"), text("fleet_id"), count("seq"),
        *choice("kind", "commandkind", "drain"),
        *choice("status", "commandstatus", "issued", "accepted", "succeeded", "failed", "rejected", "expired",
                "superseded"),
        instant("deadline_at"), count("epoch", nullable=True), instant("issued_at", now=True),
        instant("acked_at", nullable=True), text("result", server_default=""),
        refers("operation_id", "operation.id"), refers("fleet_id", "fleet.id"), sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("fleet_id", "seq"), sa.UniqueConstraint("operation_id", "fleet_id", "kind"))
    op.create_index(None, "command", ["operation_id"])
    op.create_index("ix_command_open", "command", ["fleet_id"], postgresql_where="status IN ('issued', 'accepted')")

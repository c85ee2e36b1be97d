"""Identities, audit log, teams and keys, prices, usage and the outbox."""

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

USD = sa.Numeric(38, 12)
TABLES = (
    "key_revocation", "revocation_head", "api_key", "team", "usage_rollup_hourly", "usage_quarantine", "usage_open",
    "usage_record", "price", "enrolment_token", "identity", "operator_token", "audit_event", "outbox")


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("""
        CREATE FUNCTION forbid_change() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            RAISE EXCEPTION '% forbids %: its rows never change', TG_TABLE_NAME, TG_OP USING ERRCODE = '42501';
        END $$""")
    create_identities()
    create_audit()
    create_outbox()
    create_teams()
    create_prices()
    create_usage_records()
    create_usage_around_records()


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    for table in TABLES:
        op.drop_table(table)
    op.execute("DROP FUNCTION forbid_change")


def text(name: str, **options: Any) -> sa.Column[str]:
    return sa.Column(name, sa.Text(), nullable=options.pop("nullable", False), **options)


def instant(name: str, *, now: bool = False, nullable: bool = False) -> sa.Column[Any]:
    return sa.Column(
        name, sa.DateTime(timezone=True), server_default=sa.func.now() if now else None, nullable=nullable)


def count(name: str) -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger(), nullable=False)


def row_id() -> sa.Column[int]:
    return sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False)


def machine_kind() -> sa.Column[str]:
    return sa.Column("kind", sa.String(32), nullable=False)


def freeze_rows(table: str, *operations: str) -> None:
    """Refuses `operations` on the table's rows, and TRUNCATE, whoever asks."""
    op.execute(f"CREATE TRIGGER {table}_rows_frozen BEFORE {' OR '.join(operations)} ON {table} "
               "FOR EACH ROW EXECUTE FUNCTION forbid_change()")
    op.execute(f"CREATE TRIGGER {table}_frozen BEFORE TRUNCATE ON {table} "
               "FOR EACH STATEMENT EXECUTE FUNCTION forbid_change()")


def create_identities() -> None:
    op.create_table(
        "identity", text("id"), machine_kind(), text("subject"), text("public_key"), instant("enrolled_at", now=True),
        instant("revoked_at", nullable=True),
        sa.CheckConstraint("kind IN ('agent', 'edge')", name="identitykind"),
        sa.PrimaryKeyConstraint("id"), sa.UniqueConstraint("public_key"))
    op.create_index(None, "identity", ["kind", "subject"])
    op.create_table(
        "enrolment_token", text("digest"), machine_kind(), text("subject"), instant("created_at", now=True),
        instant("expires_at"), text("spent_by", nullable=True), instant("spent_at", nullable=True),
        sa.CheckConstraint("kind IN ('agent', 'edge')", name="identitykind"),
        sa.CheckConstraint("(spent_by IS NULL) = (spent_at IS NULL)", name="spent_whole"),
        sa.ForeignKeyConstraint(["spent_by"], ["identity.id"]), sa.PrimaryKeyConstraint("digest"))
    op.create_index(None, "enrolment_token", ["expires_at"])
    op.create_table(
        "operator_token", text("id"), text("name"), text("digest"),
        sa.Column("scopes", sa.ARRAY(sa.Text()), nullable=False), instant("created_at", now=True),
        instant("expires_at"), instant("revoked_at", nullable=True),
        sa.CheckConstraint("cardinality(scopes) > 0", name="scoped"),
        sa.PrimaryKeyConstraint("id"), sa.UniqueConstraint("digest"))
    op.create_index(None, "operator_token", ["name"])


def create_audit() -> None:
    op.create_table(
        "audit_event", text("id"), instant("at", now=True), text("actor"), text("action"), text("target"),
        text("reason", nullable=True), sa.Column("before", JSONB()), sa.Column("after", JSONB()),
        sa.PrimaryKeyConstraint("id"))
    op.create_index(None, "audit_event", ["target", "id"])
    freeze_rows("audit_event", "UPDATE", "DELETE")


def create_outbox() -> None:
    op.create_table(
        "outbox", row_id(), text("topic"), text("key"), sa.Column("payload", JSONB(), nullable=False),
        instant("created_at", now=True), instant("due_at", now=True),
        sa.Column("attempts", sa.Integer(), server_default="0", nullable=False),
        text("lock_token", nullable=True), instant("locked_until", nullable=True), sa.PrimaryKeyConstraint("id"))
    op.create_index(None, "outbox", ["due_at"])
    op.create_index(
        "uq_outbox_waiting", "outbox", ["topic", "key"], unique=True, postgresql_where="lock_token IS NULL")


def create_teams() -> None:
    op.create_table(
        "team", text("id"), text("slug"), text("name"), instant("created_at", now=True),
        sa.PrimaryKeyConstraint("id"), sa.UniqueConstraint("slug"))
    op.create_table(
        "api_key", text("id"), text("team_id"), text("name"), text("digest"), text("hint"),
        sa.Column("scopes", sa.ARRAY(sa.Text()), nullable=False), text("created_by"), instant("created_at", now=True),
        instant("expires_at", nullable=True), instant("revoked_at", nullable=True),
        sa.CheckConstraint("cardinality(scopes) > 0", name="scoped"),
        sa.ForeignKeyConstraint(["team_id"], ["team.id"]), sa.PrimaryKeyConstraint("id"), sa.UniqueConstraint("digest"))
    op.create_index(None, "api_key", ["team_id", "id"])
    op.create_table(
        "revocation_head", sa.Column("id", sa.Boolean(), server_default="true", nullable=False),
        sa.Column("seq", sa.BigInteger(), server_default="0", nullable=False),
        sa.CheckConstraint("id", name="single_row"), sa.PrimaryKeyConstraint("id"))
    op.execute("INSERT INTO revocation_head DEFAULT VALUES")
    op.create_table(
        "key_revocation", sa.Column("seq", sa.BigInteger(), autoincrement=False, nullable=False), text("key_id"),
        text("digest"), instant("revoked_at", now=True),
        sa.ForeignKeyConstraint(["key_id"], ["api_key.id"]), sa.PrimaryKeyConstraint("seq"),
        sa.UniqueConstraint("key_id"))


def create_prices() -> None:
    op.create_table(
        "price", text("version"), text("model_id"), sa.Column("input_usd", USD, nullable=False),
        sa.Column("cached_input_usd", USD, nullable=False), sa.Column("output_usd", USD, nullable=False),
        instant("effective_from", now=True),
        sa.CheckConstraint("input_usd >= 0 AND cached_input_usd >= 0 AND output_usd >= 0", name="not_negative"),
        sa.PrimaryKeyConstraint("version"))
    op.create_index(None, "price", ["model_id"])
    freeze_rows("price", "UPDATE", "DELETE")


def create_usage_records() -> None:
    op.create_table(
        "usage_record", sa.Column("day", sa.Date(), nullable=False), sa.Column("id", sa.Uuid(), nullable=False),
        *(text(name) for name in (
            "edge_id", "team_id", "key_id", "model_id", "datacenter_id", "price_version", "outcome", "meter")),
        sa.Column("streamed", sa.Boolean(), nullable=False), sa.Column("http_status", sa.Integer(), nullable=False),
        count("prompt_tokens"), count("cached_tokens"), count("completion_tokens"), count("reasoning_tokens"),
        sa.Column("cost_usd", USD, nullable=False), sa.Column("attempts", JSONB(), nullable=False),
        instant("opened_at"), sa.Column("duration_ms", sa.Double(), nullable=False), sa.Column("ttft_ms", sa.Double()),
        text("finish_reason"), sa.Column("body_sha", sa.LargeBinary(), nullable=False),
        instant("received_at", now=True),
        sa.CheckConstraint("cached_tokens BETWEEN 0 AND prompt_tokens", name="cached_within_prompt"),
        sa.CheckConstraint("reasoning_tokens BETWEEN 0 AND completion_tokens", name="reasoning_within_completion"),
        sa.CheckConstraint("cost_usd >= 0", name="cost_not_negative"),
        sa.PrimaryKeyConstraint("day", "id"), postgresql_partition_by="RANGE (day)")
    op.create_index(None, "usage_record", ["team_id", "id"])
    op.execute("CREATE TABLE usage_record_default PARTITION OF usage_record DEFAULT")


def create_usage_around_records() -> None:
    op.create_table(
        "usage_open", sa.Column("id", sa.Uuid(), nullable=False),
        *(text(name) for name in ("edge_id", "boot_id", "team_id", "key_id", "model_id", "price_version")),
        instant("opened_at"), sa.Column("body_sha", sa.LargeBinary(), nullable=False),
        instant("received_at", now=True), sa.PrimaryKeyConstraint("id"))
    op.create_index(None, "usage_open", ["edge_id"])
    op.create_table(
        "usage_quarantine", row_id(), sa.Column("request_id", sa.Uuid(), nullable=False), text("edge_id"),
        text("reason"), sa.Column("frame", JSONB(), nullable=False),
        sa.Column("body_sha", sa.LargeBinary(), nullable=False), instant("received_at", now=True),
        sa.PrimaryKeyConstraint("id"), sa.UniqueConstraint("request_id", "edge_id", "body_sha"))
    op.create_table(
        "usage_rollup_hourly", instant("hour"), text("team_id"), text("key_id"), text("model_id"),
        text("datacenter_id"), count("requests"), count("prompt_tokens"), count("cached_tokens"),
        count("completion_tokens"), sa.Column("cost_usd", USD, nullable=False),
        sa.PrimaryKeyConstraint("hour", "team_id", "key_id", "model_id", "datacenter_id"))

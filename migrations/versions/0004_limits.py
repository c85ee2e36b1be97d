"""Rate limits, models and regions of keys, rotation with grace, changes of teams, and what listings tell of models."""

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.add_column("team", names("regions"))
    op.add_column("team", sa.Column("changed_seq", sa.BigInteger(), server_default="0", nullable=False))
    op.create_index(None, "team", ["changed_seq"])
    for column in (names("allowed_models"), names("regions"), text("rotated_from"), instant("revoke_at")):
        op.add_column("api_key", column)
    op.create_foreign_key(None, "api_key", "api_key", ["rotated_from"], ["id"])
    op.add_column("key_revocation", instant("effective_at"))
    op.drop_constraint("uq_key_revocation_key_id", "key_revocation")
    op.create_index(None, "key_revocation", ["key_id"])
    op.add_column("model", sa.Column("details", JSONB(), server_default="{}", nullable=False))
    create_limits()


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.drop_table("rate_limit")
    op.drop_column("model", "details")
    end_rotated_keys()
    op.drop_index("ix_key_revocation_key_id", "key_revocation")
    op.create_unique_constraint(None, "key_revocation", ["key_id"])
    op.drop_column("key_revocation", "effective_at")
    op.drop_constraint("fk_api_key_rotated_from_api_key", "api_key")
    for column in ("allowed_models", "regions", "rotated_from", "revoke_at"):
        op.drop_column("api_key", column)
    op.drop_column("team", "changed_seq")
    op.drop_column("team", "regions")


def create_limits() -> None:
    op.create_table(
        "rate_limit", text("id", nullable=False), text("team_id", nullable=False), text("key_id"), text("model_id"),
        *(sa.Column(name, sa.BigInteger()) for name in ("requests_per_minute", "tokens_per_minute", "concurrency")),
        sa.CheckConstraint("coalesce(requests_per_minute, tokens_per_minute, concurrency) IS NOT NULL", name="limits"),
        sa.CheckConstraint("least(requests_per_minute, tokens_per_minute, concurrency) > 0", name="positive"),
        sa.ForeignKeyConstraint(["team_id"], ["team.id"]), sa.ForeignKeyConstraint(["key_id"], ["api_key.id"]),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("team_id", "key_id", "model_id", postgresql_nulls_not_distinct=True))


def end_rotated_keys() -> None:
    """The older schema knows no grace: a key that is in it ends now, and each key keeps its newest revocation."""
    op.execute("UPDATE api_key SET revoked_at = now() WHERE revoke_at IS NOT NULL AND revoked_at IS NULL")
    op.execute("DELETE FROM key_revocation WHERE seq NOT IN (SELECT max(seq) FROM key_revocation GROUP BY key_id)")


def text(name: str, *, nullable: bool = True) -> sa.Column[str]:
    return sa.Column(name, sa.Text(), nullable=nullable)


def names(name: str) -> sa.Column[Any]:
    return sa.Column(name, sa.ARRAY(sa.Text()), nullable=True)


def instant(name: str) -> sa.Column[Any]:
    return sa.Column(name, sa.DateTime(timezone=True), nullable=True)

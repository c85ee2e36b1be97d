"""Money: credits, budgets, what was spent, money leases; and more about each usage record."""

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

USD = sa.Numeric(38, 12)
TABLES = ("money_lease", "spend", "budget", "credit", "money_scope")
RECORD_COLUMNS = (("dialect", "chat"), ("session", ""), ("service_tier", "default"))


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    widen_records()
    create_limits()
    create_spend()
    create_leases()


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    for table in TABLES:
        op.drop_table(table)
    for name in ("resumes", *(name for name, _ in RECORD_COLUMNS)):
        op.drop_column("usage_record", name)


def text(name: str, **options: Any) -> sa.Column[str]:
    return sa.Column(name, sa.Text(), nullable=options.pop("nullable", False), **options)


def usd(name: str, **options: Any) -> sa.Column[Any]:
    return sa.Column(name, USD, nullable=False, **options)


def instant(name: str, *, now: bool = False, nullable: bool = False) -> sa.Column[Any]:
    return sa.Column(
        name, sa.DateTime(timezone=True), server_default=sa.func.now() if now else None, nullable=nullable)


def choice(name: str, kind: str, *values: str, **options: Any) -> list[Any]:
    """A text column and the check that holds it to `values`."""
    allowed = ", ".join(f"'{value}'" for value in values)
    column = sa.Column(name, sa.String(32), nullable=options.pop("nullable", False), **options)
    return [column, sa.CheckConstraint(f"{name} IN ({allowed})", name=kind)]


def scope(*, nullable: bool = False) -> list[Any]:
    return [*choice("scope", "limitscope", "key", "team", nullable=nullable), text("scope_id", nullable=nullable)]


def interval() -> list[Any]:
    return choice("interval", "interval", "daily", "weekly", "monthly", "lifetime")


def widen_records() -> None:
    """The defaults are what every older record was."""
    for name, default in RECORD_COLUMNS:
        op.add_column("usage_record", text(name, server_default=default))
    op.add_column("usage_record", sa.Column("resumes", sa.BigInteger(), server_default="0", nullable=False))


def create_limits() -> None:
    op.create_table(
        "money_scope", *scope(), text("team_id"),
        *choice("mode", "billingmode", "prepaid", "postpaid", server_default="postpaid"),
        usd("overdraft_usd", server_default="0"), usd("consumed_usd", server_default="0"),
        usd("counted_from_usd", server_default="0"),
        sa.CheckConstraint("scope = 'team' OR mode = 'postpaid'", name="keys_own_no_balance"),
        sa.CheckConstraint("overdraft_usd >= 0", name="overdraft_not_negative"),
        sa.ForeignKeyConstraint(["team_id"], ["team.id"]), sa.PrimaryKeyConstraint("scope", "scope_id"))
    op.create_index(None, "money_scope", ["team_id"])
    op.create_table(
        "credit", text("id"), text("team_id"), usd("amount_usd"), text("reason"), text("actor"),
        text("idempotency_key", nullable=True), instant("created_at", now=True),
        sa.CheckConstraint("amount_usd <> 0", name="not_nothing"),
        sa.ForeignKeyConstraint(["team_id"], ["team.id"]), sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("actor", "idempotency_key"))
    op.create_index(None, "credit", ["team_id", "id"])
    op.execute("CREATE TRIGGER credit_rows_frozen BEFORE UPDATE OR DELETE ON credit "
               "FOR EACH ROW EXECUTE FUNCTION forbid_change()")
    op.execute("CREATE TRIGGER credit_frozen BEFORE TRUNCATE ON credit "
               "FOR EACH STATEMENT EXECUTE FUNCTION forbid_change()")
    op.create_table(
        "budget", *scope(), *interval(), usd("limit_usd"),
        sa.CheckConstraint("limit_usd >= 0", name="limit_not_negative"),
        sa.ForeignKeyConstraint(["scope", "scope_id"], ["money_scope.scope", "money_scope.scope_id"]),
        sa.PrimaryKeyConstraint("scope", "scope_id", "interval"))


def create_spend() -> None:
    """Filled from the records that are stored already."""
    op.create_table(
        "spend", *scope(), *interval(), instant("window_start"), text("team_id"), usd("spent_usd"),
        sa.PrimaryKeyConstraint("scope", "scope_id", "interval", "window_start"))
    op.create_index(None, "spend", ["team_id"])
    op.execute("""
        INSERT INTO spend (scope, scope_id, interval, window_start, team_id, spent_usd)
        SELECT owner.scope, owner.scope_id, windows.interval, windows.start AT TIME ZONE 'UTC', record.team_id,
            sum(record.cost_usd)
        FROM usage_record AS record
        CROSS JOIN LATERAL (VALUES ('team', record.team_id), ('key', record.key_id)) AS owner (scope, scope_id)
        CROSS JOIN LATERAL (VALUES
            ('daily', record.day::timestamp), ('weekly', date_trunc('week', record.day::timestamp)),
            ('monthly', date_trunc('month', record.day::timestamp)), ('lifetime', timestamp '1970-01-01')
        ) AS windows (interval, start)
        WHERE record.cost_usd > 0
        GROUP BY 1, 2, 3, 4, 5""")


def create_leases() -> None:
    op.create_table(
        "money_lease", text("id"), sa.Column("seq", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        text("edge_id"), text("boot_id"), *scope(nullable=True),
        sa.Column("granted_nusd", sa.BigInteger(), nullable=False), instant("opened_at", now=True),
        instant("closed_at", nullable=True),
        sa.CheckConstraint("(scope IS NULL) = (scope_id IS NULL)", name="scope_whole"),
        sa.CheckConstraint("scope IS NOT NULL OR closed_at IS NOT NULL", name="open_has_scope"),
        sa.CheckConstraint("granted_nusd >= 0", name="granted_not_negative"), sa.PrimaryKeyConstraint("id"))
    op.create_index("ix_money_lease_open", "money_lease", ["scope", "scope_id"], postgresql_where="closed_at IS NULL")
    op.create_index(None, "money_lease", ["edge_id", "closed_at"])

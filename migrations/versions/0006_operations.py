"""Operations of five kinds: what each claims, how it is paused and rolled back, and what automation may do. Shares of
datacenters and deployments that move by degrees, and what a replica holds."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

KINDS = ("drain", "restore", "failover", "shift", "rollout")
STATES = ("planned", "running", "paused", "rolling_back", "succeeded", "failed", "refused", "cancelled", "rolled_back")
OPEN = ("planned", "running", "paused", "rolling_back")
STEPS = ("preflight", "ramp", "close", "await_edges", "await_idle", "evacuate", "verify", "settle", "warm", "probe",
         "open", "fail", "shift", "watch", "unload", "replace", "await_ready", "reload", "undo")
STEPS_BEFORE = ("preflight", "close", "await_edges", "await_idle", "verify", "settle", "warm", "probe", "open")
STATES_BEFORE = ("planned", "running", "succeeded", "failed", "refused", "cancelled")
STEP_STATES = ("pending", "running", "done", "failed", "skipped")
COMMANDS = ("drain", "probe")


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    shares()
    operations()
    op.create_table(
        "operation_claim", sa.Column("resource", sa.Text(), nullable=False),
        sa.Column("operation_id", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["operation_id"], ["operation.id"]),
        sa.PrimaryKeyConstraint("resource"))
    op.create_index(None, "operation_claim", ["operation_id"])
    op.execute("INSERT INTO operation_claim SELECT 'datacenter:' || datacenter_id, id FROM operation "
               "WHERE state IN ('planned', 'running')")
    op.execute("INSERT INTO operation_claim SELECT 'deployment:' || d.id, o.id FROM operation o "
               "JOIN fleet f ON f.datacenter_id = o.datacenter_id JOIN deployment d ON d.fleet_id = f.id "
               "WHERE o.state IN ('planned', 'running')")
    op.create_table(
        "automation", sa.Column("id", sa.Boolean(), server_default="true", nullable=False),
        sa.Column("frozen", sa.Boolean(), server_default="false", nullable=False),
        sa.Column("frozen_until", sa.DateTime(timezone=True)), sa.Column("reason", sa.Text()),
        sa.Column("by", sa.Text()),
        sa.CheckConstraint("id", name="single_row"), sa.PrimaryKeyConstraint("id"))
    op.execute("INSERT INTO automation DEFAULT VALUES")


def shares() -> None:
    op.add_column("datacenter", sa.Column("ramp_percent", sa.BigInteger(), server_default="0", nullable=False))
    op.add_column("datacenter", sa.Column("evacuate", sa.Boolean(), server_default="false", nullable=False))
    op.create_check_constraint("ramp_range", "datacenter", "ramp_percent BETWEEN 0 AND 100")
    op.add_column("deployment", sa.Column("share_permille", sa.BigInteger(), server_default="1000", nullable=False))
    op.add_column("deployment", sa.Column("kv_usage", sa.Double()))
    op.create_check_constraint("share_range", "deployment", "share_permille BETWEEN 0 AND 10000")
    op.add_column("pool", sa.Column("max_inflight", sa.BigInteger()))
    op.add_column("model", sa.Column("min_datacenters", sa.BigInteger(), server_default="1", nullable=False))


def operations() -> None:
    op.drop_index("uq_operation_open", "operation")
    op.add_column("operation", sa.Column("subject", sa.Text(), server_default="", nullable=False))
    op.execute("UPDATE operation SET subject = datacenter_id")
    op.alter_column("operation", "subject", server_default=None)
    op.alter_column("operation", "datacenter_id", nullable=True)
    for name in ("arguments", "undo"):
        op.add_column("operation", sa.Column(name, JSONB(), server_default="{}", nullable=False))
    op.add_column("operation", sa.Column("automatic", sa.Boolean(), server_default="false", nullable=False))
    for name in ("paused", "paused_by"):
        op.add_column("operation", sa.Column(name, sa.Text()))
    op.add_column("operation", sa.Column("paused_at", sa.DateTime(timezone=True)))
    choices("operation", "kind", "operationkind", KINDS)
    choices("operation", "state", "operationstate", STATES)
    replace_check("operation", "finished_when_closed", f"(finished_at IS NULL) = (state IN ({quoted(OPEN)}))")
    op.create_check_constraint("paused_says_why", "operation", "(state = 'paused') = (paused IS NOT NULL)")
    op.create_index("ix_operation_open", "operation", ["id"], postgresql_where=f"state IN ({quoted(OPEN)})")
    choices("operation_step", "name", "stepname", STEPS)
    choices("operation_step", "state", "stepstate", STEP_STATES)
    choices("command", "kind", "commandkind", COMMANDS)
    op.add_column("command", sa.Column("deployment_id", sa.Text(), server_default="", nullable=False))
    op.add_column("command", sa.Column("round", sa.BigInteger(), server_default="0", nullable=False))
    op.drop_constraint("uq_command_operation_id_fleet_id_kind", "command")
    op.create_unique_constraint(None, "command", ["operation_id", "fleet_id", "kind", "deployment_id", "round"])


def quoted(values: tuple[str, ...]) -> str:
    return ", ".join(f"'{value}'" for value in values)


def choices(table: str, column: str, name: str, values: tuple[str, ...]) -> None:
    replace_check(table, name, f"{column} IN ({quoted(values)})")


def replace_check(table: str, name: str, condition: str) -> None:
    op.drop_constraint(op.f(f"ck_{table}_{name}"), table)
    op.create_check_constraint(name, table, condition)


def downgrade() -> None:
    """What the schema before cannot hold goes: operations of the new kinds, and whatever is paused or rolled back."""
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.drop_table("automation")
    op.drop_table("operation_claim")
    gone = ("SELECT id FROM operation WHERE kind NOT IN ('drain', 'restore') OR datacenter_id IS NULL "
            "OR state IN ('paused', 'rolling_back', 'rolled_back')")
    for table in ("command", "operation_step"):
        op.execute(f"DELETE FROM {table} WHERE operation_id IN ({gone})")  # noqa: S608 - constants
    op.execute("DELETE FROM operation WHERE kind NOT IN ('drain', 'restore') OR datacenter_id IS NULL "
               "OR state IN ('paused', 'rolling_back', 'rolled_back')")
    op.execute(f"DELETE FROM operation_step WHERE name NOT IN ({quoted(STEPS_BEFORE)}) OR state = 'skipped'")  # noqa: S608
    op.execute("DELETE FROM command WHERE kind <> 'drain' OR round > 0 OR deployment_id <> ''")
    op.drop_constraint(op.f("uq_command_operation_id_fleet_id_kind_deployment_id_round"), "command")
    op.create_unique_constraint(None, "command", ["operation_id", "fleet_id", "kind"])
    op.drop_column("command", "round")
    op.drop_column("command", "deployment_id")
    choices("command", "kind", "commandkind", ("drain",))
    choices("operation_step", "name", "stepname", STEPS_BEFORE)
    choices("operation_step", "state", "stepstate", STEP_STATES[:4])
    op.drop_index("ix_operation_open", "operation")
    op.drop_constraint(op.f("ck_operation_paused_says_why"), "operation")
    replace_check("operation", "finished_when_closed", "(finished_at IS NULL) = (state IN ('planned', 'running'))")
    choices("operation", "state", "operationstate", STATES_BEFORE)
    choices("operation", "kind", "operationkind", ("drain", "restore"))
    op.alter_column("operation", "datacenter_id", nullable=False)
    for name in ("subject", "arguments", "undo", "automatic", "paused", "paused_by", "paused_at"):
        op.drop_column("operation", name)
    op.create_index("uq_operation_open", "operation", ["datacenter_id"], unique=True,
                    postgresql_where="state IN ('planned', 'running')")
    for table, name in (("model", "min_datacenters"), ("pool", "max_inflight"), ("deployment", "kv_usage"),
                        ("deployment", "share_permille"), ("datacenter", "evacuate"), ("datacenter", "ramp_percent")):
        op.drop_column(table, name)

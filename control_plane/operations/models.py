"""Tables of the operations slice. Its invariants are in the schema: one open operation a resource, one an idempotency
key, one command a fleet and sequence number."""

from datetime import datetime
from typing import Any

from sqlalchemy import Boolean, CheckConstraint, ForeignKey, Index, UniqueConstraint, func, text
from sqlalchemy.orm import Mapped, mapped_column

from control_plane.contracts.agent_sync import CommandKind
from control_plane.contracts.operations import OperationKind, OperationState, StepState
from control_plane.db import Base, enum_text
from control_plane.operations.machine import CommandStatus
from control_plane.operations.steps import StepName

OPEN_STATES = "('planned', 'running', 'paused', 'rolling_back')"


class Operation(Base):
    """What an operator ordered, or automation. `datacenter_id` is null when it is not of one, `subject` says in words
    what it is of, `arguments` are its order's (`ShiftOrder`, `RolloutOrder`, `onto`), `undo` is what was there before.
    `lock_token` is the replica's that works on it until `lock_expires_at`; `rule` and `numbers` are what a refusal
    counted. While it is paused `paused` says why, `paused_by` who may end that, and its deadline stands still."""

    __tablename__ = "operation"

    id: Mapped[str] = mapped_column(primary_key=True)
    kind: Mapped[OperationKind] = mapped_column(enum_text(OperationKind))
    datacenter_id: Mapped[str | None] = mapped_column(ForeignKey("datacenter.id"))
    subject: Mapped[str]
    arguments: Mapped[dict[str, Any]] = mapped_column(server_default="{}")
    undo: Mapped[dict[str, Any]] = mapped_column(server_default="{}")
    automatic: Mapped[bool] = mapped_column(server_default="false")
    state: Mapped[OperationState] = mapped_column(enum_text(OperationState))
    reason: Mapped[str]
    requested_by: Mapped[str]
    idempotency_key: Mapped[str | None]
    forced: Mapped[bool]
    deadline_at: Mapped[datetime]
    created_at: Mapped[datetime] = mapped_column(server_default=func.now())
    finished_at: Mapped[datetime | None]
    error: Mapped[str | None]
    rule: Mapped[str | None]
    numbers: Mapped[dict[str, Any] | None]
    lock_token: Mapped[str | None]
    lock_expires_at: Mapped[datetime | None]
    paused: Mapped[str | None]
    paused_by: Mapped[str | None]
    paused_at: Mapped[datetime | None]

    __table_args__ = (
        Index("ix_operation_open", "id", postgresql_where=text(f"state IN {OPEN_STATES}")),
        UniqueConstraint("requested_by", "idempotency_key"),
        CheckConstraint(f"(finished_at IS NULL) = (state IN {OPEN_STATES})", name="finished_when_closed"),
        CheckConstraint("(lock_token IS NULL) = (lock_expires_at IS NULL)", name="lock_whole"),
        CheckConstraint("(state = 'paused') = (paused IS NOT NULL)", name="paused_says_why"),
    )


class OperationClaim(Base):
    """What an open operation has to itself: `datacenter:ID` or `deployment:ID`. The row goes when it ends."""

    __tablename__ = "operation_claim"

    resource: Mapped[str] = mapped_column(primary_key=True)
    operation_id: Mapped[str] = mapped_column(ForeignKey("operation.id"), index=True)


class Automation(Base):
    """One row: whether automation stands still, until when (null: until somebody ends it), and why."""

    __tablename__ = "automation"

    id: Mapped[bool] = mapped_column(Boolean, primary_key=True, server_default="true")
    frozen: Mapped[bool] = mapped_column(server_default="false")
    frozen_until: Mapped[datetime | None]
    reason: Mapped[str | None]
    by: Mapped[str | None]

    __table_args__ = (CheckConstraint("id", name="single_row"),)


class OperationStep(Base):
    """A step; `memory` is what it keeps between two looks."""

    __tablename__ = "operation_step"

    operation_id: Mapped[str] = mapped_column(ForeignKey("operation.id"), primary_key=True)
    seq: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[StepName] = mapped_column(enum_text(StepName))
    state: Mapped[StepState] = mapped_column(enum_text(StepState))
    detail: Mapped[str] = mapped_column(server_default="")
    memory: Mapped[dict[str, Any]]
    started_at: Mapped[datetime | None]
    finished_at: Mapped[datetime | None]


class Command(Base):
    """An order to one fleet; `deployment_id` is empty when it is of the whole fleet, `round` tells an operation's
    orders of one kind apart. `epoch` is the lease that it was last handed to, null until then."""

    __tablename__ = "command"

    id: Mapped[str] = mapped_column(primary_key=True)
    operation_id: Mapped[str] = mapped_column(ForeignKey("operation.id"), index=True)
    fleet_id: Mapped[str] = mapped_column(ForeignKey("fleet.id"))
    seq: Mapped[int]
    kind: Mapped[CommandKind] = mapped_column(enum_text(CommandKind))
    deployment_id: Mapped[str] = mapped_column(server_default="")
    round: Mapped[int] = mapped_column(server_default="0")
    status: Mapped[CommandStatus] = mapped_column(enum_text(CommandStatus))
    deadline_at: Mapped[datetime]
    epoch: Mapped[int | None]
    issued_at: Mapped[datetime] = mapped_column(server_default=func.now())
    acked_at: Mapped[datetime | None]
    result: Mapped[str] = mapped_column(server_default="")

    __table_args__ = (
        UniqueConstraint("fleet_id", "seq"),
        UniqueConstraint("operation_id", "fleet_id", "kind", "deployment_id", "round"),
        Index("ix_command_open", "fleet_id", postgresql_where=text("status IN ('issued', 'accepted')")),
    )

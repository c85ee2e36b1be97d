"""Tables of the operations slice. Its invariants are in the schema: one open operation a datacenter, one an
idempotency key, one command a fleet and sequence number."""

from datetime import datetime
from typing import Any

from sqlalchemy import CheckConstraint, ForeignKey, Index, UniqueConstraint, func, text
from sqlalchemy.orm import Mapped, mapped_column

from control_plane.contracts.agent_sync import CommandKind
from control_plane.contracts.operator import OperationKind, OperationState, StepState
from control_plane.db import Base, enum_text
from control_plane.operations.machine import CommandStatus
from control_plane.operations.playbooks import StepName


class Operation(Base):
    """What an operator ordered. `lock_token` is the replica's that works on it until `lock_expires_at`; `rule` and
    `numbers` are what a refusal counted."""

    __tablename__ = "operation"

    id: Mapped[str] = mapped_column(primary_key=True)
    kind: Mapped[OperationKind] = mapped_column(enum_text(OperationKind))
    datacenter_id: Mapped[str] = mapped_column(ForeignKey("datacenter.id"))
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

    __table_args__ = (
        Index("uq_operation_open", "datacenter_id", unique=True,
              postgresql_where=text("state IN ('planned', 'running')")),
        UniqueConstraint("requested_by", "idempotency_key"),
        CheckConstraint("(finished_at IS NULL) = (state IN ('planned', 'running'))", name="finished_when_closed"),
        CheckConstraint("(lock_token IS NULL) = (lock_expires_at IS NULL)", name="lock_whole"),
    )


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
    """An order to one fleet. `epoch` is the lease that it was last handed to, null until then."""

    __tablename__ = "command"

    id: Mapped[str] = mapped_column(primary_key=True)
    operation_id: Mapped[str] = mapped_column(ForeignKey("operation.id"), index=True)
    fleet_id: Mapped[str] = mapped_column(ForeignKey("fleet.id"))
    seq: Mapped[int]
    kind: Mapped[CommandKind] = mapped_column(enum_text(CommandKind))
    status: Mapped[CommandStatus] = mapped_column(enum_text(CommandStatus))
    deadline_at: Mapped[datetime]
    epoch: Mapped[int | None]
    issued_at: Mapped[datetime] = mapped_column(server_default=func.now())
    acked_at: Mapped[datetime | None]
    result: Mapped[str] = mapped_column(server_default="")

    __table_args__ = (
        UniqueConstraint("fleet_id", "seq"),
        UniqueConstraint("operation_id", "fleet_id", "kind"),
        Index("ix_command_open", "fleet_id", postgresql_where=text("status IN ('issued', 'accepted')")),
    )

"""Tables of the capacity slice: samples of demand, and what the planner remembers and is told."""

from datetime import datetime
from typing import Any

from sqlalchemy import Boolean, CheckConstraint, Double, ForeignKey
from sqlalchemy.orm import Mapped, mapped_column

from control_plane.contracts.capacity import PlannerMode
from control_plane.contracts.deployment import PoolRole
from control_plane.db import Base, enum_text


class CapacitySample(Base):
    """A deployment's minute: the highest that its agent reported in it, null where it could not read it."""

    __tablename__ = "capacity_sample"

    deployment_id: Mapped[str] = mapped_column(ForeignKey("deployment.id"), primary_key=True)
    minute_at: Mapped[datetime] = mapped_column(primary_key=True, index=True)
    reports: Mapped[int]
    inflight: Mapped[int | None]
    queued: Mapped[int | None]
    kv_usage: Mapped[float | None] = mapped_column(Double)


class CapacityPlanner(Base):
    """One row: the planner. `mode` is null while the configured one holds; `signals` is what it must remember from one
    plan to the next. `lock_token` is the replica's that plans until `lock_expires_at`."""

    __tablename__ = "capacity_planner"

    id: Mapped[bool] = mapped_column(Boolean, primary_key=True, server_default="true")
    mode: Mapped[PlannerMode | None] = mapped_column(enum_text(PlannerMode))
    reason: Mapped[str | None]
    changed_by: Mapped[str | None]
    changed_at: Mapped[datetime | None]
    planned_at: Mapped[datetime | None]
    signals: Mapped[list[dict[str, Any]]] = mapped_column(server_default="[]")
    lock_token: Mapped[str | None]
    lock_expires_at: Mapped[datetime | None]

    __table_args__ = (
        CheckConstraint("id", name="single_row"),
        CheckConstraint("(lock_token IS NULL) = (lock_expires_at IS NULL)", name="lock_whole"),
    )


class CapacityPlan(Base):
    """A plan as it was made; `moves` counts those in `body`."""

    __tablename__ = "capacity_plan"

    id: Mapped[str] = mapped_column(primary_key=True)
    planned_at: Mapped[datetime] = mapped_column(index=True)
    applied: Mapped[bool]
    moves: Mapped[int]
    body: Mapped[dict[str, Any]]


class CapacityMove(Base):
    """A pool that the planner changed: by `replicas`, which hold `gpus`; negative when it shrank."""

    __tablename__ = "capacity_move"

    id: Mapped[str] = mapped_column(primary_key=True)
    plan_id: Mapped[str]
    moved_at: Mapped[datetime] = mapped_column(index=True)
    model_id: Mapped[str]
    fleet_id: Mapped[str]
    deployment_id: Mapped[str] = mapped_column(ForeignKey("deployment.id"))
    role: Mapped[PoolRole] = mapped_column(enum_text(PoolRole))
    replicas: Mapped[int]
    gpus: Mapped[int]


class CapacityBound(Base):
    """What an operator holds a pool between; without a row it is 1 and no maximum."""

    __tablename__ = "capacity_bound"

    deployment_id: Mapped[str] = mapped_column(ForeignKey("deployment.id"), primary_key=True)
    role: Mapped[PoolRole] = mapped_column(enum_text(PoolRole), primary_key=True)
    minimum: Mapped[int]
    maximum: Mapped[int | None]

    __table_args__ = (
        CheckConstraint("minimum >= 0", name="minimum_not_negative"),
        CheckConstraint("maximum >= minimum", name="maximum_not_below"),
    )

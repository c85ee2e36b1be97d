"""Tables of the usage slice. Partitions of `usage_record`, one a day, are made by code (`partitions.py`)."""

import uuid
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from sqlalchemy import (
    CheckConstraint,
    Date,
    Double,
    Identity,
    Index,
    Integer,
    LargeBinary,
    UniqueConstraint,
    Uuid,
    func,
)
from sqlalchemy.orm import Mapped, mapped_column

from control_plane.db import Base


class UsageRow(Base):
    """What one request used. `day` is the day inside its id; `edge_id` is who signed the batch that brought it."""

    __tablename__ = "usage_record"

    day: Mapped[date] = mapped_column(Date, primary_key=True)
    id: Mapped[uuid.UUID] = mapped_column(Uuid, primary_key=True)
    edge_id: Mapped[str]
    team_id: Mapped[str]
    key_id: Mapped[str]
    model_id: Mapped[str]
    datacenter_id: Mapped[str]
    price_version: Mapped[str]
    outcome: Mapped[str]
    meter: Mapped[str]
    streamed: Mapped[bool]
    http_status: Mapped[int] = mapped_column(Integer)
    prompt_tokens: Mapped[int]
    cached_tokens: Mapped[int]
    completion_tokens: Mapped[int]
    reasoning_tokens: Mapped[int]
    cost_usd: Mapped[Decimal]
    attempts: Mapped[list[dict[str, Any]]]
    opened_at: Mapped[datetime]
    duration_ms: Mapped[float] = mapped_column(Double)
    ttft_ms: Mapped[float | None] = mapped_column(Double)
    finish_reason: Mapped[str]
    body_sha: Mapped[bytes] = mapped_column(LargeBinary)
    received_at: Mapped[datetime] = mapped_column(server_default=func.now())
    dialect: Mapped[str] = mapped_column(server_default="chat")
    session: Mapped[str] = mapped_column(server_default="")
    service_tier: Mapped[str] = mapped_column(server_default="default")
    resumes: Mapped[int] = mapped_column(server_default="0")

    __table_args__ = (
        Index(None, "team_id", "id"),
        CheckConstraint("cached_tokens BETWEEN 0 AND prompt_tokens", name="cached_within_prompt"),
        CheckConstraint("reasoning_tokens BETWEEN 0 AND completion_tokens", name="reasoning_within_completion"),
        CheckConstraint("cost_usd >= 0", name="cost_not_negative"),
        {"postgresql_partition_by": "RANGE (day)"},
    )


class UsageOpening(Base):
    """A request that an edge is about to send upstream and has not accounted for; its record removes it."""

    __tablename__ = "usage_open"

    id: Mapped[uuid.UUID] = mapped_column(Uuid, primary_key=True)
    edge_id: Mapped[str]
    boot_id: Mapped[str]
    team_id: Mapped[str]
    key_id: Mapped[str]
    model_id: Mapped[str]
    price_version: Mapped[str]
    opened_at: Mapped[datetime]
    body_sha: Mapped[bytes] = mapped_column(LargeBinary)
    received_at: Mapped[datetime] = mapped_column(server_default=func.now())

    __table_args__ = (Index(None, "edge_id"),)


class UsageQuarantine(Base):
    """A frame that contradicts the stored truth or the price list; kept whole for a person to judge."""

    __tablename__ = "usage_quarantine"

    id: Mapped[int] = mapped_column(Identity(always=True), primary_key=True)
    request_id: Mapped[uuid.UUID] = mapped_column(Uuid)
    edge_id: Mapped[str]
    reason: Mapped[str]
    frame: Mapped[dict[str, Any]]
    body_sha: Mapped[bytes] = mapped_column(LargeBinary)
    received_at: Mapped[datetime] = mapped_column(server_default=func.now())

    __table_args__ = (UniqueConstraint("request_id", "edge_id", "body_sha"),)


class UsageRollup(Base):
    """Sums of an hour, rebuilt from the records as often as anyone likes."""

    __tablename__ = "usage_rollup_hourly"

    hour: Mapped[datetime] = mapped_column(primary_key=True)
    team_id: Mapped[str] = mapped_column(primary_key=True)
    key_id: Mapped[str] = mapped_column(primary_key=True)
    model_id: Mapped[str] = mapped_column(primary_key=True)
    datacenter_id: Mapped[str] = mapped_column(primary_key=True)
    requests: Mapped[int]
    prompt_tokens: Mapped[int]
    cached_tokens: Mapped[int]
    completion_tokens: Mapped[int]
    cost_usd: Mapped[Decimal]

"""Tables of the evidence slice."""

from datetime import datetime
from typing import Any

from sqlalchemy import ARRAY, BigInteger, Boolean, CheckConstraint, Double, ForeignKey
from sqlalchemy.orm import Mapped, mapped_column

from control_plane.contracts.evidence import VoteVerdict
from control_plane.db import Base, enum_text


class EdgeVote(Base):
    """What an edge says against a datacenter. `since` is when it began to say so to us, without a gap and within one
    boot; `held_s` and `evidence` are its own words. The row goes when the edge stops saying it."""

    __tablename__ = "edge_vote"

    edge_id: Mapped[str] = mapped_column(ForeignKey("identity.id"), primary_key=True)
    datacenter_id: Mapped[str] = mapped_column(primary_key=True)
    verdict: Mapped[VoteVerdict] = mapped_column(enum_text(VoteVerdict))
    boot_id: Mapped[str]
    held_s: Mapped[float] = mapped_column(Double)
    evidence: Mapped[str]
    since: Mapped[datetime]
    seen_at: Mapped[datetime]


class QualityRow(Base):
    """One edge boot's minute of a model in a datacenter (`contracts.evidence.QualityMinute`); `minute` is Unix seconds
    of its start. A repeated report puts the same values in its place."""

    __tablename__ = "quality_minute"

    minute: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    model_id: Mapped[str] = mapped_column(primary_key=True)
    datacenter_id: Mapped[str] = mapped_column(primary_key=True)
    edge_id: Mapped[str] = mapped_column(primary_key=True)
    boot_id: Mapped[str] = mapped_column(primary_key=True)
    succeeded: Mapped[int]
    failed: Mapped[int]
    excluded: Mapped[int]
    ttft: Mapped[list[int]] = mapped_column(ARRAY(BigInteger))
    itl: Mapped[list[int]] = mapped_column(ARRAY(BigInteger))
    prompt_tokens: Mapped[int]
    cached_tokens: Mapped[int]
    completion_tokens: Mapped[int]


class FailoverWatch(Base):
    """One row: the replica that counts votes until `lock_expires_at`, and what it found last (`quorum.Finding`)."""

    __tablename__ = "failover_watch"

    id: Mapped[bool] = mapped_column(Boolean, primary_key=True, server_default="true")
    findings: Mapped[list[dict[str, Any]]] = mapped_column(server_default="[]")
    lock_token: Mapped[str | None]
    lock_expires_at: Mapped[datetime | None]

    __table_args__ = (
        CheckConstraint("id", name="single_row"),
        CheckConstraint("(lock_token IS NULL) = (lock_expires_at IS NULL)", name="lock_whole"),
    )

"""Tables of the audit log. A trigger refuses UPDATE, DELETE and TRUNCATE of events."""

from datetime import datetime
from typing import Any

from sqlalchemy import Boolean, CheckConstraint, Index, LargeBinary, func
from sqlalchemy.orm import Mapped, mapped_column

from control_plane.db import Base


class AuditEvent(Base):
    """One change. `before` and `after` are redacted facts; a secret is never in them. `seq` has no gap; `hash` covers
    every column and `prev_hash`, the hash of the event before (`contracts.audit.link_hash`)."""

    __tablename__ = "audit_event"

    id: Mapped[str] = mapped_column(primary_key=True)
    at: Mapped[datetime] = mapped_column(server_default=func.now())
    actor: Mapped[str]
    action: Mapped[str]
    target: Mapped[str]
    reason: Mapped[str | None]
    before: Mapped[dict[str, Any] | None]
    after: Mapped[dict[str, Any] | None]
    seq: Mapped[int] = mapped_column(unique=True)
    prev_hash: Mapped[bytes] = mapped_column(LargeBinary)
    hash: Mapped[bytes] = mapped_column(LargeBinary, unique=True)

    __table_args__ = (Index(None, "target", "id"),)


class AuditHead(Base):
    """One row: the newest event. Whoever appends holds it until the commit, so events are chained in commit order. It
    is the last lock that a transaction takes, after that of the routing head."""

    __tablename__ = "audit_head"

    id: Mapped[bool] = mapped_column(Boolean, primary_key=True, server_default="true")
    seq: Mapped[int] = mapped_column(server_default="0")
    hash: Mapped[bytes] = mapped_column(LargeBinary)

    __table_args__ = (CheckConstraint("id", name="single_row"),)

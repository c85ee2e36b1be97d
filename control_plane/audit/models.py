"""The table of the audit log. A trigger refuses UPDATE, DELETE and TRUNCATE."""

from datetime import datetime
from typing import Any

from sqlalchemy import Index, func
from sqlalchemy.orm import Mapped, mapped_column

from control_plane.db import Base


class AuditEvent(Base):
    """One change. `before` and `after` are redacted facts; a secret is never in them."""

    __tablename__ = "audit_event"

    id: Mapped[str] = mapped_column(primary_key=True)
    at: Mapped[datetime] = mapped_column(server_default=func.now())
    actor: Mapped[str]
    action: Mapped[str]
    target: Mapped[str]
    reason: Mapped[str | None]
    before: Mapped[dict[str, Any] | None]
    after: Mapped[dict[str, Any] | None]

    __table_args__ = (Index(None, "target", "id"),)

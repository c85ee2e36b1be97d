"""The outbox: work to hand to Celery, written in the transaction of the fact that causes it."""

from datetime import datetime
from typing import Any

from sqlalchemy import Identity, Index, Integer, func
from sqlalchemy.orm import Mapped, mapped_column

from control_plane.db import Base


class OutboxRow(Base):
    """One task to enqueue. A row is leased while it is handed over (`lock_token` until `locked_until`), then deleted.

    Rows with the same `topic` and `key` that nobody has leased yet are one.
    """

    __tablename__ = "outbox"

    id: Mapped[int] = mapped_column(Identity(always=True), primary_key=True)
    topic: Mapped[str]
    key: Mapped[str]
    payload: Mapped[dict[str, Any]]
    created_at: Mapped[datetime] = mapped_column(server_default=func.now())
    due_at: Mapped[datetime] = mapped_column(server_default=func.now())
    attempts: Mapped[int] = mapped_column(Integer, server_default="0")
    lock_token: Mapped[str | None]
    locked_until: Mapped[datetime | None]

    __table_args__ = (
        Index(None, "due_at"),
        Index("uq_outbox_waiting", "topic", "key", unique=True, postgresql_where="lock_token IS NULL"),
    )

"""Tables of the routing slice: snapshots, and the edges that route by them."""

from datetime import datetime
from typing import Any

from sqlalchemy import Boolean, CheckConstraint, ForeignKey, func
from sqlalchemy.orm import Mapped, mapped_column

from control_plane.db import Base


class RoutingHead(Base):
    """One row: the newest snapshot's lineage and version. Whoever publishes holds it, so versions follow facts."""

    __tablename__ = "routing_head"

    id: Mapped[bool] = mapped_column(Boolean, primary_key=True, server_default="true")
    lineage: Mapped[int] = mapped_column(server_default="1")
    version: Mapped[int] = mapped_column(server_default="0")

    __table_args__ = (CheckConstraint("id", name="single_row"),)


class RoutingSnapshot(Base):
    """A signed snapshot: `body` is the exact text that `signature` covers, `cause` what made it."""

    __tablename__ = "routing_snapshot"

    lineage: Mapped[int] = mapped_column(primary_key=True)
    version: Mapped[int] = mapped_column(primary_key=True)
    body: Mapped[str]
    signature: Mapped[str]
    key_id: Mapped[str]
    content_digest: Mapped[str]
    cause: Mapped[str]
    built_at: Mapped[datetime]


class Edge(Base):
    """An edge as it last reported; `id` is its identity. `acked_*` is the snapshot that it uses, `url` where operators
    reach it, `overrides` what they told it there that is in force. `open_requests`, those of them that stream, and
    known `sessions` are by datacenter."""

    __tablename__ = "edge"

    id: Mapped[str] = mapped_column(ForeignKey("identity.id"), primary_key=True)
    region: Mapped[str]
    boot_id: Mapped[str]
    release: Mapped[str]
    acked_lineage: Mapped[int]
    acked_version: Mapped[int]
    nack_lineage: Mapped[int | None]
    nack_version: Mapped[int | None]
    nack_error: Mapped[str | None]
    open_requests: Mapped[dict[str, Any]]
    open_streams: Mapped[dict[str, Any]] = mapped_column(server_default="{}")
    sessions: Mapped[dict[str, Any]] = mapped_column(server_default="{}")
    last_seen_at: Mapped[datetime]
    url: Mapped[str | None]
    overrides: Mapped[list[dict[str, Any]]] = mapped_column(server_default="[]")


class Recovery(Base):
    """A lineage that an operator began after an older copy of the database took the place of this one; `body` is the
    exact text of the order that `signature` covers."""

    __tablename__ = "recovery"

    lineage: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    reason: Mapped[str]
    recovered_by: Mapped[str]
    recovered_at: Mapped[datetime] = mapped_column(server_default=func.now())
    body: Mapped[str]
    signature: Mapped[str]
    key_id: Mapped[str]

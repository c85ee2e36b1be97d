"""Tables of the agents slice: who drives a fleet, and what it last reported."""

from datetime import datetime
from typing import Any

from sqlalchemy import CheckConstraint, ForeignKey
from sqlalchemy.orm import Mapped, mapped_column

from control_plane.db import Base


class AgentLease(Base):
    """The right to drive a fleet. `epoch` only grows; `expires_at` is by the database's clock. `seen_*` is what the
    agent last said that it has seen: higher than what is stored here, if this database is an older copy."""

    __tablename__ = "agent_lease"

    fleet_id: Mapped[str] = mapped_column(ForeignKey("fleet.id"), primary_key=True)
    identity: Mapped[str] = mapped_column(ForeignKey("identity.id"))
    boot_id: Mapped[str]
    previous_boot_id: Mapped[str | None]
    epoch: Mapped[int]
    release: Mapped[str]
    renewed_at: Mapped[datetime]
    expires_at: Mapped[datetime]
    seen_lineage: Mapped[int] = mapped_column(server_default="0")
    seen_epoch: Mapped[int] = mapped_column(server_default="0")
    seen_generation: Mapped[int] = mapped_column(server_default="0")

    __table_args__ = (CheckConstraint("epoch > 0", name="epoch_positive"),)


class FleetView(Base):
    """A fleet's newest report, as it came."""

    __tablename__ = "fleet_view"

    fleet_id: Mapped[str] = mapped_column(ForeignKey("fleet.id"), primary_key=True)
    epoch: Mapped[int]
    observed_at: Mapped[datetime]
    sample: Mapped[list[dict[str, Any]]]

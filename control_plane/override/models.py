"""Tables of the override slice."""

from datetime import datetime

from sqlalchemy import func
from sqlalchemy.orm import Mapped, mapped_column

from control_plane.db import Base


class OperatorKey(Base):
    """A public key whose owner may override edges; snapshots carry it to them until it is revoked."""

    __tablename__ = "operator_key"

    key_id: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str]
    public_key: Mapped[str] = mapped_column(unique=True)
    created_by: Mapped[str]
    created_at: Mapped[datetime] = mapped_column(server_default=func.now())
    revoked_at: Mapped[datetime | None]


class OverrideOrder(Base):
    """An order that an edge was given directly, imported once, whichever edge reported it first."""

    __tablename__ = "override_order"

    id: Mapped[str] = mapped_column(primary_key=True)
    datacenter_id: Mapped[str]
    key_id: Mapped[str]
    first_edge_id: Mapped[str]
    imported_at: Mapped[datetime] = mapped_column(server_default=func.now())

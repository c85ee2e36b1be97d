"""The table of prices. A trigger refuses UPDATE and DELETE: other numbers are another version."""

from datetime import datetime
from decimal import Decimal

from sqlalchemy import CheckConstraint, func
from sqlalchemy.orm import Mapped, mapped_column

from control_plane.db import Base


class PriceVersion(Base):
    """USD per token of one model, for ever."""

    __tablename__ = "price"

    version: Mapped[str] = mapped_column(primary_key=True)
    model_id: Mapped[str] = mapped_column(index=True)
    input_usd: Mapped[Decimal]
    cached_input_usd: Mapped[Decimal]
    output_usd: Mapped[Decimal]
    effective_from: Mapped[datetime] = mapped_column(server_default=func.now())

    __table_args__ = (
        CheckConstraint("input_usd >= 0 AND cached_input_usd >= 0 AND output_usd >= 0", name="not_negative"),)

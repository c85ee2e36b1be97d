"""Tables of the billing slice. Prices, credits and budgets are facts; `spend` is summed from usage records and can be
summed again; a money lease is what one edge may spend before its records are here.

Prices and credits never change: a trigger refuses UPDATE and DELETE.
"""

from datetime import datetime
from decimal import Decimal

from sqlalchemy import CheckConstraint, ForeignKey, ForeignKeyConstraint, Identity, Index, UniqueConstraint, func
from sqlalchemy.orm import Mapped, mapped_column

from control_plane.contracts.keys import LimitScope
from control_plane.contracts.money import BillingMode, Interval
from control_plane.db import Base, enum_text


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


class MoneyScope(Base):
    """A team or a key whose money somebody limited. Its row is the lock of all its money; `team_id` is the team itself,
    or the key's.

    While a team is prepaid its credits pay what it spends: `consumed_usd` is what they paid before the mode was set
    last, `counted_from_usd` the team's lifetime spend at that moment.
    """

    __tablename__ = "money_scope"

    scope: Mapped[LimitScope] = mapped_column(enum_text(LimitScope), primary_key=True)
    scope_id: Mapped[str] = mapped_column(primary_key=True)
    team_id: Mapped[str] = mapped_column(ForeignKey("team.id"), index=True)
    mode: Mapped[BillingMode] = mapped_column(enum_text(BillingMode), server_default=BillingMode.POSTPAID.value)
    overdraft_usd: Mapped[Decimal] = mapped_column(server_default="0")
    consumed_usd: Mapped[Decimal] = mapped_column(server_default="0")
    counted_from_usd: Mapped[Decimal] = mapped_column(server_default="0")

    __table_args__ = (
        CheckConstraint("scope = 'team' OR mode = 'postpaid'", name="keys_own_no_balance"),
        CheckConstraint("overdraft_usd >= 0", name="overdraft_not_negative"))


class Credit(Base):
    """Money that an operator gave a team, or took back. Never changed: a correction is another credit."""

    __tablename__ = "credit"

    id: Mapped[str] = mapped_column(primary_key=True)
    team_id: Mapped[str] = mapped_column(ForeignKey("team.id"))
    amount_usd: Mapped[Decimal]
    reason: Mapped[str]
    actor: Mapped[str]
    idempotency_key: Mapped[str | None]
    created_at: Mapped[datetime] = mapped_column(server_default=func.now())

    __table_args__ = (
        Index(None, "team_id", "id"), UniqueConstraint("actor", "idempotency_key"),
        CheckConstraint("amount_usd <> 0", name="not_nothing"))


class Budget(Base):
    """The most that a team or a key may spend in each interval."""

    __tablename__ = "budget"

    scope: Mapped[LimitScope] = mapped_column(enum_text(LimitScope), primary_key=True)
    scope_id: Mapped[str] = mapped_column(primary_key=True)
    interval: Mapped[Interval] = mapped_column(enum_text(Interval), primary_key=True)
    limit_usd: Mapped[Decimal]

    __table_args__ = (
        ForeignKeyConstraint(["scope", "scope_id"], ["money_scope.scope", "money_scope.scope_id"]),
        CheckConstraint("limit_usd >= 0", name="limit_not_negative"))


class Spend(Base):
    """What the stored usage records of one window cost together. Written in the transaction that stores them."""

    __tablename__ = "spend"

    scope: Mapped[LimitScope] = mapped_column(enum_text(LimitScope), primary_key=True)
    scope_id: Mapped[str] = mapped_column(primary_key=True)
    interval: Mapped[Interval] = mapped_column(enum_text(Interval), primary_key=True)
    window_start: Mapped[datetime] = mapped_column(primary_key=True)
    team_id: Mapped[str] = mapped_column(index=True)
    spent_usd: Mapped[Decimal]


class MoneyLease(Base):
    """A block of a scope's money that one boot of one edge may spend; its `id` was made there. It holds nothing once
    it is closed. One without a scope was closed before it was asked for: it is never granted any more."""

    __tablename__ = "money_lease"

    id: Mapped[str] = mapped_column(primary_key=True)
    seq: Mapped[int] = mapped_column(Identity(always=True))
    edge_id: Mapped[str]
    boot_id: Mapped[str]
    scope: Mapped[LimitScope | None] = mapped_column(enum_text(LimitScope))
    scope_id: Mapped[str | None]
    granted_nusd: Mapped[int]
    opened_at: Mapped[datetime] = mapped_column(server_default=func.now())
    closed_at: Mapped[datetime | None]

    __table_args__ = (
        Index("ix_money_lease_open", "scope", "scope_id", postgresql_where="closed_at IS NULL"),
        Index(None, "edge_id", "closed_at"),
        CheckConstraint("(scope IS NULL) = (scope_id IS NULL)", name="scope_whole"),
        CheckConstraint("scope IS NOT NULL OR closed_at IS NOT NULL", name="open_has_scope"),
        CheckConstraint("granted_nusd >= 0", name="granted_not_negative"))

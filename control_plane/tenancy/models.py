"""Tables of the tenancy slice."""

from datetime import datetime

from sqlalchemy import CheckConstraint, ForeignKey, Index, UniqueConstraint, func
from sqlalchemy.orm import Mapped, mapped_column

from control_plane.db import Base


class Team(Base):
    """Who is billed. `regions` null: any may serve it. `changed_seq` is when what binds its keys changed last, in the
    numbers that the revocation head gives out."""

    __tablename__ = "team"

    id: Mapped[str] = mapped_column(primary_key=True)
    slug: Mapped[str] = mapped_column(unique=True)
    name: Mapped[str]
    created_at: Mapped[datetime] = mapped_column(server_default=func.now())
    regions: Mapped[list[str] | None]
    changed_seq: Mapped[int] = mapped_column(server_default="0", index=True)


class ApiKey(Base):
    """A team's key: the digest of its secret, and what may be shown of it. Revoked keys are kept.

    `allowed_models` and `regions` null: any. `revoke_at` is when a key that was rotated ends; its successor names it as
    `rotated_from`.
    """

    __tablename__ = "api_key"

    id: Mapped[str] = mapped_column(primary_key=True)
    team_id: Mapped[str] = mapped_column(ForeignKey("team.id"))
    name: Mapped[str]
    digest: Mapped[str] = mapped_column(unique=True)
    hint: Mapped[str]
    scopes: Mapped[list[str]]
    created_by: Mapped[str]
    created_at: Mapped[datetime] = mapped_column(server_default=func.now())
    expires_at: Mapped[datetime | None]
    revoked_at: Mapped[datetime | None]
    allowed_models: Mapped[list[str] | None]
    regions: Mapped[list[str] | None]
    rotated_from: Mapped[str | None] = mapped_column(ForeignKey("api_key.id"))
    revoke_at: Mapped[datetime | None]

    __table_args__ = (Index(None, "team_id", "id"), CheckConstraint("cardinality(scopes) > 0", name="scoped"))

    @property
    def ends_at(self) -> datetime | None:
        """When it ends by itself: it expires, or its grace after a rotation is over."""
        return min((end for end in (self.expires_at, self.revoke_at) if end is not None), default=None)


class RevocationHead(Base):
    """One row: the last number given out, to a revocation or to a team's change. Whoever takes one locks it, so that
    numbers grow in commit order."""

    __tablename__ = "revocation_head"

    id: Mapped[bool] = mapped_column(primary_key=True, server_default="true")
    seq: Mapped[int] = mapped_column(server_default="0")

    __table_args__ = (CheckConstraint("id", name="single_row"),)


class KeyRevocation(Base):
    """A key that edges must stop serving, at once or from `effective_at` on; they read this stream by `seq`."""

    __tablename__ = "key_revocation"

    seq: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    key_id: Mapped[str] = mapped_column(ForeignKey("api_key.id"), index=True)
    digest: Mapped[str]
    revoked_at: Mapped[datetime] = mapped_column(server_default=func.now())
    effective_at: Mapped[datetime | None]


class KeyLimit(Base):
    """How fast one key, or with `key_id` null all keys of a team together, may ask one model, or with `model_id` null
    all models. A figure that is null does not limit."""

    __tablename__ = "rate_limit"

    id: Mapped[str] = mapped_column(primary_key=True)
    team_id: Mapped[str] = mapped_column(ForeignKey("team.id"))
    key_id: Mapped[str | None] = mapped_column(ForeignKey("api_key.id"))
    model_id: Mapped[str | None]
    requests_per_minute: Mapped[int | None]
    tokens_per_minute: Mapped[int | None]
    concurrency: Mapped[int | None]

    __table_args__ = (
        UniqueConstraint("team_id", "key_id", "model_id", postgresql_nulls_not_distinct=True),
        CheckConstraint("coalesce(requests_per_minute, tokens_per_minute, concurrency) IS NOT NULL", name="limits"),
        CheckConstraint("least(requests_per_minute, tokens_per_minute, concurrency) > 0", name="positive"),
    )

"""Tables of the tenancy slice."""

from datetime import datetime

from sqlalchemy import CheckConstraint, ForeignKey, Index, func
from sqlalchemy.orm import Mapped, mapped_column

from control_plane.db import Base


class Team(Base):
    """Who is billed."""

    __tablename__ = "team"

    id: Mapped[str] = mapped_column(primary_key=True)
    slug: Mapped[str] = mapped_column(unique=True)
    name: Mapped[str]
    created_at: Mapped[datetime] = mapped_column(server_default=func.now())


class ApiKey(Base):
    """A team's key: the digest of its secret, and what may be shown of it. Revoked keys are kept."""

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

    __table_args__ = (Index(None, "team_id", "id"), CheckConstraint("cardinality(scopes) > 0", name="scoped"))


class RevocationHead(Base):
    """One row: the last number given out. Whoever revokes locks it, so that numbers grow in commit order."""

    __tablename__ = "revocation_head"

    id: Mapped[bool] = mapped_column(primary_key=True, server_default="true")
    seq: Mapped[int] = mapped_column(server_default="0")

    __table_args__ = (CheckConstraint("id", name="single_row"),)


class KeyRevocation(Base):
    """A key that edges must stop serving; they read this stream by `seq`."""

    __tablename__ = "key_revocation"

    seq: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    key_id: Mapped[str] = mapped_column(ForeignKey("api_key.id"), unique=True)
    digest: Mapped[str]
    revoked_at: Mapped[datetime] = mapped_column(server_default=func.now())

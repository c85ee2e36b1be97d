"""Tables of the identity slice. Secrets are stored as SHA-256 digests only."""

from datetime import datetime

from sqlalchemy import CheckConstraint, ForeignKey, Index, func
from sqlalchemy.orm import Mapped, mapped_column

from control_plane.contracts.enrolment import IdentityKind
from control_plane.db import Base, enum_text


class Identity(Base):
    """An enrolled machine. `subject` is the fleet of an agent, the region of an edge."""

    __tablename__ = "identity"

    id: Mapped[str] = mapped_column(primary_key=True)
    kind: Mapped[IdentityKind] = mapped_column(enum_text(IdentityKind))
    subject: Mapped[str]
    public_key: Mapped[str] = mapped_column(unique=True)
    enrolled_at: Mapped[datetime] = mapped_column(server_default=func.now())
    revoked_at: Mapped[datetime | None]

    __table_args__ = (Index(None, "kind", "subject"),)


class EnrolmentToken(Base):
    """A one-time token; `spent_by` is the identity that it made."""

    __tablename__ = "enrolment_token"

    digest: Mapped[str] = mapped_column(primary_key=True)
    kind: Mapped[IdentityKind] = mapped_column(enum_text(IdentityKind))
    subject: Mapped[str]
    created_at: Mapped[datetime] = mapped_column(server_default=func.now())
    expires_at: Mapped[datetime] = mapped_column(index=True)
    spent_by: Mapped[str | None] = mapped_column(ForeignKey("identity.id"))
    spent_at: Mapped[datetime | None]

    __table_args__ = (CheckConstraint("(spent_by IS NULL) = (spent_at IS NULL)", name="spent_whole"),)


class OperatorToken(Base):
    """A token of a person or a program that operates Meridian; it always ends."""

    __tablename__ = "operator_token"

    id: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str]
    digest: Mapped[str] = mapped_column(unique=True)
    scopes: Mapped[list[str]]
    created_at: Mapped[datetime] = mapped_column(server_default=func.now())
    expires_at: Mapped[datetime]
    revoked_at: Mapped[datetime | None]

    __table_args__ = (Index(None, "name"), CheckConstraint("cardinality(scopes) > 0", name="scoped"))

"""A new lineage: what a control plane says, signed, when an older copy of its database took its place.

Versions, epochs, generations and sequence numbers only ever grow, and edges and agents refuse lower ones. After a
restore they would refuse the truth for ever. A higher lineage starts them anew; agents believe one only with this
order, signed by the key of the control plane that they got when they enrolled, edges by the signature of a snapshot.
"""

from datetime import datetime

from pydantic import Field

from control_plane.contracts.problem import PRINTABLE
from control_plane.contracts.sealed import Sealed
from control_plane.contracts.signing import SigningKey, VerifyKey
from control_plane.contracts.wire import Count, Document, Wire

PURPOSE = "meridian-recovery-v1"
FIRST_LINEAGE = 1


class Recovery(Wire):
    """The order to begin `lineage`."""

    lineage: Count
    recovered_at_s: float
    recovered_by: str
    reason: str


class SignedRecovery(Sealed):
    """The order with the control plane's signature."""

    @classmethod
    def seal(cls, order: Recovery, key: SigningKey) -> "SignedRecovery":
        return cls.sealed(PURPOSE, order, key)

    def open(self, keys: list[VerifyKey]) -> Recovery:
        """The order.

        Raises:
            SealBroken: it must not be believed.
        """
        return self.opened(PURPOSE, Recovery, keys)


class RecoveryRequest(Document):
    """Begins a new lineage. `dry_run` only tells what it would do; `force` begins one although no machine is ahead."""

    reason: str = Field(min_length=1, max_length=500, pattern=PRINTABLE)
    dry_run: bool = False
    force: bool = False


class AheadView(Wire):
    """A machine that has seen more than the database holds, and what, in words."""

    kind: str
    id: str
    seen: str


class LineageView(Wire):
    """Where this control plane's history stands, who is ahead of it, and which live machines do not follow its lineage
    yet (`behind`). `open_operations` and `open_leases` are what a
    recovery would close."""

    lineage: int
    version: int
    ahead: list[AheadView]
    behind: list[AheadView] = Field(default_factory=list)
    open_operations: list[str]
    open_leases: int


class RecoveryView(Wire):
    """A recovery: the lineage that it began, or would begin, and what it closed."""

    lineage: int
    version: int | None
    recovered_at: datetime | None
    before: LineageView

"""Break-glass: an order that an operator signs and hands to each edge directly, with everything above the edge off.

`POST /edge/v1/overrides` on the edge's own port takes one order, `GET` lists them, asked for with a request that is
signed by the same key. Edges know the keys from the snapshot that they use, which is signed itself. An order is for one
edge, ends by itself, and is kept on the edge's disk; what one order says may never be undone by an older one.
"""

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from control_plane.contracts.problem import PRINTABLE
from control_plane.contracts.sealed import Sealed
from control_plane.contracts.signing import SigningKey, VerifyKey
from control_plane.contracts.snapshot import TrafficState
from control_plane.contracts.wire import Name, Wire

PATH = "/edge/v1/overrides"
PURPOSE = "meridian-override-v1"
MAX_TTL_S = 86_400.0
MAX_SKEW_S = 60.0
"""How far ahead an operator's clock may be of an edge's."""

MAX_BODY_BYTES = 16_384
MAX_ORDERS = 256

Reason = Annotated[str, Field(min_length=1, max_length=500, pattern=PRINTABLE)]
Time = Annotated[float, Field(ge=0, le=1e12, allow_inf_nan=False)]


class OverrideAction(StrEnum):
    """`drain`: the datacenter gets no new requests, whatever the snapshot says. `lift`: no earlier order about the
    datacenter counts any more."""

    DRAIN = "drain"
    LIFT = "lift"


class Override(Wire):
    """One order to one edge. `id` is the same for every edge that is told the same. With `evacuate` streams that are
    open there go on elsewhere. Only with `force` may a model be left without any datacenter."""

    id: Name
    action: OverrideAction
    datacenter: Name
    edge: Name
    reason: Reason
    issued_at_s: Time
    ttl_s: float = Field(gt=0, le=MAX_TTL_S, allow_inf_nan=False)
    evacuate: bool = False
    force: bool = False

    @property
    def expires_at_s(self) -> float:
        return self.issued_at_s + self.ttl_s


class SignedOverride(Sealed):
    """An order with its operator's signature."""

    key_id: Name

    @classmethod
    def seal(cls, order: Override, key: SigningKey) -> "SignedOverride":
        return cls.sealed(PURPOSE, order, key)

    def open(self, keys: list[VerifyKey]) -> Override:
        """The order.

        Raises:
            SealBroken: it must not be believed.
        """
        return self.opened(PURPOSE, Override, keys)


class OverrideStanding(StrEnum):
    """What an order is at an edge now. `suspended`: it would leave a model without any datacenter, so the snapshot
    counts. `unproved`: the snapshot in use does not know its key, or no more. The last two are over."""

    IN_FORCE = "in_force"
    SUSPENDED = "suspended"
    UNPROVED = "unproved"
    LIFTED = "lifted"
    EXPIRED = "expired"


class OverrideOutcome(StrEnum):
    """What became of an order that an edge was handed. All but the first two are refusals."""

    TAKEN = "taken"
    KNOWN = "known"
    MALFORMED = "malformed"
    NOT_BELIEVED = "not_believed"
    WRONG_EDGE = "wrong_edge"
    OTHER_ORDER = "other_order"
    NOT_YET = "not_yet"
    EXPIRED = "expired"
    LIFTED = "lifted"
    UNKNOWN_DATACENTER = "unknown_datacenter"
    LEAVES_NONE = "leaves_none"
    TOO_MANY = "too_many"
    NOT_READY = "not_ready"


ACCEPTED = frozenset({OverrideOutcome.TAKEN, OverrideOutcome.KNOWN})


class OverrideView(Wire):
    """An order as an edge keeps it; times are Unix seconds. `key_name` is null while it is unproved."""

    id: Name
    action: OverrideAction
    datacenter: Name
    state: OverrideStanding
    reason: Reason
    key_id: Name
    key_name: Name | None
    issued_at_s: Time
    expires_at_s: Time
    evacuate: bool
    force: bool


class OverrideReport(Wire):
    """An order as an edge reports it to the control plane, with its proof."""

    signed: SignedOverride
    view: OverrideView


class OverrideAnswer(Wire):
    """What an edge says to an order."""

    edge: str
    outcome: OverrideOutcome
    message: str


class DatacenterStanding(Wire):
    """A datacenter as an edge routes to it now, overrides included."""

    id: str
    state: TrafficState
    weight: int


class EdgeStanding(Wire):
    """What an edge tells an operator who asks it directly. `control_plane` says what keeps it from there, empty if
    nothing does."""

    edge: str
    region: str
    lineage: int
    version: int
    control_plane: str
    datacenters: list[DatacenterStanding]
    overrides: list[OverrideView]

"""The bug: an edge ships what is written and not yet durable. After a loss of power the control plane knows records
that the edge's disk does not, and the edge settles the same requests in another way."""

from typing import Any

from edge_api.metering.frames import Position
from edge_api.metering.outbox import Outbox
from edge_api.metering.shipper import Shipper


class HastyOutbox:
    """The outbox as a hasty shipper sees it: what is written is called durable."""

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox

    @property
    def durable(self) -> Position:
        return self._outbox.written

    def __getattr__(self, name: str) -> Any:
        return getattr(self._outbox, name)


def plant() -> None:
    """Every shipper made from now on is hasty."""
    made = Shipper.__init__

    def hasty(self: Shipper, outbox: Outbox, *rest: Any, **more: Any) -> None:
        made(self, HastyOutbox(outbox), *rest, **more)  # type: ignore[arg-type]

    Shipper.__init__ = hasty  # type: ignore[method-assign]

"""The routing table in use. One reference, replaced whole, so that a request never sees half of two snapshots."""

from collections.abc import Callable

from control_plane.contracts.snapshot import Snapshot
from edge_api.routing.table import RoutingTable, build_table


def unchanged(snapshot: Snapshot) -> Snapshot:
    """The effect of no override."""
    return snapshot


class TableHolder:
    """Owns the snapshot in use, what operators' overrides make of it (`routed`), and the table made of that; all are
    None before the first. `effect` is what the overrides do; who sets it or changes what it does calls `rebuild`."""

    def __init__(self) -> None:
        self.current: RoutingTable | None = None
        self.snapshot: Snapshot | None = None
        self.routed: Snapshot | None = None
        self.effect: Callable[[Snapshot], Snapshot] = unchanged

    def take(self, snapshot: Snapshot) -> None:
        """Puts a checked snapshot to use."""
        self.snapshot = snapshot
        self.rebuild()

    def rebuild(self) -> None:
        """Puts the snapshot in use to use again, with what the overrides make of it now."""
        if self.snapshot is not None:
            self.routed = self.effect(self.snapshot)
            self.current = build_table(self.routed)

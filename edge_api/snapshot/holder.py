"""The routing table in use. One reference, replaced whole, so that a request never sees half of two snapshots."""

from control_plane.contracts.snapshot import Snapshot
from edge_api.routing.table import RoutingTable, build_table


class TableHolder:
    """Owns the snapshot in use and the table made of it; both are None before the first."""

    def __init__(self) -> None:
        self.current: RoutingTable | None = None
        self.snapshot: Snapshot | None = None

    def take(self, snapshot: Snapshot) -> None:
        """Puts a checked snapshot to use."""
        self.current, self.snapshot = build_table(snapshot), snapshot

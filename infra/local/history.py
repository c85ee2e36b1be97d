"""What machines remember of a control plane whose database is gone.

Versions, epochs and generations never fall for a machine: a control plane that counts from the beginning again would be
refused for ever. In production an operator decides about that. Here the database lies beside the machines' own state,
so whoever starts the stack can see that it was lost, and lets them forget. Unshipped usage is never touched.
"""

from pathlib import Path

from pydantic import ValidationError

from control_plane.contracts.operator import StatusView
from control_plane.contracts.snapshot import SignedSnapshot, Snapshot
from infra.local.layout import Layout
from infra.local.shape import Shape, fleet_id

EDGE_FILES = ("snapshot.json", "keys.json")
AGENT_FILES = ("agent.sqlite", "agent.sqlite-wal", "agent.sqlite-shm")


def forget_lost(layout: Layout, shape: Shape, view: StatusView) -> list[str]:
    """Removes what machines, none of which runs, remember of versions and epochs that the control plane never had; the
    names of those that forgot something."""
    leased = {fleet.id for place in view.datacenters for fleet in place.fleets if fleet.lease_age_s is not None}
    newest = (view.lineage, view.snapshot_version)
    forgot = []
    for index in range(shape.edge_count):
        directory = layout.edge(index)
        if _stored_version(directory / EDGE_FILES[0]) > newest and _remove(directory, EDGE_FILES):
            forgot.append(f"edge {index}")
    for name in shape.datacenters:
        if fleet_id(name) not in leased and _remove(layout.agent(name), AGENT_FILES):
            forgot.append(f"agent of {name}")
    return forgot


def _stored_version(path: Path) -> tuple[int, int]:
    """Lineage and version of a stored snapshot; (0, 0) when there is none that can be read."""
    try:
        snapshot = Snapshot.model_validate_json(SignedSnapshot.model_validate_json(path.read_bytes()).body)
    except (OSError, ValidationError):
        return 0, 0
    return snapshot.lineage, snapshot.version


def _remove(directory: Path, names: tuple[str, ...]) -> bool:
    found = [directory / name for name in names if (directory / name).exists()]
    for path in found:
        path.unlink()
    return bool(found)

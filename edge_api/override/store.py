"""The orders on disk, so that an edge that starts again obeys them still. Mode 0600, replaced whole."""

import os
from pathlib import Path

import structlog
from pydantic import Field, ValidationError

from control_plane.contracts.override import SignedOverride
from control_plane.contracts.signing import write_private
from control_plane.contracts.wire import Wire

log = structlog.get_logger()


class StoredOrder(Wire):
    """An order as it came; `is_reported`: the control plane has it."""

    signed: SignedOverride
    is_reported: bool = False


class StoredOrders(Wire):
    """The file's content."""

    orders: list[StoredOrder] = Field(default_factory=list)


class OrderStore:
    """Owns one file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def load(self) -> list[StoredOrder]:
        """What was stored; nothing if there is no readable file. Signatures are not checked here."""
        try:
            return StoredOrders.model_validate_json(self._path.read_bytes()).orders
        except FileNotFoundError:
            return []
        except (OSError, ValidationError) as error:
            log.error("stored_overrides_unreadable", error=str(error))
            return []

    def save(self, orders: list[StoredOrder]) -> None:
        """Replaces the file; it is on the disk when this returns.

        Raises:
            OSError: it is not; the former one is still there.
        """
        write_private(self._path, StoredOrders(orders=orders).model_dump_json().encode())
        directory = os.open(self._path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)

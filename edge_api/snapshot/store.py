"""The last good snapshot on disk: what an edge serves by when it starts while everything above it is down."""

import os
from pathlib import Path

import structlog
from pydantic import ValidationError

from control_plane.contracts.signing import VerifyKey, write_private
from control_plane.contracts.snapshot import SignedSnapshot, Snapshot, SnapshotRefused

log = structlog.get_logger()


class SnapshotStore:
    """Owns one file, replaced whole."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def load(self, keys: list[VerifyKey]) -> Snapshot | None:
        """The stored snapshot, verified again: a disk is input like any other. None if there is no good one."""
        try:
            return SignedSnapshot.model_validate_json(self._path.read_bytes()).open(keys)
        except FileNotFoundError:
            return None
        except (OSError, ValidationError, SnapshotRefused) as error:
            log.error("stored_snapshot_refused", error=str(error))
            return None

    def save(self, signed: SignedSnapshot) -> None:
        """Replaces the stored snapshot; it is on the disk when this returns.

        Raises:
            OSError: it is not; the former one is still there.
        """
        write_private(self._path, signed.model_dump_json().encode())
        directory = os.open(self._path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)

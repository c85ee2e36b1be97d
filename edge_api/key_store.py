"""The key cache on disk, so that a restarted edge serves known keys while the control plane is away.

Digests and principals only; a digest of 190 random bits says nothing about its key. Mode 0600, replaced whole.
"""

from pathlib import Path

import structlog
from pydantic import Field, ValidationError

from control_plane.contracts.keys import Principal
from control_plane.contracts.signing import write_private
from control_plane.contracts.wire import Wire

log = structlog.get_logger()


class StoredKeys(Wire):
    """`keys` maps digest to principal, least recently used first; `revoked` are digests, and `ending` those that are
    refused from a Unix time on. Where the streams stand is of `lineage`."""

    lineage: int = 0
    revocations_after: int = 0
    changes_after: int = 0
    revoked: list[str] = Field(default_factory=list)
    ending: dict[str, float] = Field(default_factory=dict)
    keys: dict[str, Principal] = Field(default_factory=dict)


class KeyStore:
    """Owns one file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def load(self) -> StoredKeys:
        """What was stored; nothing if there is no readable file, then every key is looked up again."""
        try:
            return StoredKeys.model_validate_json(self._path.read_bytes())
        except FileNotFoundError:
            return StoredKeys()
        except (OSError, ValidationError) as error:
            log.error("stored_keys_unreadable", error=str(error))
            return StoredKeys()

    def save(self, keys: StoredKeys) -> None:
        """Replaces what was stored.

        Raises:
            OSError: the former content is still there.
        """
        write_private(self._path, keys.model_dump_json().encode())

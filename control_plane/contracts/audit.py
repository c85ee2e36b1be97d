"""The audit log as operators read it, and how its chain is made.

Each event is numbered without a gap and carries the hash of the one before it, so nobody can alter, remove, add or
reorder an event of the past without every later hash being wrong. The hash of the newest event, noted elsewhere, proves
the whole log up to it.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from control_plane.contracts.wire import Wire

FORMAT = "meridian-audit-v1"
GENESIS = bytes(32)
"""What the first event has for the hash before it."""


class AuditView(Wire):
    """One audit event. `hash` is hex; `before` and `after` are redacted facts, null where nothing was or is."""

    id: str
    at: datetime
    actor: str
    action: str
    target: str
    reason: str | None
    before: dict[str, Any] | None = None
    after: dict[str, Any] | None = None
    seq: int = 0
    hash: str = ""


class ChainFault(Wire):
    """The first event that is not as it was written; `seq` is where in the chain. `event_id` is null if it is gone."""

    seq: int
    event_id: str | None
    problem: str


class ChainView(Wire):
    """How far the chain was walked. `is_complete`: up to its head; else ask again with `seq` and `hash` as `after`.
    `hash` is that of the last event walked: of a complete walk, the head's, to be noted elsewhere."""

    seq: int
    hash: str
    is_complete: bool
    fault: ChainFault | None = None


@dataclass(frozen=True, slots=True)
class Link:
    """An event as it is hashed."""

    seq: int
    id: str
    at: datetime
    actor: str
    action: str
    target: str
    reason: str | None
    before: Mapping[str, Any] | None
    after: Mapping[str, Any] | None


def link_hash(link: Link, prev_hash: bytes) -> bytes:
    """SHA-256 over one JSON array of the format's name, the hash before, and every field: nothing can move from one
    field into another. Numbers are hashed as a database keeps them, where 1.0 and 1 are the same."""
    fields = [FORMAT, prev_hash.hex(), link.seq, link.id, link.at.astimezone(UTC).isoformat(timespec="microseconds"),
              link.actor, link.action, link.target, link.reason, _plain(link.before), _plain(link.after)]
    return hashlib.sha256(json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()).digest()


def _plain(value: Any) -> Any:
    """`value` with whole floats as integers."""
    match value:
        case Mapping():
            return {str(name): _plain(inner) for name, inner in value.items()}
        case list() | tuple():
            return [_plain(inner) for inner in value]
        case float() if value.is_integer():
            return int(Decimal(repr(value)))  # 1e23 is kept as the digits that it is written with
        case _:
            return value

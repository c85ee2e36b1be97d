"""Operators' keys for overrides, as the operator API reads and writes them."""

from datetime import datetime

from pydantic import Field

from control_plane.contracts.problem import PRINTABLE
from control_plane.contracts.wire import Document, Wire


class OperatorKeyRequest(Document):
    """A key to believe; `public_key` is url-safe base64 of 32 raw Ed25519 bytes, `name` says whose it is."""

    name: str = Field(min_length=1, max_length=100, pattern=PRINTABLE)
    public_key: str = Field(min_length=1, max_length=100)


class OperatorKeyView(Wire):
    """A key that edges believe until it is revoked."""

    key_id: str
    name: str
    public_key: str
    created_by: str
    created_at: datetime
    revoked_at: datetime | None

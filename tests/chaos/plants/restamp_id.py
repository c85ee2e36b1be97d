"""The bug: what is shipped again after a failure gets a new id each time, as if a record were named by its sending."""

from typing import Any

import msgspec

from control_plane.contracts import ids
from control_plane.contracts.transport import ControlPlaneAway
from edge_api.metering.shipper import Refused, Shipper


def plant() -> None:
    """Every batch that follows a failed one is stamped anew."""
    ship = Shipper._post
    failed: set[int] = set()

    async def stamping(self: Shipper, frames: list[Any]) -> Any:
        if id(self) in failed:
            frames = [msgspec.structs.replace(frame, request_id=ids.uuid7()) for frame in frames]
            frames.sort(key=lambda frame: frame.request_id)
        try:
            answer = await ship(self, frames)
        except (ControlPlaneAway, Refused):
            failed.add(id(self))
            raise
        failed.discard(id(self))
        return answer

    Shipper._post = stamping  # type: ignore[method-assign]

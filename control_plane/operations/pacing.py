"""The pace of operations, as it is set."""

from control_plane.operations.facts import Pace
from control_plane.settings import Settings

SLOWEST_LOOK_S, QUICKEST_LOOK_S = 1.0, 0.1


def pace_of(settings: Settings) -> Pace:
    """How long things are held and looked at."""
    return Pace(
        verify_s=settings.drain_verify_s, hold_s=settings.ramp_hold_s, flap_wait_s=settings.flap_wait_s,
        ack_wait_s=settings.ack_wait_s, evacuate_s=settings.evacuate_wait_s, watch_s=settings.watch_s,
        failover_after_s=settings.failover_after_s)


def look_every_s(pace: Pace) -> float:
    """How often operations are looked at when nothing is reported: often enough for the shortest thing that is held."""
    return min(SLOWEST_LOOK_S, max(QUICKEST_LOOK_S, min(pace.hold_s, pace.verify_s) / 2))

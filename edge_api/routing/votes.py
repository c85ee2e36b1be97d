"""What this edge says against datacenters to the control plane, where a quorum of edges makes a failover.

It says *lost* only of what it can swear to. Every frontend of the datacenter is lost to the prober, the newest of the
probes that failed is as fresh as it should be, and another datacenter has answered since: an edge that is cut off,
stands still or has just been woken knows nothing, and keeps silent. *Faltering* is what requests say: it can be
reached, and half of what is sent there breaks. Slow is neither.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from control_plane.contracts.evidence import Vote, VoteVerdict
from edge_api.routing.watch import Watch

REFUSES, SILENT, BREAKS = "refuses connections", "does not answer probes", "half of the requests break"


class Sight(NamedTuple):
    """A frontend of a datacenter, and what its probes say."""

    datacenter_id: str
    watch: Watch


def cast_votes(sights: Iterable[Sight], faltering_since_s: Mapping[str, float], now_s: float,
               fresh_s: float) -> list[Vote]:
    """The votes of this moment. `faltering_since_s` is by datacenter; times are monotonic."""
    places: dict[str, list[Watch]] = {}
    for sight in sights:
        places.setdefault(sight.datacenter_id, []).append(sight.watch)
    votes = {place: _lost(place, watches, now_s) for place, watches in places.items()
             if _is_lost(place, places, now_s - fresh_s)}
    for place, since_s in faltering_since_s.items():
        votes.setdefault(place, _vote(place, VoteVerdict.FALTERING, BREAKS, now_s - since_s))
    return [vote for _, vote in sorted(votes.items())]


def _is_lost(place: str, places: Mapping[str, list[Watch]], oldest_s: float) -> bool:
    """Whether all of it is lost, freshly so, and somebody else is not."""
    mine = places[place]
    if not all(watch.is_lost and watch.newest_failure_s >= oldest_s for watch in mine):
        return False
    return any(watch.newest_good_s >= oldest_s and any(watch.is_witness_for(lost) for lost in mine)
               for other, watches in places.items() if other != place for watch in watches)


def _lost(place: str, watches: list[Watch], now_s: float) -> Vote:
    words = REFUSES if all(watch.was_refused for watch in watches) else SILENT
    return _vote(place, VoteVerdict.LOST, words, now_s - max(watch.lost_since_s for watch in watches))


def _vote(place: str, verdict: VoteVerdict, words: str, held_s: float) -> Vote:
    return Vote(datacenter_id=place, verdict=verdict, held_s=max(held_s, 0.0), evidence=words)

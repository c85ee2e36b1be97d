"""All that an edge tells the control plane of datacenters: votes, minutes of quality, what it has open and knows."""

from collections.abc import Callable, Mapping

from control_plane.contracts.clock import Clock
from control_plane.contracts.evidence import QualityMinute, Vote
from edge_api.hot.services import TableHolder
from edge_api.quality.minutes import Minutes
from edge_api.routing.health import Health
from edge_api.routing.probes import Prober
from edge_api.routing.votes import cast_votes

Counts = Mapping[str, int]


class Evidence:
    """Puts the report together when it is asked for: nothing of it costs a request anything. `streams` and `sessions`
    count by datacenter."""

    def __init__(self, clock: Clock, table: TableHolder, health: Health, prober: Prober, minutes: Minutes,
                 streams: Callable[[], Counts], sessions: Callable[[], Counts]) -> None:
        self._clock, self._table, self._health, self._prober, self._minutes = clock, table, health, prober, minutes
        self.streams, self.sessions = streams, sessions

    def votes(self) -> list[Vote]:
        """What speaks against datacenters at this moment."""
        return cast_votes(self._prober.sights(), self._faltering(), self._clock.monotonic_s(), self._prober.fresh_s)

    def minutes(self) -> list[QualityMinute]:
        """The minutes that the control plane does not have yet."""
        return self._minutes.report()

    def arrived(self) -> None:
        """The last report is with the control plane."""
        self._minutes.acknowledged()

    def _faltering(self) -> dict[str, float]:
        """Since when requests have broken, by datacenter: of several deployments the one that began first."""
        found: dict[str, float] = {}
        table = self._table.current
        for model in table.models.values() if table is not None and self._health.has_faults else ():
            for route in model.routes:
                since_s = self._health.faltering_since_s(route)
                if since_s is not None:
                    found[route.datacenter_id] = min(since_s, found.get(route.datacenter_id, since_s))
        return found

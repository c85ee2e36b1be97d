"""Which datacenter a request goes to: weighted rendezvous hashing on its session key.

Every turn of a session finds the same datacenter, where its prefix is cached, without any shared state; when a
datacenter leaves, only its own sessions move, and they spread by weight. Source: Thaler and Ravishankar's highest
random weight, in the logarithmic form for weights (score = -weight / ln u).
"""

import math
from hashlib import blake2b

from edge_api.hot.services import ANYWHERE, RouteNeed
from edge_api.metrics import Metrics
from edge_api.routing.health import Health
from edge_api.routing.table import Route, RoutedModel

_SCALE = float(2**64)


class Chooser:
    """Owns the choice: weights from the snapshot, ejections from this edge's own evidence."""

    def __init__(self, health: Health, metrics: Metrics) -> None:
        self._health, self._metrics = health, metrics

    def choose(self, model: RoutedModel, session_key: str, excluded: frozenset[str],
               need: RouteNeed = ANYWHERE) -> Route | None:
        """The route to use, or None if every datacenter is `excluded` or takes no new requests.

        When all that are left are ejected, ejections are ignored (panic): a wrong guess of ours must not refuse what
        might work. An operator's drain is weight 0 and never ignored.
        """
        candidates = [r for r in model.routes if r.weight > 0 and r.datacenter_id not in excluded]
        if self._health.has_faults:
            candidates = self._healthy(candidates)
        if not candidates:
            return None
        best = candidates[0] if len(candidates) == 1 else _best(candidates, session_key)
        self._health.chosen(best.datacenter_id)
        return best

    def _healthy(self, routes: list[Route]) -> list[Route]:
        healthy = [r for r in routes if not self._health.is_ejected(r.datacenter_id)]
        if routes and not healthy:
            self._metrics.panics.inc()
        return healthy or routes

    def failed(self, datacenter_id: str) -> None:
        """A connection to it was refused, reset or timed out."""
        if self._health.failed(datacenter_id):
            self._metrics.ejections.labels(datacenter_id).inc()

    def succeeded(self, datacenter_id: str) -> None:
        """It answered a request, whatever the status."""
        self._health.succeeded(datacenter_id)


def _best(routes: list[Route], session_key: str) -> Route:
    """The datacenter with the best score; between two fleets in it the address decides, for the same session always in
    the same way."""
    scores = [-route.weight / math.log(_uniform(session_key, route.datacenter_id)) for route in routes]
    best = max(scores)
    if scores.count(best) == 1:
        return routes[scores.index(best)]
    tied = [route for route, score in zip(routes, scores, strict=True) if score == best]
    return max(tied, key=lambda route: _uniform(session_key, f"{route.host}:{route.port}"))


def _uniform(session_key: str, name: str) -> float:
    """A number in (0, 1) that looks random and depends only on both."""
    digest = blake2b(f"{session_key}\n{name}".encode(), digest_size=8).digest()
    return (int.from_bytes(digest, "big") + 0.5) / _SCALE

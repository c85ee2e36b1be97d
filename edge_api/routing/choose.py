"""Which datacenter a request goes to.

A session's home is found by weighted rendezvous hashing: every turn finds the same deployment, where its prefix is
cached, without any shared state; when one leaves, or gets less, only sessions of its own move, and they spread by
weight; when one gets more, sessions only move there.
Source: Thaler and Ravishankar's highest random weight, in the logarithmic form for weights (score = -weight / ln u).

From home a request goes elsewhere when another place is cheaper by a clear margin (`cost.py`), for example because the
session was served there while its home was away; and when home has more than its share of the requests that this edge
has open (bounded load). Regions and an operator's weight 0 are never overruled by anything.
"""

from collections.abc import Mapping
from hashlib import blake2b
from math import ceil, log
from types import MappingProxyType

from edge_api.hot.services import ANYWHERE, RouteNeed
from edge_api.metrics import Metrics
from edge_api.routing.cost import LONG_PROMPT_TOKENS, Costs
from edge_api.routing.health import Health
from edge_api.routing.table import Route, RoutedModel

LOAD_BOUND = 1.25
FEW_REQUESTS = 8
"""As many a place may have open whatever its share: of so few, who has how many is chance."""
MARGIN_MS = 300.0
MARGIN_SHARE = 0.25
TRUSTED_SHARE = 0.5

_NOTHING_OPEN: Mapping[str, int] = MappingProxyType({})
_SCALE = float(2**64)
_RAMP_SALT = b"\nramp"


class Chooser:
    """Owns the choice: weights from the snapshot, evidence and costs of this edge. `open_requests` maps deployment to
    count and is read at each choice."""

    def __init__(self, health: Health, metrics: Metrics, open_requests: Mapping[str, int] = _NOTHING_OPEN) -> None:
        self._health, self._metrics, self._open_requests = health, metrics, open_requests
        self._costs = Costs(health)

    def choose(self, model: RoutedModel, session_key: str, excluded: frozenset[str],
               need: RouteNeed = ANYWHERE) -> Route | None:
        """The route to use, or None if every datacenter is `excluded`, takes no new requests, or is elsewhere than the
        request may be served."""
        routes = [r for r in model.routes if r.weight > 0 and r.datacenter_id not in excluded]
        if need.regions is not None:
            routes = [r for r in routes if r.region in need.regions]
        if self._health.has_faults:
            routes = self._trusted(routes, session_key)
        if not routes:
            return None
        best = routes[0] if len(routes) == 1 else self._best(routes, session_key, need.prompt_tokens)
        if need.prompt_tokens >= LONG_PROMPT_TOKENS:
            self._costs.note(best, len(model.routes), session_key, need.prompt_tokens)
        if self._health.has_faults:
            self._health.chosen(best)
        return best

    def has_other(self, model: RoutedModel, excluded: frozenset[str], need: RouteNeed = ANYWHERE) -> bool:
        """Whether the request could go to a datacenter outside `excluded` that can be reached, as far as this edge
        knows. What waits in a datacenter that was lost is better left waiting if not: its answer may come after all."""
        return any(
            route.weight > 0 and route.datacenter_id not in excluded
            and (need.regions is None or route.region in need.regions) and not self._health.is_away(route, 0.0)
            for route in model.routes)

    def sessions(self) -> dict[str, int]:
        """How many sessions are known to be warm in each datacenter."""
        return self._costs.sessions()

    def failed(self, datacenter_id: str) -> None:
        """A connection to it was refused, reset or timed out before any answer."""
        if self._health.failed(datacenter_id):
            self._metrics.ejections.labels(datacenter_id).inc()

    def succeeded(self, datacenter_id: str) -> None:
        """It answered a request, whatever the status."""
        self._health.succeeded(datacenter_id)

    def broke(self, datacenter_id: str) -> bool:
        """It answered a plain 500. True if it fails others, too."""
        return self._health.broke(datacenter_id)

    def erred(self, route: Route) -> None:
        """An answer from there broke off, or was that of a bad gateway: 502, 504, or 404 for a model it should have."""
        if self._health.erred(route, self._open_requests.get(route.deployment_id, 0)):
            self._metrics.ejections.labels(route.datacenter_id).inc()

    def overloaded(self, route: Route, retry_after_s: float | None) -> None:
        """It answered 429, 503 or 529."""
        self._health.overloaded(route, retry_after_s)

    def _trusted(self, routes: list[Route], session_key: str) -> list[Route]:
        """The routes that nothing speaks against.

        Panic: what is away is used all the same when everything is, for a wrong guess of ours must not refuse what
        might work. What falters is used when the rest has less than half of the weight, for it would falter next.
        """
        spread = _uniform(session_key.encode(), _RAMP_SALT)
        present = [route for route in routes if not self._health.is_away(route, spread)]
        if not present:
            if routes:
                self._metrics.panics.inc()
            return routes
        steady = [route for route in present if not self._health.is_faltering(route)]
        if len(steady) == len(present) or _weight(steady) >= TRUSTED_SHARE * _weight(present):
            return steady
        self._metrics.panics.inc()
        return present

    def _best(self, routes: list[Route], session_key: str, prompt_tokens: int) -> Route:
        """Home, or where it is clearly cheaper."""
        routes = self._with_room(routes)
        home, cost_ms = rendezvous(routes, session_key), self._costs.ms
        home_ms = cost_ms(home, session_key, prompt_tokens)
        if home_ms <= MARGIN_MS:
            return home
        cheapest_ms, at = min((cost_ms(route, session_key, prompt_tokens), at) for at, route in enumerate(routes))
        return routes[at] if cheapest_ms < min(home_ms - MARGIN_MS, home_ms * (1 - MARGIN_SHARE)) else home

    def _with_room(self, routes: list[Route]) -> list[Route]:
        """The routes that one more request does not bring above `LOAD_BOUND` times their share; never none."""
        counts = [self._open_requests.get(route.deployment_id, 0) for route in routes]
        total = sum(counts) + 1
        if total <= FEW_REQUESTS:
            return routes
        scale = LOAD_BOUND * total / sum(route.share for route in routes)
        return [route for route, count in zip(routes, counts, strict=True)
                if count < FEW_REQUESTS or count + 1 <= ceil(route.share * scale)]


def rendezvous(routes: list[Route], session_key: str) -> Route:
    """The session's home: the deployment with the best score."""
    session, number = session_key.encode(), int.from_bytes
    scores = [  # `_uniform` without its frame: this is most of what a choice costs
        -route.weight / log((number(blake2b(session + route.salt, digest_size=8).digest(), "big") + 0.5) / _SCALE)
        for route in routes]
    return routes[scores.index(max(scores))]


def _uniform(session: bytes, salt: bytes) -> float:
    """A number in (0, 1) that looks random and depends only on both."""
    return (int.from_bytes(blake2b(session + salt, digest_size=8).digest(), "big") + 0.5) / _SCALE


def _weight(routes: list[Route]) -> float:
    return sum(route.share for route in routes)

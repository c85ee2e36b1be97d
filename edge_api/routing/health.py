"""What this edge has seen of each datacenter: probes, and what became of its own requests.

Two kinds of evidence, which the choice treats differently. A datacenter is *away* when nobody can connect to it: its
frontend is lost to the prober, or a request's connection failed, which ejects it for 1 s, the next time for 2 s, up to
30 s. It *falters* when it can be reached and does not serve: half of at least five requests broke or met a bad gateway
(ejected for 5 s, then longer), or it said that it is overloaded (left alone for as long as it asked, within bounds), or
a probe of it is overdue: it may be lost, and until that is certain only new requests keep away.
Refusals that are the request's own doing, and slowness, are no evidence at all. A plain 500 may be either: it is the
datacenter's where it follows other failures with nothing served between.

When an ejection ends, one request at a time tries the datacenter (half-open). A frontend that was lost gets its
sessions back over `RAMP_S`, each once.
"""

from dataclasses import dataclass, field

from control_plane.contracts import ids
from control_plane.contracts.clock import Clock
from edge_api.routing.table import Route
from edge_api.upstream.pool import Address

FIRST_EJECTION_S = 1.0
LONGEST_EJECTION_S = 30.0
TRIAL_S = 2.0
RAMP_S = 10.0
WINDOW_S = 10.0
MIN_ERRORS = 5
ERROR_SHARE = 0.5
FIRST_FALTER_S = 5.0
LONGEST_FALTER_S = 60.0
SHORTEST_COOL_DOWN_S = 0.5
LONGEST_COOL_DOWN_S = 15.0
DEFAULT_COOL_DOWN_S = 1.0
# Failures with nothing served between, beyond which a plain 500 is the datacenter's: one of any other kind, or several
# plain ones, for these may be the same client's, tried again.
AILING = 3


@dataclass(slots=True)
class _Ejection:
    """An ejection and the trials after it; times are monotonic seconds."""

    length_s: float
    until_s: float
    trial_until_s: float = 0.0
    since_s: float = 0.0

    def holds(self, now_s: float) -> bool:
        return now_s < self.until_s or now_s < self.trial_until_s

    def lengthen(self, now_s: float, longest_s: float) -> bool:
        """Another failure. True if it ejects anew; while an ejection lasts, failures belong to the same outage."""
        self.trial_until_s = 0.0
        if now_s < self.until_s:
            return False
        self.length_s = min(2 * self.length_s, longest_s)
        self.until_s = now_s + self.length_s
        return True


@dataclass(slots=True)
class _Window:
    """A deployment's requests since an error: `attempts` counts those that were open then and those sent since."""

    until_s: float
    attempts: int
    errors: int = 0

    @property
    def is_bad(self) -> bool:
        return self.errors >= MIN_ERRORS and self.errors >= ERROR_SHARE * max(self.attempts, self.errors)


@dataclass(slots=True)
class _Evidence:
    """Everything that speaks against a place. Datacenters, frontends and deployments each under their own key."""

    refused: dict[str, _Ejection] = field(default_factory=dict)
    lost: set[Address] = field(default_factory=set)
    doubted: set[Address] = field(default_factory=set)
    returning: dict[Address, float] = field(default_factory=dict)
    windows: dict[str, _Window] = field(default_factory=dict)
    faltering: dict[str, _Ejection] = field(default_factory=dict)
    cooling: dict[str, float] = field(default_factory=dict)

    @property
    def is_any(self) -> bool:
        return bool(self.refused or self.lost or self.doubted or self.returning or self.windows or self.faltering
                    or self.cooling)


class Health:
    """Owns the evidence of one edge, a handful of entries. `rtt_ms` is the round trip to each frontend, by probes;
    `has_faults` is false while nothing at all speaks against anybody, so that a choice need not look further."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self._evidence = _Evidence()
        self._ailing: dict[str, int] = {}
        self.has_faults = False
        self.rtt_ms: dict[Address, float] = {}

    # what the choice asks

    def is_away(self, route: Route, spread: float) -> bool:
        """Whether there is no connecting to it. `spread` is the session's place in [0, 1): after a loss it says when
        the session comes back."""
        evidence, now_s = self._evidence, self.clock.monotonic_s()
        if route.address in evidence.lost:
            return True
        refused = evidence.refused.get(route.datacenter_id)
        if refused is not None and refused.holds(now_s):
            return True
        since_s = evidence.returning.get(route.address)
        if since_s is None:
            return False
        if now_s - since_s < RAMP_S:
            return spread >= (now_s - since_s) / RAMP_S
        del evidence.returning[route.address]
        self._tell()
        return False

    def is_faltering(self, route: Route) -> bool:
        """Whether it can be reached and new requests should still go elsewhere."""
        evidence, now_s, key = self._evidence, self.clock.monotonic_s(), route.deployment_id
        if route.address in evidence.doubted:
            return True
        cool_s = evidence.cooling.get(key)
        if cool_s is not None:
            if now_s < cool_s:
                return True
            del evidence.cooling[key]
        ejection = evidence.faltering.get(key)
        if ejection is not None and now_s >= ejection.until_s + WINDOW_S:
            del evidence.faltering[key]
            ejection = None
        self._tell()
        return ejection is not None and ejection.holds(now_s)

    def faltering_since_s(self, route: Route) -> float | None:
        """Since when its requests have broken again and again, without a whole `WINDOW_S` of peace; null if not so."""
        ejection = self._evidence.faltering.get(route.deployment_id)
        is_over = ejection is None or self.clock.monotonic_s() >= ejection.until_s + WINDOW_S
        return None if ejection is None or is_over else ejection.since_s

    def chosen(self, route: Route) -> None:
        """A request goes there. After an ejection it is the trial that the others wait for, for at most `TRIAL_S`."""
        evidence, now_s = self._evidence, self.clock.monotonic_s()
        for ejection in (evidence.refused.get(route.datacenter_id), evidence.faltering.get(route.deployment_id)):
            if ejection is not None:
                ejection.trial_until_s = now_s + TRIAL_S
        window = evidence.windows.get(route.deployment_id)
        if window is None:
            return
        window.attempts += 1
        if now_s >= window.until_s:
            del evidence.windows[route.deployment_id]
            self._tell()

    # what requests report

    def failed(self, datacenter_id: str) -> bool:
        """A connection failed. True if this ejected the datacenter."""
        now_s, refused = self.clock.monotonic_s(), self._evidence.refused
        self.has_faults = True
        self._ailing[datacenter_id] = AILING
        if datacenter_id in refused:
            return refused[datacenter_id].lengthen(now_s, LONGEST_EJECTION_S)
        refused[datacenter_id] = _Ejection(FIRST_EJECTION_S, now_s + FIRST_EJECTION_S)
        return True

    def succeeded(self, datacenter_id: str) -> None:
        """It answered: whatever kept connections from it is over, and it fails not everybody."""
        self._ailing[datacenter_id] = 0
        if self.has_faults and self._evidence.refused.pop(datacenter_id, None) is not None:
            self._tell()

    def broke(self, datacenter_id: str) -> bool:
        """A request met a plain 500. True if that is the datacenter's doing, as far as anybody can say: one that never
        served this edge may well serve nobody."""
        failures = self._ailing.get(datacenter_id, AILING)
        self._ailing[datacenter_id] = failures + 1
        return failures >= AILING

    def erred(self, route: Route, open_requests: int) -> bool:
        """A request broke off or met a bad gateway, one of `open_requests` there. True if this ejected it."""
        self._ailing[route.datacenter_id] = AILING
        evidence, now_s, key = self._evidence, self.clock.monotonic_s(), route.deployment_id
        self.has_faults = True
        ejection = evidence.faltering.get(key)
        if ejection is not None:
            return ejection.lengthen(now_s, LONGEST_FALTER_S)
        window = evidence.windows.get(key)
        if window is None or now_s >= window.until_s:
            window = evidence.windows[key] = _Window(now_s + WINDOW_S, open_requests)
        window.errors += 1
        if not window.is_bad:
            return False
        del evidence.windows[key]
        evidence.faltering[key] = _Ejection(FIRST_FALTER_S, now_s + FIRST_FALTER_S, since_s=now_s)
        return True

    def overloaded(self, route: Route, retry_after_s: float | None) -> None:
        """It said that it has no room, and maybe for how long. That is no failure."""
        self._ailing[route.datacenter_id] = AILING
        asked_s = DEFAULT_COOL_DOWN_S if retry_after_s is None else retry_after_s
        wait_s = ids.jitter(min(max(asked_s, SHORTEST_COOL_DOWN_S), LONGEST_COOL_DOWN_S))
        cooling, until_s = self._evidence.cooling, self.clock.monotonic_s() + wait_s
        cooling[route.deployment_id] = max(until_s, cooling.get(route.deployment_id, 0.0))
        self.has_faults = True

    # what probes report

    def doubt(self, address: Address) -> None:
        """The frontend's answer to a probe is overdue."""
        self._evidence.doubted.add(address)
        self.has_faults = True

    def trust(self, address: Address) -> None:
        """It answered a probe."""
        if address in self._evidence.doubted:
            self._evidence.doubted.discard(address)
            self._tell()

    def lost(self, address: Address) -> None:
        """The frontend is lost, as far as this edge can see."""
        self._evidence.lost.add(address)
        self._evidence.returning.pop(address, None)
        self.has_faults = True

    def recovered(self, address: Address, datacenter_id: str) -> None:
        """The frontend answers again: its sessions come back, one after the other. What requests said of the outage is
        over with it."""
        self._evidence.lost.discard(address)
        self._evidence.refused.pop(datacenter_id, None)
        self._evidence.returning[address] = self.clock.monotonic_s()
        self.has_faults = True

    def forget(self, address: Address) -> None:
        """Nobody is routed to this frontend any more."""
        self._evidence.lost.discard(address)
        self._evidence.doubted.discard(address)
        self._evidence.returning.pop(address, None)
        self.rtt_ms.pop(address, None)
        self._tell()

    def _tell(self) -> None:
        self.has_faults = self._evidence.is_any



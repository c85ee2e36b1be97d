"""Admission without Valkey, on a clock that a test moves."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from uuid import UUID

from prometheus_client import CollectorRegistry

from control_plane.contracts import ids
from control_plane.contracts.clock import ManualClock
from control_plane.contracts.keys import LimitScope, Principal, RateLimit, Scope
from edge_api.admission.build import AdmissionParts, build_admission
from edge_api.hot.services import Need
from edge_api.identity import ControlPlaneLink
from edge_api.metering.frames import Position
from tests.unit.edge_api.builders import MODEL


def key_limit(requests: int | None = None, tokens: int | None = None, concurrency: int | None = None,
              model_id: str | None = None, key_id: str = "key_1") -> RateLimit:
    return RateLimit(scope=LimitScope.KEY, scope_id=key_id, model_id=model_id, requests_per_minute=requests,
                     tokens_per_minute=tokens, concurrency=concurrency)


def team_limit(requests: int | None = None, tokens: int | None = None, concurrency: int | None = None) -> RateLimit:
    return RateLimit(scope=LimitScope.TEAM, scope_id="team_1", requests_per_minute=requests, tokens_per_minute=tokens,
                     concurrency=concurrency)


def principal(*limits: RateLimit, money: Sequence[LimitScope] = (), key_id: str = "key_1") -> Principal:
    return Principal(key_id=key_id, team_id="team_1", key_name="test", scopes=[Scope.INFERENCE], limits=list(limits),
                     money_scopes=list(money))


def need(who: Principal, prompt_tokens: int = 8, completion_tokens: int = 2, cost_nusd: int = 0,
         model_id: str = MODEL, request_id: UUID | None = None) -> Need:
    return Need(request_id or ids.uuid7(), who, model_id, prompt_tokens, completion_tokens, cost_nusd)


@dataclass
class Place:
    """An edge's admission by its own share alone. `edges` is how many edges there are."""

    edges: int = 1
    clock: ManualClock = field(default_factory=ManualClock)
    registry: CollectorRegistry = field(default_factory=CollectorRegistry)
    longest_request_s: float = 3600.0
    parts: AdmissionParts = field(init=False)

    def __post_init__(self) -> None:
        self.parts = build_admission(
            None, ControlPlaneLink([], self.clock), "boot_1", self.clock, lambda: self.edges, lambda: Position(1, 0),
            lambda: Position(0, 0), self.registry, self.longest_request_s)
        self.gate = self.parts.gate

    def tend(self) -> None:
        """One look after everything."""
        for _ in self.gate.tend():
            pass

    def figure(self, name: str, **labels: str) -> float:
        return self.registry.get_sample_value(f"meridian_edge_{name}", labels) or 0.0

"""Walks a playbook of shares over plain facts, as a control plane with edges and agents that do what they are told."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from control_plane.contracts.agent_sync import CommandKind, DeploymentPhase
from control_plane.contracts.deployment import Pool, PoolRole
from control_plane.contracts.operations import OperationKind, RolloutOrder, ShiftOrder
from control_plane.operations.decision import Decision, Verdict
from control_plane.operations.facts import DeploymentFacts, EdgeFacts, Facts, Memory, Pace, ProbeFacts, QualityCounts
from control_plane.operations.machine import CommandStatus
from control_plane.operations.playbooks import PLAYBOOKS, decide
from control_plane.operations.playbooks.playbook import StepPlan

NOW_S = 1_000.0
PACE = Pace(verify_s=2.0, hold_s=5.0, watch_s=20.0, ack_wait_s=30.0)
OLD, NEW = {"kind": "sim", "revision": "old"}, {"kind": "sim", "revision": "new"}


def cell(name: str, datacenter: str, **facts: Any) -> DeploymentFacts:
    fields: dict[str, Any] = {
        "id": name, "model_id": "glm", "fleet_id": f"{datacenter}-a", "datacenter_id": datacenter, "weight": 100,
        "share_permille": 1_000, "generation": 3, "observed_generation": 3, "phase": DeploymentPhase.READY, "load": 0,
        "lease_live": True, "unready": "", "engine": OLD, "queued": 0,
        "pools": (Pool(role=PoolRole.AGGREGATED, replicas=2, max_inflight=10),)}
    return DeploymentFacts(**fields | facts)


def facts(order: ShiftOrder | RolloutOrder, *cells: DeploymentFacts, **changes: Any) -> Facts:
    fields: dict[str, Any] = {
        "now_s": NOW_S, "deadline_s": NOW_S + 10_000, "snapshot": (1, 7), "violation": None, "forced": False,
        "edges": (EdgeFacts("edge-1", seen_at_s=NOW_S, acked=(1, 7), nack=None, open_requests=0),),
        "memory": Memory(), "pace": PACE, "deployments": cells or (cell("a", "west"), cell("b", "east")),
        "order": order}
    return Facts(**fields | changes)


@dataclass
class Walk:
    """An operation under way. `acks`: edges take each snapshot at once. `replaces`: what an agent makes of a new
    specification, by default it is ready. `probes` says what comes of a probe."""

    kind: OperationKind
    seen: Facts
    acks: bool = True
    replaces: Callable[[DeploymentFacts], DeploymentFacts] = lambda one: replace(one, unready="", message="")
    probes: Callable[[DeploymentFacts], CommandStatus] = lambda one: CommandStatus.SUCCEEDED
    each_look: Callable[["Walk"], None] = lambda walk: None
    tick_s: float = 1.0
    history: list[tuple[str, dict[str, int]]] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    done: list[str] = field(default_factory=list)

    def share(self, name: str) -> int:
        return self.deployment(name).share_permille

    def deployment(self, name: str) -> DeploymentFacts:
        return next(one for one in self.seen.deployments if one.id == name)

    def change(self, name: str, **changes: Any) -> None:
        self.seen = replace(self.seen, deployments=tuple(
            replace(one, **changes) if one.id == name else one for one in self.seen.deployments))

    def count(self, datacenter: str, succeeded: int = 0, failed: int = 0) -> None:
        """Edges count more requests."""
        before = self.seen.quality.get(datacenter, QualityCounts())
        self.seen = replace(self.seen, quality={**self.seen.quality, datacenter: replace(
            before, succeeded=before.succeeded + succeeded, failed=before.failed + failed)})

    def go(self, limit: int = 2_000) -> Verdict:
        """Through all steps, and through those that undo them; how the way forward ended."""
        playbook = PLAYBOOKS[self.kind]
        verdict = self._through(list(playbook.planned([one.id for one in self.seen.deployments])), limit)
        if verdict is Verdict.BACK:
            assert self._through(list(playbook.planned_back(self.seen.undo)), limit) is Verdict.DONE
        return verdict

    def _through(self, plans: list[StepPlan], limit: int) -> Verdict:
        for plan in plans:
            self.seen = replace(self.seen, memory=Memory(baseline=dict(plan.baseline)))
            for _ in range(limit):
                decision = self.look(plan)
                if decision.verdict is not Verdict.WAIT:
                    break
            else:
                raise AssertionError(f"{plan.name} never ends: {self.said[-1]}")
            self.done.append(f"{plan.name} {plan.detail}".strip())
            if decision.verdict is not Verdict.DONE:
                return decision.verdict
        return Verdict.DONE

    def look(self, plan: StepPlan) -> Decision:
        """One look, and all that follows from it."""
        self.each_look(self)
        decision = decide(self.kind, plan.name, self.seen)
        self.said.append(decision.detail)
        self._apply(decision)
        now_s = self.seen.now_s + self.tick_s
        edges = tuple(replace(edge, seen_at_s=now_s, acked=self.seen.snapshot if self.acks else edge.acked)
                      for edge in self.seen.edges)
        self.seen = replace(self.seen, now_s=now_s, edges=edges, memory=decision.memory)
        return decision

    def _apply(self, decision: Decision) -> None:
        for name, share in decision.shares.items():
            self.change(name, share_permille=share)
        if decision.shares:
            self.history.append((decision.detail, {one.id: one.share_permille for one in self.seen.deployments}))
            self.seen = replace(self.seen, snapshot=(1, self.seen.snapshot[1] + 1))
        for wanted in decision.specifications:
            before = self.deployment(wanted.deployment_id)
            self.change(before.id, engine=wanted.engine, pools=wanted.pools, generation=before.generation + 1,
                        unready=f"{before.id} is provisioning")
            changed = self.replaces(self.deployment(before.id))
            self.change(before.id, unready=changed.unready, message=changed.message,
                        observed_generation=changed.observed_generation)
        for order in decision.orders:
            assert order.kind is CommandKind.PROBE
            status = self.probes(self.deployment(order.deployment_id))
            self.change(order.deployment_id, probe=ProbeFacts(order.round, status, "a token" if status is
                                                              CommandStatus.SUCCEEDED else "HTTP 500"))
        self.seen = replace(self.seen, undo={**self.seen.undo, **decision.undo})

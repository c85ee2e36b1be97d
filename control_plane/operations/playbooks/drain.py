"""Drain: a datacenter's new requests go elsewhere by degrees, its open ones finish."""

from collections.abc import Mapping

from control_plane.contracts.agent_sync import CommandKind
from control_plane.contracts.snapshot import TrafficState
from control_plane.operations.decision import Decision, Order, Verdict
from control_plane.operations.facts import Facts, Pace
from control_plane.operations.playbooks import ramp
from control_plane.operations.playbooks.playbook import Playbook
from control_plane.operations.playbooks.shared import (
    await_edges,
    busy_with,
    calm_down,
    evacuate,
    overtaken,
    put_back,
    verify,
)
from control_plane.operations.steps import StepName
from control_plane.topology.states import TrafficEvent

BACK = {TrafficState.DRAINING: (TrafficEvent.REOPEN,)}


def _preflight(facts: Facts) -> Decision:
    if facts.violation and facts.traffic_state is TrafficState.ACTIVE:
        return Decision(Verdict.REFUSE, facts.violation.message)
    return calm_down(facts) or Decision(
        Verdict.DONE, f"{facts.datacenter_id} may be drained" + (" (forced)" if facts.forced else ""))


def _ramp(facts: Facts) -> Decision:
    """Less and less. The safety rules hold at every degree: what became unsafe is refused or turned back."""
    if facts.traffic_state not in (TrafficState.ACTIVE, TrafficState.DRAINING):
        return overtaken(facts)
    is_active = facts.traffic_state is TrafficState.ACTIVE
    if facts.violation and is_active:
        return Decision(Verdict.REFUSE, facts.violation.message)
    now = 100 if is_active else facts.ramp_percent
    if now == 0:
        return Decision(Verdict.DONE, "takes no new requests")
    if facts.violation:
        return Decision(Verdict.BACK, facts.violation.message)
    following = next((percent for percent in facts.pace.ramp_down if percent < now), 0)
    return ramp.step(facts, ramp.Ramp(
        now=now, following=following, is_begun=not is_active, begins=(TrafficEvent.DRAIN,) if is_active else (),
        watched=set(facts.quality) - {facts.datacenter_id}, hurries=True))


def _await_idle(facts: Facts) -> Decision:
    if any(fleet.command is None for fleet in facts.fleets):
        return Decision(Verdict.WAIT, "tells the fleets to drain", orders=tuple(
            Order(CommandKind.DRAIN, fleet.id) for fleet in facts.fleets))
    busy = busy_with(facts)
    if not busy:
        silent = [fleet.id for fleet in facts.fleets if not fleet.lease_live]
        return Decision(Verdict.DONE, "no request is open" + (f"; {', '.join(silent)} not heard" if silent else ""))
    if facts.late:
        return Decision(Verdict.DONE, f"the deadline passed with {busy}")
    return Decision(Verdict.WAIT, f"waits for {busy}")


def _settle(facts: Facts) -> Decision:
    if facts.traffic_state is TrafficState.DRAINED:
        return Decision(Verdict.DONE, "drained")
    if facts.traffic_state is not TrafficState.DRAINING:
        return overtaken(facts)
    return Decision(Verdict.DONE, "drained", moves=(TrafficEvent.SETTLE,))


def _expects(pace: Pace) -> Mapping[StepName, float]:
    held = sum(1 for percent in pace.ramp_down if percent)
    return {StepName.RAMP: held * pace.hold_s, StepName.VERIFY: pace.verify_s}


PLAYBOOK = Playbook(
    steps={
        StepName.PREFLIGHT: _preflight,
        StepName.RAMP: _ramp,
        StepName.AWAIT_EDGES: await_edges,
        StepName.AWAIT_IDLE: _await_idle,
        StepName.EVACUATE: evacuate,
        StepName.VERIFY: verify,
        StepName.SETTLE: _settle,
    },
    starts_from=frozenset({TrafficState.ACTIVE, TrafficState.DRAINING}),
    cancelling=BACK,
    back={StepName.UNDO: put_back(BACK)},
    expects=_expects)

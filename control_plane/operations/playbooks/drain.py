"""Drain: a datacenter's new requests go elsewhere, its open ones finish."""

from control_plane.contracts.agent_sync import CommandKind
from control_plane.contracts.snapshot import TrafficState
from control_plane.operations.decision import Decision, Order, Verdict
from control_plane.operations.facts import Facts
from control_plane.operations.playbooks.playbook import Playbook
from control_plane.operations.playbooks.shared import await_edges, busy_with, overtaken, verify
from control_plane.operations.steps import StepName
from control_plane.topology.states import TrafficEvent


def _preflight(facts: Facts) -> Decision:
    if facts.violation and facts.traffic_state is TrafficState.ACTIVE:
        return Decision(Verdict.REFUSE, facts.violation.message)
    return Decision(Verdict.DONE, f"{facts.datacenter_id} may be drained"
                    + (" (forced)" if facts.forced else ""))


def _close(facts: Facts) -> Decision:
    if facts.traffic_state is TrafficState.DRAINING:
        return Decision(Verdict.DONE, "takes no new requests")
    if facts.traffic_state is not TrafficState.ACTIVE:
        return overtaken(facts)
    if facts.violation:
        return Decision(Verdict.REFUSE, facts.violation.message)
    return Decision(Verdict.DONE, "takes no new requests", moves=(TrafficEvent.DRAIN,))


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


PLAYBOOK = Playbook(
    steps={
        StepName.PREFLIGHT: _preflight,
        StepName.CLOSE: _close,
        StepName.AWAIT_EDGES: await_edges,
        StepName.AWAIT_IDLE: _await_idle,
        StepName.VERIFY: verify,
        StepName.SETTLE: _settle,
    },
    starts_from=frozenset({TrafficState.ACTIVE, TrafficState.DRAINING}),
    cancelling={TrafficState.DRAINING: TrafficEvent.REOPEN})

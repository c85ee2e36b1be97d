"""Failover: a datacenter that failed, or must be left now, gets no new requests from one moment to the next, and what
is open there goes on elsewhere. It stays failed until a restore."""

from collections.abc import Mapping

from control_plane.contracts.operations import FailoverMode
from control_plane.contracts.snapshot import TrafficState
from control_plane.operations.decision import Decision, Verdict
from control_plane.operations.facts import Facts, Pace
from control_plane.operations.playbooks.playbook import Playbook
from control_plane.operations.playbooks.shared import busy_edges, evacuate, put_back, stay_idle, tell_edges
from control_plane.operations.steps import StepName
from control_plane.topology.states import TrafficEvent

WITH_TRAFFIC = frozenset({TrafficState.ACTIVE, TrafficState.DRAINING, TrafficState.WARMING})
BEFORE = "traffic_state"
AGAIN = (TrafficEvent.RECOVER, TrafficEvent.WARM)


def _preflight(facts: Facts) -> Decision:
    if facts.violation and facts.traffic_state is not TrafficState.FAILED:
        return Decision(Verdict.REFUSE, facts.violation.message)
    return Decision(Verdict.DONE, f"{facts.datacenter_id} may be left" + (" (forced)" if facts.forced else ""))


def _fail(facts: Facts) -> Decision:
    """One snapshot takes it all: state failed, no weight, and in hard mode its streams too."""
    if facts.traffic_state is TrafficState.FAILED:
        return Decision(Verdict.DONE, "takes no new requests")
    if facts.violation:
        return Decision(Verdict.REFUSE, facts.violation.message)
    return Decision(
        Verdict.DONE, "takes no new requests", moves=(TrafficEvent.FAIL,),
        evacuate=facts.mode is FailoverMode.HARD, undo={BEFORE: facts.traffic_state})


def _tell_edges(facts: Facts) -> Decision:
    """A failover that became hard under way has the edges move what is open before it waits for anybody."""
    if facts.mode is FailoverMode.HARD and not facts.evacuate and busy_edges(facts):
        return Decision(Verdict.WAIT, "has the edges move what is open", evacuate=True)
    return tell_edges(facts)


def _await_idle(facts: Facts) -> Decision:
    if facts.mode is FailoverMode.HARD:
        return Decision(Verdict.DONE, "hard: open requests are not waited for")
    busy = busy_edges(facts)
    if not busy:
        return Decision(Verdict.DONE, "no request is open at the edges")
    if facts.late:
        return Decision(Verdict.DONE, f"the deadline passed with {busy}")
    return Decision(Verdict.WAIT, f"waits for {busy}")


def _verify(facts: Facts) -> Decision:
    """By the edges' word alone: whoever failed cannot be asked."""
    return stay_idle(facts, busy_edges(facts))


def _undo(facts: Facts) -> Decision:
    """An operator's word against the failure: the traffic that it had comes back at once, without probes."""
    had_traffic = facts.undo.get(BEFORE) in WITH_TRAFFIC
    return put_back({TrafficState.FAILED: (*AGAIN, TrafficEvent.OPEN if had_traffic else TrafficEvent.ABANDON)})(facts)


def _expects(pace: Pace) -> Mapping[StepName, float]:
    return {StepName.VERIFY: pace.verify_s}


PLAYBOOK = Playbook(
    steps={
        StepName.PREFLIGHT: _preflight,
        StepName.FAIL: _fail,
        StepName.AWAIT_EDGES: _tell_edges,
        StepName.AWAIT_IDLE: _await_idle,
        StepName.EVACUATE: evacuate,
        StepName.VERIFY: _verify,
    },
    starts_from=frozenset(TrafficState),
    back={StepName.UNDO: _undo},
    expects=_expects)

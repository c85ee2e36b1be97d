"""Restore: a datacenter comes back once its deployments are ready and were seen healthy a few times."""

from control_plane.contracts.snapshot import TrafficState
from control_plane.operations.decision import Decision, Verdict
from control_plane.operations.facts import Facts, Memory
from control_plane.operations.playbooks.playbook import Playbook
from control_plane.operations.playbooks.shared import await_edges, overtaken, unready
from control_plane.operations.steps import StepName
from control_plane.topology.states import TrafficEvent


def _preflight(facts: Facts) -> Decision:
    fault = unready(facts)
    if not fault:
        return Decision(Verdict.DONE, "agents are live and deployments ready")
    if facts.late:
        return Decision(Verdict.FAIL, f"not ready by the deadline: {fault}")
    return Decision(Verdict.WAIT, f"waits: {fault}")


def _warm(facts: Facts) -> Decision:
    moves: dict[TrafficState, tuple[TrafficEvent, ...]] = {
        TrafficState.WARMING: (),
        TrafficState.DRAINED: (TrafficEvent.WARM,),
        TrafficState.DRAINING: (TrafficEvent.WARM,),
        TrafficState.RECOVERING: (TrafficEvent.WARM,),
        TrafficState.FAILED: (TrafficEvent.RECOVER, TrafficEvent.WARM),
    }
    if facts.traffic_state not in moves:
        return overtaken(facts)
    return Decision(Verdict.DONE, "warming, without traffic", moves=moves[facts.traffic_state])


def _probe(facts: Facts) -> Decision:
    """Counts observations: a look counts once every fleet reported anew since the last one that counted."""
    wanted = facts.pace.probe_observations
    if fault := unready(facts):
        if facts.late:
            moves = (TrafficEvent.ABANDON,) if facts.traffic_state is TrafficState.WARMING else ()
            return Decision(Verdict.FAIL, f"not healthy by the deadline: {fault}", moves=moves)
        return Decision(Verdict.WAIT, f"0 of {wanted} healthy observations: {fault}")
    seen = {fleet.id: fleet.observed_at_s for fleet in facts.fleets if fleet.observed_at_s is not None}
    anew = all(seen_s > facts.memory.observed_at_s.get(fleet, float("-inf")) for fleet, seen_s in seen.items())
    healthy = facts.memory.healthy + anew
    if healthy >= wanted:
        return Decision(Verdict.DONE, f"{healthy} healthy observations")
    memory = Memory(healthy=healthy, observed_at_s=seen if anew else facts.memory.observed_at_s)
    return Decision(Verdict.WAIT, f"{healthy} of {wanted} healthy observations", memory=memory)


def _open(facts: Facts) -> Decision:
    if facts.traffic_state is TrafficState.ACTIVE:
        return Decision(Verdict.DONE, "takes requests")
    if facts.traffic_state is not TrafficState.WARMING:
        return overtaken(facts)
    return Decision(Verdict.DONE, "takes requests", moves=(TrafficEvent.OPEN,))


PLAYBOOK = Playbook(
    steps={
        StepName.PREFLIGHT: _preflight,
        StepName.WARM: _warm,
        StepName.PROBE: _probe,
        StepName.OPEN: _open,
        StepName.AWAIT_EDGES: await_edges,
    },
    starts_from=frozenset({TrafficState.DRAINED, TrafficState.DRAINING, TrafficState.FAILED, TrafficState.RECOVERING,
                           TrafficState.WARMING}),
    cancelling={TrafficState.WARMING: TrafficEvent.ABANDON})

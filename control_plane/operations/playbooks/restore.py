"""Restore: a datacenter comes back by degrees once its deployments are ready, were seen healthy a few times and
answered a request each."""

from collections.abc import Mapping
from dataclasses import replace

from control_plane.contracts.agent_sync import CommandKind
from control_plane.contracts.snapshot import TrafficState
from control_plane.operations.decision import Decision, Order, Verdict
from control_plane.operations.facts import DeploymentFacts, Facts, Memory, Pace
from control_plane.operations.machine import OPEN_COMMANDS, CommandStatus
from control_plane.operations.playbooks import ramp
from control_plane.operations.playbooks.playbook import Moves, Playbook
from control_plane.operations.playbooks.shared import (
    begun_s,
    busy_edges,
    calm_down,
    overtaken,
    tell_edges,
    unready,
)
from control_plane.operations.steps import StepName
from control_plane.topology.states import TrafficEvent

PROBE_AGAIN_S = 2.0
"""A probe that failed is repeated this long after it was ordered, not at once."""

BACK: Moves = {TrafficState.WARMING: (TrafficEvent.ABANDON,)}


def _preflight(facts: Facts) -> Decision:
    fault = unready(facts)
    if not fault:
        return calm_down(facts) or Decision(Verdict.DONE, "agents are live and deployments ready")
    if facts.late:
        return Decision(Verdict.FAIL, f"not ready by the deadline: {fault}")
    return Decision(Verdict.WAIT, f"waits: {fault}")


def _warm(facts: Facts) -> Decision:
    moves: Moves = {
        TrafficState.WARMING: (),
        TrafficState.DRAINED: (TrafficEvent.WARM,),
        TrafficState.DRAINING: (TrafficEvent.WARM,),
        TrafficState.RECOVERING: (TrafficEvent.WARM,),
        TrafficState.FAILED: (TrafficEvent.RECOVER, TrafficEvent.WARM),
    }
    if facts.traffic_state is None or facts.traffic_state not in moves:
        return overtaken(facts)
    return Decision(Verdict.DONE, "warming, without traffic", moves=moves[facts.traffic_state])


def _probe(facts: Facts) -> Decision:
    """Healthy reports first, then an answered request of every deployment."""
    fault = unready(facts)
    if not fault:
        watched = _observe(facts)
        if watched.verdict is Verdict.WAIT:
            return watched
        asked = _ask(facts, watched)
        if asked.verdict is Verdict.DONE or not facts.late:
            return asked
        fault = asked.detail
    if facts.late:
        moves = BACK.get(facts.traffic_state, ()) if facts.traffic_state else ()
        return Decision(Verdict.FAIL, f"not healthy by the deadline: {fault}", moves=moves)
    return Decision(Verdict.WAIT, f"0 of {facts.pace.probe_observations} healthy observations: {fault}",
                    memory=Memory(stage_since_s=facts.memory.stage_since_s))


def _observe(facts: Facts) -> Decision:
    """Counts observations: a look counts once every fleet reported anew since the last one that counted."""
    wanted = facts.pace.probe_observations
    seen = {fleet.id: fleet.observed_at_s for fleet in facts.fleets if fleet.observed_at_s is not None}
    anew = all(seen_s > facts.memory.observed_at_s.get(fleet, float("-inf")) for fleet, seen_s in seen.items())
    healthy = min(wanted, facts.memory.healthy + anew)
    memory = replace(facts.memory, healthy=healthy, observed_at_s=seen if anew else facts.memory.observed_at_s)
    verdict = Verdict.DONE if healthy >= wanted else Verdict.WAIT
    return Decision(verdict, f"{healthy} of {wanted} healthy observations", memory=memory)


def _ask(facts: Facts, watched: Decision) -> Decision:
    """Orders a probe of each deployment that shall serve; one that failed is ordered again, or overruled by force."""
    mine = [one for one in facts.deployments if any(pool.replicas for pool in one.pools)]
    faults = ", ".join(f"{one.id} {_fault(one)}" for one in mine if not _answered(one))
    if not faults:
        return Decision(Verdict.DONE, f"{watched.detail}, {len(mine)} of {len(mine)} deployments answered a request")
    if facts.forced and all(one.probe is not None and one.probe.status not in OPEN_COMMANDS for one in mine):
        return Decision(Verdict.DONE, f"{watched.detail}; overruled: {faults}")
    since_s = facts.memory.stage_since_s
    is_due = since_s is None or facts.now_s - since_s >= PROBE_AGAIN_S
    orders = tuple(Order(CommandKind.PROBE, one.fleet_id, one.id, one.probe.round + 1 if one.probe else 1)
                   for one in mine if is_due and not _answered(one) and not _is_open(one))
    memory = replace(watched.memory, stage_since_s=facts.now_s if orders else since_s)
    return Decision(Verdict.WAIT, f"{watched.detail}; {faults}", memory=memory, orders=orders)


def _answered(one: DeploymentFacts) -> bool:
    return one.probe is not None and one.probe.status is CommandStatus.SUCCEEDED


def _is_open(one: DeploymentFacts) -> bool:
    return one.probe is not None and one.probe.status in OPEN_COMMANDS


def _fault(one: DeploymentFacts) -> str:
    if one.probe is None or _is_open(one):
        return "has yet to answer a request"
    return f"did not answer probe {one.probe.round}: {one.probe.result or one.probe.status.value}"


def _ramp(facts: Facts) -> Decision:
    if facts.traffic_state is not TrafficState.WARMING:
        return overtaken(facts)
    following = next((percent for percent in facts.pace.ramp_up if percent > facts.ramp_percent), None)
    return ramp.step(facts, ramp.Ramp(now=facts.ramp_percent, following=following, is_begun=facts.ramp_percent > 0,
                                      watched={facts.datacenter_id}))


def _open(facts: Facts) -> Decision:
    if facts.traffic_state is TrafficState.ACTIVE:
        return Decision(Verdict.DONE, "takes requests")
    if facts.traffic_state is not TrafficState.WARMING:
        return overtaken(facts)
    return Decision(Verdict.DONE, "takes requests", moves=(TrafficEvent.OPEN,))


def _undo(facts: Facts) -> Decision:
    """Takes back what it gave, and lets what came with it finish before the datacenter counts as drained."""
    if facts.traffic_state is not TrafficState.WARMING:
        return Decision(Verdict.DONE, f"{facts.datacenter_id} is {facts.traffic_state}")
    if facts.ramp_percent:
        return Decision(Verdict.WAIT, "takes no new requests", ramp_percent=0, memory=Memory(stage_since_s=facts.now_s))
    told = tell_edges(facts)
    if told.verdict is Verdict.WAIT:
        return told
    busy = busy_edges(facts)
    if busy and facts.now_s - begun_s(facts) < facts.pace.evacuate_s:
        return Decision(Verdict.WAIT, f"waits for {busy}", memory=Memory(stage_since_s=begun_s(facts)))
    return Decision(Verdict.DONE, f"drained; {busy} may finish" if busy else "drained", moves=(TrafficEvent.ABANDON,))


def _expects(pace: Pace) -> Mapping[StepName, float]:
    return {StepName.PROBE: float(pace.probe_observations), StepName.RAMP: len(pace.ramp_up) * pace.hold_s}


PLAYBOOK = Playbook(
    steps={
        StepName.PREFLIGHT: _preflight,
        StepName.WARM: _warm,
        StepName.PROBE: _probe,
        StepName.RAMP: _ramp,
        StepName.OPEN: _open,
        StepName.AWAIT_EDGES: tell_edges,
    },
    starts_from=frozenset({TrafficState.DRAINED, TrafficState.DRAINING, TrafficState.FAILED, TrafficState.RECOVERING,
                           TrafficState.WARMING}),
    cancelling=BACK,
    back={StepName.UNDO: _undo},
    needs_agents=frozenset({StepName.PREFLIGHT, StepName.PROBE}),
    expects=_expects)

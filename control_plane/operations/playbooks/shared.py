"""Steps that more than one kind of operation has, and the words for what they wait for."""

from control_plane.operations.decision import Decision, Verdict
from control_plane.operations.facts import EdgeFacts, Facts, FleetFacts, Memory
from control_plane.operations.machine import OPEN_COMMANDS, CommandStatus


def await_edges(facts: Facts) -> Decision:
    behind = [edge for edge in facts.live_edges if edge.acked < facts.snapshot]
    version = facts.snapshot[1]
    if not behind:
        silent = len(facts.edges) - len(facts.live_edges)
        count = len(facts.live_edges)
        return Decision(Verdict.DONE, f"{count} {'edge routes' if count == 1 else 'edges route'} by version {version}"
                        + (f"; {silent} not heard from {'is' if silent == 1 else 'are'} excused" if silent else ""))
    waiting = f"waits for version {version} at " + ", ".join(_edge(edge) for edge in behind)
    if facts.late:
        return Decision(Verdict.FAIL, f"deadline passed: {waiting}")
    return Decision(Verdict.WAIT, waiting)


def verify(facts: Facts) -> Decision:
    busy = busy_with(facts)
    if busy and facts.late:
        return Decision(Verdict.DONE, f"not idle at the deadline: {busy}")
    if busy:
        return Decision(Verdict.WAIT, f"busy again: {busy}")
    quiet_since_s = facts.memory.quiet_since_s or facts.now_s
    quiet_s = facts.now_s - quiet_since_s
    heard = all(edge.seen_at_s >= quiet_since_s for edge in facts.live_edges)
    if quiet_s >= facts.pace.verify_s and heard:
        return Decision(Verdict.DONE, f"idle for {quiet_s:.1f} s")
    return Decision(Verdict.WAIT, f"idle for {quiet_s:.1f} s", memory=Memory(quiet_since_s=quiet_since_s))


def overtaken(facts: Facts) -> Decision:
    return Decision(Verdict.FAIL, f"{facts.datacenter_id} became {facts.traffic_state} meanwhile")


def busy_with(facts: Facts) -> str:
    """What still works in the datacenter, in words; empty when nothing does. Who is not heard from cannot say, and
    is excused: its requests are seen by the other side."""
    open_requests = sum(edge.open_requests for edge in facts.live_edges)
    noun = "request" if open_requests == 1 else "requests"
    parts = [f"{open_requests} open {noun} at the edges"] if open_requests else []
    parts += [f"{fleet.id} ({_work(fleet)})" for fleet in facts.live_fleets if not _is_idle(fleet)]
    return ", ".join(parts)


def unready(facts: Facts) -> str:
    """What keeps a datacenter from taking traffic, in words; empty when nothing does."""
    if not facts.fleets:
        return f"{facts.datacenter_id} has no fleet"
    return "; ".join(fleet.unready if fleet.lease_live else f"{fleet.id}'s agent is not heard from"
                     for fleet in facts.fleets if fleet.unready or not fleet.lease_live)


def _work(fleet: FleetFacts) -> str:
    match fleet.inflight:
        case None:
            return "unknown in flight"
        case 0:
            return "its agent has yet to answer"
        case inflight:
            return f"{inflight} in flight"


def _is_idle(fleet: FleetFacts) -> bool:
    """Whether its agent said so: by its answer to the order, then by its figures where it can read them."""
    if fleet.command in OPEN_COMMANDS:
        return False
    return fleet.inflight == 0 or (fleet.inflight is None and fleet.command is CommandStatus.SUCCEEDED)


def _edge(edge: EdgeFacts) -> str:
    return f"{edge.id} (refused it: {edge.nack})" if edge.nack else edge.id

"""Steps that more than one kind of operation has, and the words for what they wait for."""

from dataclasses import replace

from control_plane.operations.decision import Decision, Verdict
from control_plane.operations.facts import EdgeFacts, Facts, FleetFacts, Memory
from control_plane.operations.machine import OPEN_COMMANDS, CommandStatus
from control_plane.operations.playbooks.playbook import Moves, Step


def await_edges(facts: Facts) -> Decision:
    """Waits until every live edge routes by the operation's snapshot. An edge that does not in time goes on as before,
    which the operation was to end: it is turned back, unless it was forced."""
    return _await_edges(facts, Verdict.DONE if facts.forced else Verdict.BACK)


def tell_edges(facts: Facts) -> Decision:
    """The same where an edge that is behind does no harm: it is named, and nothing waits for it any longer."""
    return _await_edges(facts, Verdict.DONE)


def evacuate(facts: Facts) -> Decision:
    """Has the edges move what is still open. What they cannot move goes on where it is for as long as it can."""
    count = open_requests(facts)
    if not count:
        return Decision(Verdict.DONE, "nothing is open at the edges")
    if not facts.evacuate:
        return Decision(Verdict.WAIT, f"moves {_requests(count)}", evacuate=True, memory=_since_now(facts))
    since_s = begun_s(facts)
    if facts.now_s - since_s >= facts.pace.evacuate_s:
        return Decision(Verdict.DONE, f"{_requests(count)} could not be moved and may finish where they are")
    return Decision(Verdict.WAIT, f"{_requests(count)} on the move", memory=replace(
        facts.memory, stage_since_s=since_s))


def verify(facts: Facts) -> Decision:
    """Waits until nothing worked there for a while, by reports that are newer than that."""
    return stay_idle(facts, busy_with(facts))


def stay_idle(facts: Facts, busy: str) -> Decision:
    """The same for what `busy` names; the deadline ends it only while something is busy."""
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


def put_back(moves: Moves) -> Step:
    """A step that gives a datacenter the traffic again that it had before."""
    def undo(facts: Facts) -> Decision:
        events = moves.get(facts.traffic_state) if facts.traffic_state else None
        if events is None:
            return tell_edges(facts)
        return Decision(Verdict.WAIT, "puts its traffic back to where it was", moves=events, evacuate=False)

    return undo


def calm_down(facts: Facts) -> Decision | None:
    """Rule 7: a wait when this datacenter's traffic changed a moment ago; null when that was long enough ago."""
    left_s = facts.changed_at_s + facts.pace.flap_wait_s - facts.now_s
    if left_s <= 0:
        return None
    return Decision(Verdict.WAIT, f"waits {left_s:.1f} s: two changes of its traffic are at least "
                                  f"{facts.pace.flap_wait_s:g} s apart")


def overtaken(facts: Facts) -> Decision:
    """The traffic is not where this operation left it: somebody else's word is newer."""
    return Decision(Verdict.FAIL, f"{facts.datacenter_id} became {facts.traffic_state} meanwhile")


def begun_s(facts: Facts) -> float:
    """When the present stage began: now, at its first look."""
    return facts.now_s if facts.memory.stage_since_s is None else facts.memory.stage_since_s


def behind(facts: Facts) -> str:
    """The live edges that do not route by the operation's snapshot yet, in words; empty when all do."""
    late = [edge for edge in facts.live_edges if edge.acked < facts.snapshot]
    return f"version {facts.snapshot[1]} at " + ", ".join(map(_edge, late)) if late else ""


def open_requests(facts: Facts) -> int:
    """What live edges have open there. Who is not heard from cannot say, and is excused: its requests are seen by the
    other side."""
    return sum(edge.open_requests for edge in facts.live_edges)


def busy_with(facts: Facts) -> str:
    """What still works in the datacenter, in words; empty when nothing does."""
    parts = [words] if (words := busy_edges(facts)) else []
    parts += [f"{fleet.id} ({_work(fleet)})" for fleet in facts.live_fleets if not _is_idle(fleet)]
    return ", ".join(parts)


def busy_edges(facts: Facts) -> str:
    """What the edges have open there, in words; empty when nothing."""
    count = open_requests(facts)
    noun = "request" if count == 1 else "requests"
    return f"{count} open {noun} at the edges" if count else ""


def unready(facts: Facts) -> str:
    """What keeps a datacenter from taking traffic, in words; empty when nothing does."""
    if not facts.fleets:
        return f"{facts.datacenter_id} has no fleet"
    return "; ".join(fleet.unready if fleet.lease_live else f"{fleet.id}'s agent is not heard from"
                     for fleet in facts.fleets if fleet.unready or not fleet.lease_live)


def _await_edges(facts: Facts, overdue: Verdict) -> Decision:
    waited_for = behind(facts)
    if not waited_for:
        silent = len(facts.edges) - len(facts.live_edges)
        count = len(facts.live_edges)
        return Decision(Verdict.DONE, f"{count} {'edge routes' if count == 1 else 'edges route'} by version "
                        f"{facts.snapshot[1]}"
                        + (f"; {silent} not heard from {'is' if silent == 1 else 'are'} excused" if silent else ""))
    since_s = begun_s(facts)
    if facts.now_s - since_s >= facts.pace.ack_wait_s:
        words = "goes on without" if overdue is Verdict.DONE else "cannot go on without"
        return Decision(overdue, f"{words} {waited_for}")
    return Decision(Verdict.WAIT, f"waits for {waited_for}", memory=replace(facts.memory, stage_since_s=since_s))


def _since_now(facts: Facts) -> Memory:
    return replace(facts.memory, stage_since_s=facts.now_s)


def _requests(count: int) -> str:
    return f"{count} open {'request' if count == 1 else 'requests'}"


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

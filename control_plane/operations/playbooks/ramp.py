"""Traffic by degrees: each is told to every edge, held, and looked at before the next."""

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any

from control_plane.operations.decision import Decision, Verdict
from control_plane.operations.facts import Facts, Memory
from control_plane.operations.playbooks.shared import behind
from control_plane.topology.states import TrafficEvent


@dataclass(frozen=True, slots=True)
class Ramp:
    """`now` is the percentage that a datacenter has, `following` the next one, null when there is none. Not `is_begun`:
    the first degree is set at once, by `begins`. `watched` are the datacenters whose failures turn it back, `hurries`:
    the deadline ends the holding."""

    now: int
    following: int | None
    is_begun: bool
    watched: Collection[str]
    begins: tuple[TrafficEvent, ...] = ()
    hurries: bool = False


def step(facts: Facts, ramp: Ramp) -> Decision:
    """One look. An edge that does not take a degree in time turns it back, unless the operation was forced."""
    if not ramp.is_begun:
        return _next(facts, ramp)
    if facts.memory.stage_since_s is None:  # another operation left it here
        return Decision(Verdict.WAIT, f"at {ramp.now}% of its traffic", memory=_begin(facts))
    if burned := burn(facts, ramp.watched):
        return Decision(Verdict.BACK, burned)
    held_s = facts.now_s - facts.memory.stage_since_s
    if waited_for := behind(facts):
        if held_s < facts.pace.ack_wait_s:
            return Decision(Verdict.WAIT, f"{ramp.now}% of its traffic; waits for {waited_for}", memory=facts.memory)
        if not facts.forced:
            return Decision(Verdict.BACK, f"cannot go on without {waited_for}")
    if held_s < facts.pace.hold_s and not (ramp.hurries and facts.late):
        return Decision(Verdict.WAIT, f"{ramp.now}% of its traffic, held for {held_s:.0f} of {facts.pace.hold_s:g} s",
                        memory=facts.memory)
    return _next(facts, ramp)


def burn(facts: Facts, watched: Collection[str]) -> str:
    """Which datacenter's requests fail since the present degree began, in words; empty when none's do."""
    for place in sorted(watched):
        counts = facts.quality.get(place)
        if counts is None:
            continue
        before = facts.memory.baseline.get(place, [0, 0])
        succeeded, failed = counts.succeeded - before[0], counts.failed - before[1]
        asked = succeeded + failed
        if asked >= facts.pace.burn_requests and failed * 100 >= facts.pace.burn_percent * asked:
            return (f"the error budget of {place} burns: {failed} of {asked} requests failed, "
                    f"{facts.pace.burn_percent:g}% are too many")
    return ""


def _next(facts: Facts, ramp: Ramp) -> Decision:
    if ramp.following is None:
        return Decision(Verdict.DONE, f"has {ramp.now}% of its traffic")
    verdict = Verdict.WAIT if ramp.following else Verdict.DONE
    words = f"{ramp.following}% of its traffic" if ramp.following else "takes no new requests"
    return Decision(verdict, words, memory=_begin(facts), moves=ramp.begins, ramp_percent=ramp.following)


def _begin(facts: Facts) -> Memory:
    counted: dict[str, Any] = {place: [one.succeeded, one.failed] for place, one in facts.quality.items()}
    return replace(facts.memory, stage_since_s=facts.now_s, baseline=counted)

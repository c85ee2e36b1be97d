"""Moving shares by degrees: each stage is given, known at every edge, held, and looked at before the next."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from control_plane.operations.decision import Decision, Verdict
from control_plane.operations.facts import Facts, Memory, QualityCounts
from control_plane.operations.playbooks.shared import behind
from control_plane.operations.quality import all_since, note

QUALITY, GIVEN_AT = "quality", "given_at_s"


@dataclass(frozen=True, slots=True)
class Stage:
    """Shares by deployment, and what is reached with them in words."""

    shares: Mapping[str, int]
    words: str


@dataclass(frozen=True, slots=True)
class Look:
    """What was found while a stage is held: `fault` ends it, `wait` keeps it from going on, `remark` is only told."""

    fault: str = ""
    wait: str = ""
    remark: str = ""


Watcher = Callable[[Mapping[str, QualityCounts]], Look]
"""Judges what edges counted, by datacenter, since the stage was known at all of them."""


def by_degrees(facts: Facts, stages: Sequence[Stage], hold_s: float, watcher: Watcher) -> Decision:
    """One look at a walk through `stages`. `memory.stage` counts those that were given; the clock of the present one
    starts once every live edge routes by it. An edge that does not in time turns it back, unless it was forced."""
    memory = facts.memory
    if memory.stage == 0 and _are_given(facts, stages):
        return Decision(Verdict.DONE, stages[-1].words)
    if memory.stage == 0:
        return _give(facts, stages)
    stage, counted = stages[memory.stage - 1], f" ({memory.stage} of {len(stages)})" if len(stages) > 1 else ""
    if facts.late:
        return Decision(Verdict.BACK, f"the deadline passed at: {stage.words}")
    if memory.stage_since_s is None:
        return _told(facts, stage.words + counted)
    look = watcher(all_since(facts.quality, memory.baseline.get(QUALITY, {})))
    if look.fault:
        return Decision(Verdict.BACK, look.fault)
    held_s = facts.now_s - memory.stage_since_s
    if held_s < hold_s or look.wait:
        words = look.wait or f"{stage.words}{counted}, held for {held_s:.0f} of {hold_s:g} s"
        return Decision(Verdict.WAIT, _joined(words, look.remark), memory=memory)
    if memory.stage == len(stages):
        return Decision(Verdict.DONE, _joined(stage.words, look.remark))
    return _give(facts, stages)


def at_once(facts: Facts, stage: Stage) -> Decision:
    """Gives the shares and goes on once every live edge knows, or had its time. Nothing turns it back: it is how
    things are undone."""
    if not facts.memory.stage:
        return Decision(Verdict.DONE, stage.words) if _are_given(facts, [stage]) else _give(facts, [stage])
    waits_for = behind(facts)
    if waits_for and facts.now_s - _given_at_s(facts.memory, facts.now_s) < facts.pace.ack_wait_s:
        return Decision(Verdict.WAIT, f"{stage.words}: waits for {waits_for}", memory=facts.memory)
    return Decision(Verdict.DONE, stage.words + (f"; goes on without {waits_for}" if waits_for else ""))


def _told(facts: Facts, words: str) -> Decision:
    """Waits until the edges know the stage, then starts its clock."""
    memory = facts.memory
    waits_for = behind(facts)
    if not waits_for or (facts.forced and _is_overdue(facts)):
        began = replace(memory, stage_since_s=facts.now_s, baseline={**memory.baseline, QUALITY: note(facts.quality)})
        return Decision(Verdict.WAIT, words, memory=began)
    if _is_overdue(facts):
        return Decision(Verdict.BACK, f"cannot go on without {waits_for}")
    return Decision(Verdict.WAIT, f"{words}: waits for {waits_for}", memory=memory)


def _is_overdue(facts: Facts) -> bool:
    return facts.now_s - _given_at_s(facts.memory, facts.now_s) >= facts.pace.ack_wait_s


def _give(facts: Facts, stages: Sequence[Stage]) -> Decision:
    memory = facts.memory
    stage = stages[memory.stage]
    return Decision(Verdict.WAIT, stage.words, shares=stage.shares, memory=replace(
        memory, stage=memory.stage + 1, stage_since_s=None, baseline={**memory.baseline, GIVEN_AT: facts.now_s}))


def _given_at_s(memory: Memory, otherwise_s: float) -> float:
    return float(memory.baseline.get(GIVEN_AT, otherwise_s))


def _are_given(facts: Facts, stages: Sequence[Stage]) -> bool:
    shares = {one.id: one.share_permille for one in facts.deployments}
    return all(shares.get(deployment_id) == share
               for stage in stages for deployment_id, share in stage.shares.items())


def _joined(*parts: str) -> str:
    return "; ".join(filter(None, parts))

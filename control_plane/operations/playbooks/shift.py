"""Shift: a part of what one datacenter gets of a model goes to another, step by step, and back if that goes badly."""

from collections.abc import Mapping, Sequence

from control_plane.contracts.deployment import PoolRole
from control_plane.contracts.operations import ShiftOrder
from control_plane.operations.decision import Decision, Verdict
from control_plane.operations.facts import DeploymentFacts, Facts, QualityCounts
from control_plane.operations.guard import Judgement, Readings, judge, parse
from control_plane.operations.playbooks.degrees import Look, Stage, at_once, by_degrees
from control_plane.operations.playbooks.playbook import Playbook
from control_plane.operations.quality import burned, error_percent
from control_plane.operations.shares import SHARES, Part, shifted
from control_plane.operations.steps import StepName

MAX_ERROR_PERCENT = 1.0
"""What a target may fail before traffic goes back, unless the source fails more."""


def _preflight(facts: Facts) -> Decision:
    if facts.violation:
        return Decision(Verdict.REFUSE, facts.violation.message)
    order = _order(facts)
    undo = {SHARES: {one.id: one.share_permille for one in facts.deployments}}
    return Decision(Verdict.DONE, f"{order.target} can take it" + (" (forced)" if facts.forced else ""), undo=undo)


def _shift(facts: Facts) -> Decision:
    """The safety rules hold at every degree, as where it began."""
    if facts.violation:
        return Decision(Verdict.BACK, facts.violation.message)
    order = _order(facts)
    hold_s = facts.pace.hold_s if order.interval_s is None else order.interval_s
    return by_degrees(facts, stages_of(order, _before(facts)), hold_s, lambda counts: _look(facts, order, counts))


def _undo(facts: Facts) -> Decision:
    """Back at once: the source held all of it a moment ago."""
    return at_once(facts, Stage(facts.undo.get(SHARES, {}), "the shares are what they were"))


def stages_of(order: ShiftOrder, parts: Sequence[Part]) -> list[Stage]:
    """The way there: `step_percent` of what the source had at a time."""
    source = [one for one in parts if one.datacenter_id == order.source]
    target = [one for one in parts if one.datacenter_id == order.target]
    percents = [*range(order.step_percent, order.percent, order.step_percent), order.percent]
    return [Stage(shifted(source, target, percent), f"{percent}% of {order.source} go to {order.target}")
            for percent in percents]


def _before(facts: Facts) -> list[Part]:
    """The deployments with the shares that they had."""
    shares: Mapping[str, int] = facts.undo.get(SHARES, {})
    return [Part(one.id, one.datacenter_id, one.weight, shares.get(one.id, one.share_permille))
            for one in facts.deployments if _takes(one) or one.datacenter_id == _order(facts).source]


def _targets(facts: Facts, order: ShiftOrder) -> list[DeploymentFacts]:
    return [one for one in facts.deployments if one.datacenter_id == order.target and _takes(one)]


def _takes(one: DeploymentFacts) -> bool:
    return any(pool.replicas for pool in one.pools)


def _look(facts: Facts, order: ShiftOrder, counts: Mapping[str, QualityCounts]) -> Look:
    source, target = counts.get(order.source, QualityCounts()), counts.get(order.target, QualityCounts())
    if (fault := burned(target, MAX_ERROR_PERCENT)) and (error_percent(target) or 0) > (error_percent(source) or 0):
        return Look(fault=f"{order.target}: {fault}")
    found = judge(parse(order.abort_if), _readings(facts, order, target)) if order.abort_if else Judgement("", ())
    unready = [one.unready for one in _targets(facts, order) if one.unready and not facts.forced]
    return Look(fault=f"{order.target}: {found.true}" if found.true else "",
                wait=f"goes no further: {', '.join(unready)}" if unready else "",
                remark=f"no data for {', '.join(found.unknown)}" if found.unknown else "")


def _readings(facts: Facts, order: ShiftOrder, target: QualityCounts) -> Readings:
    mine = _targets(facts, order)
    loads = [one.load for one in mine]
    load = None if None in loads else sum(one or 0 for one in loads)
    queues = [one.queued for one in mine]
    holds = [_holds(one) for one in mine]
    ready = None if None in holds else sum(one or 0 for one in holds)
    return Readings(
        quality=target, queue=None if None in queues else sum(one or 0 for one in queues),
        headroom=None if ready is None or load is None else ready - load)


def _holds(one: DeploymentFacts) -> int | None:
    """Requests that it holds well at once; null if a serving pool does not say."""
    serving = [pool for pool in one.pools if pool.role is not PoolRole.PREFILL]
    if any(pool.max_inflight is None for pool in serving):
        return None
    return sum(pool.replicas * (pool.max_inflight or 0) for pool in serving)


def _order(facts: Facts) -> ShiftOrder:
    assert isinstance(facts.order, ShiftOrder)  # noqa: S101 - what kind of operation it is
    return facts.order


PLAYBOOK = Playbook(
    steps={StepName.PREFLIGHT: _preflight, StepName.SHIFT: _shift},
    back={StepName.UNDO: _undo}, reverts=True)

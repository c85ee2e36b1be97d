"""Rollout: a model's deployments get another specification, one cell after the other; a cell is one deployment.

A cell loses its traffic by degrees, finishes what it has, is replaced, must be ready and answer probes, and gets its
traffic back by degrees while its errors are counted. Whatever goes wrong turns the rollout back: every cell that was
touched gets its old specification again, the same way. Where nobody else could hold a cell's traffic (forced) it keeps
it, and its agent replaces its workers one by one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from control_plane.contracts.agent_sync import REFUSED, CommandKind
from control_plane.contracts.deployment import Pool
from control_plane.contracts.operations import RolloutOrder
from control_plane.operations.decision import Decision, Order, Specification, Verdict
from control_plane.operations.facts import DeploymentFacts, Facts, Pace, QualityCounts
from control_plane.operations.machine import OPEN_COMMANDS, CommandStatus
from control_plane.operations.playbooks.degrees import Look, Stage, at_once, by_degrees
from control_plane.operations.playbooks.playbook import Playbook, Step, StepPlan
from control_plane.operations.quality import burned, total
from control_plane.operations.steps import StepName

CELLS, BACK = "cells", "back"
PROBE_DEADLINE_S = 30.0
MISSED_PROBES = 3
"""So many failed probes in a row end it: one may fail while a frontend still learns of its workers."""


def _preflight(facts: Facts) -> Decision:
    if facts.violation and not facts.forced:
        return Decision(Verdict.REFUSE, facts.violation.message)
    unready = [one.unready for one in facts.deployments if one.unready]
    if unready and not facts.forced:
        return Decision(Verdict.REFUSE, f"not ready before it began: {', '.join(unready)}")
    return Decision(Verdict.DONE, "each cell can be spared" if not facts.violation else
                    f"replaced under traffic (forced): {facts.violation.message}")


def _unload(facts: Facts) -> Decision:
    cell, is_back = _cell(facts), _is_back(facts)
    noted = _noted(facts, cell.id)
    if noted is None:
        return _begin(facts, cell)
    if is_back and not _differs(cell, noted):
        return Decision(Verdict.DONE, f"{cell.id} has its old specification")
    if facts.violation and cell.share_permille and not facts.memory.stage and (facts.forced or is_back):
        return Decision(Verdict.DONE, f"{cell.id} keeps its traffic: nobody else could hold it")
    if is_back:
        return at_once(facts, Stage({cell.id: 0}, f"{cell.id} gets no new requests"))
    if facts.violation and cell.share_permille and not facts.forced:
        return Decision(Verdict.BACK, facts.violation.message)
    others = {one for one in facts.quality if one != cell.datacenter_id}
    return by_degrees(facts, _degrees(cell, noted["share"], facts.pace.ramp_down), facts.pace.hold_s,
                      lambda counts: _look(facts, counts, others))


def _await_idle(facts: Facts) -> Decision:
    cell, noted = _cell(facts), _noted(facts, _cell(facts).id)
    if _is_back(facts) and (noted is None or not _differs(cell, noted)):
        return Decision(Verdict.DONE, f"{cell.id} has its old specification")
    if cell.share_permille:
        return Decision(Verdict.DONE, f"{cell.id} is replaced under its traffic")
    memory = facts.memory if facts.memory.stage_since_s else replace(facts.memory, stage_since_s=facts.now_s)
    left = "an unknown number of requests" if cell.load is None else f"{cell.load} requests"
    finish_s = _order(facts).finish_s
    if _is_back(facts):  # what turned it back may well hold its requests for ever
        finish_s = min(finish_s, facts.pace.evacuate_s)
    if facts.now_s - (memory.stage_since_s or 0.0) >= finish_s:
        return Decision(Verdict.DONE, f"{left} left inside {cell.id}: they go on at other workers, or elsewhere")
    if cell.load != 0:
        return Decision(Verdict.WAIT, f"{left} inside {cell.id}", memory=replace(memory, quiet_since_s=None))
    quiet_since_s = memory.quiet_since_s or facts.now_s
    if facts.now_s - quiet_since_s >= facts.pace.verify_s:
        return Decision(Verdict.DONE, f"no request is inside {cell.id}")
    return Decision(Verdict.WAIT, f"{cell.id} is idle", memory=replace(memory, quiet_since_s=quiet_since_s))


def _replace(facts: Facts) -> Decision:
    cell, noted = _cell(facts), _noted(facts, _cell(facts).id)
    if noted is None:
        return Decision(Verdict.DONE, f"{cell.id} was not touched")
    wanted = _old(cell, noted) if _is_back(facts) else _new(cell, _order(facts))
    if _is_back(facts) or not (facts.late or (facts.violation and not facts.forced)):
        is_so = dict(cell.engine) == dict(wanted.engine) and list(cell.pools) == list(wanted.pools)
        return Decision(Verdict.DONE, f"{cell.id} has it already" if is_so else f"{cell.id} at generation "
                        f"{cell.generation + 1}", specifications=() if is_so else (wanted,))
    return Decision(Verdict.BACK, facts.violation.message if facts.violation else "the deadline passed")


def _await_ready(facts: Facts) -> Decision:
    cell, is_back = _cell(facts), _is_back(facts)
    why = cell.message or cell.unready
    if not cell.unready and cell.lease_live:
        return Decision(Verdict.DONE, f"{cell.id} is ready at generation {cell.generation}")
    if _is_scaled_to_zero(cell) and (cell.observed_generation or 0) >= cell.generation:
        return Decision(Verdict.DONE, f"{cell.id} is scaled to zero")
    if not is_back and REFUSED in cell.message and (cell.observed_generation or 0) < cell.generation:
        return Decision(Verdict.BACK, f"{cell.id}: {why}")
    memory = facts.memory if facts.memory.stage_since_s else replace(facts.memory, stage_since_s=facts.now_s)
    waited_s = facts.now_s - (memory.stage_since_s or 0.0)
    if waited_s < _order(facts).ready_s and (is_back or not facts.late):
        return Decision(Verdict.WAIT, f"{cell.id} for {waited_s:.0f} s: {why}", memory=memory)
    if is_back:
        return Decision(Verdict.DONE, f"{cell.id} is still not ready, its traffic comes back once it is: {why}")
    return Decision(Verdict.BACK, f"{cell.id} was not ready within {waited_s:.0f} s: {why}")


def _probe(facts: Facts) -> Decision:
    """Round after round, so that each is an order of its own."""
    cell, memory = _cell(facts), facts.memory
    wanted, failed = facts.pace.probe_observations, int(memory.baseline.get("failed", 0))
    if cell.unready and (_is_back(facts) or _is_scaled_to_zero(cell)):
        return Decision(Verdict.DONE, f"{cell.id} cannot be probed: {cell.unready}")
    asked = memory.baseline.get("round")
    if asked is None:
        return _ask(facts, cell, memory.healthy, failed)
    probe = cell.probe
    if probe is None or probe.round < asked or probe.status in OPEN_COMMANDS:
        return Decision(Verdict.WAIT, f"{memory.healthy} of {wanted} probes of {cell.id} answered", memory=memory)
    if probe.status is CommandStatus.SUCCEEDED:
        if memory.healthy + 1 >= wanted:
            return Decision(Verdict.DONE, f"{wanted} probes of {cell.id} answered")
        return _ask(facts, cell, memory.healthy + 1, 0)
    if failed + 1 < MISSED_PROBES:
        return _ask(facts, cell, memory.healthy, failed + 1)
    fault = f"{cell.id} answered no probe: {probe.result or probe.status.value}"
    return Decision(Verdict.DONE if _is_back(facts) else Verdict.BACK, fault)


def _reload(facts: Facts) -> Decision:
    """By degrees while others can hold what it does not get, and at once when it comes back as it was."""
    cell = _cell(facts)
    noted = _noted(facts, cell.id)
    if noted is None or (cell.share_permille == noted["share"] and not facts.memory.stage):
        return Decision(Verdict.DONE, f"{cell.id} has its traffic")
    if _is_back(facts):
        return at_once(facts, Stage({cell.id: noted["share"]}, f"{cell.id} has its traffic"))
    percents = (100,) if facts.violation and not facts.memory.stage else facts.pace.ramp_up
    return by_degrees(facts, _degrees(cell, noted["share"], percents), facts.pace.hold_s,
                      lambda counts: _look(facts, counts, {cell.datacenter_id}))


def _watch(facts: Facts) -> Decision:
    cell, order = _cell(facts), _order(facts)
    watch_s = facts.pace.watch_s if order.watch_s is None else order.watch_s
    stage = Stage({cell.id: cell.share_permille}, f"{cell.id} serves with the new specification")
    if not facts.memory.stage:  # its share is given: only looked at
        return Decision(Verdict.WAIT, stage.words, memory=replace(facts.memory, stage=1))
    return by_degrees(facts, [stage], watch_s, lambda counts: _judged(facts, cell, counts))


def stages(deployments: Sequence[str]) -> list[StepPlan]:
    """All steps: a check of all cells, then each cell's."""
    steps = (StepName.UNLOAD, StepName.AWAIT_IDLE, StepName.REPLACE, StepName.AWAIT_READY, StepName.PROBE,
             StepName.RELOAD, StepName.WATCH)
    return [StepPlan(StepName.PREFLIGHT, baseline={CELLS: list(deployments)}),
            *(StepPlan(name, cell, {CELLS: [cell]}) for cell in deployments for name in steps)]


def back_stages(undo: Mapping[str, Any]) -> list[StepPlan]:
    """The steps that undo it: those of each cell that was touched, the last one first."""
    steps = (StepName.UNLOAD, StepName.AWAIT_IDLE, StepName.REPLACE, StepName.AWAIT_READY, StepName.PROBE,
             StepName.RELOAD)
    cells = [noted["id"] for noted in reversed(undo.get(CELLS, []))]
    return [StepPlan(name, cell, {CELLS: [cell], BACK: True}) for cell in cells for name in steps] or [
        StepPlan(StepName.UNDO)]


def _expects(pace: Pace) -> Mapping[StepName, float]:
    return {StepName.UNLOAD: len(pace.ramp_down) * pace.hold_s, StepName.AWAIT_IDLE: pace.verify_s,
            StepName.RELOAD: len(pace.ramp_up) * pace.hold_s}


def _nothing(_: Facts) -> Decision:
    return Decision(Verdict.DONE, "nothing was changed")


def _begin(facts: Facts, cell: DeploymentFacts) -> Decision:
    """Notes what the cell is before anything of it is changed."""
    if facts.violation and not facts.forced:
        verdict = Verdict.BACK if facts.undo.get(CELLS) else Verdict.REFUSE
        return Decision(verdict, facts.violation.message)
    noted = {"id": cell.id, "share": cell.share_permille, "engine": dict(cell.engine),
             "pools": [pool.model_dump(mode="json") for pool in cell.pools]}
    return Decision(Verdict.WAIT, f"takes {cell.id}'s traffic away", memory=facts.memory,
                    undo={CELLS: [*facts.undo.get(CELLS, []), noted]})


def _ask(facts: Facts, cell: DeploymentFacts, healthy: int, failed: int) -> Decision:
    asked = cell.probe.round + 1 if cell.probe else 0
    memory = replace(facts.memory, healthy=healthy,
                     baseline={**facts.memory.baseline, "round": asked, "failed": failed})
    order = Order(CommandKind.PROBE, cell.fleet_id, cell.id, asked, PROBE_DEADLINE_S)
    return Decision(Verdict.WAIT, f"{healthy} of {facts.pace.probe_observations} probes of {cell.id} answered",
                    memory=memory, orders=(order,))


def _look(facts: Facts, counts: Mapping[str, QualityCounts], places: set[str]) -> Look:
    """Whether one of the places burned the error budget."""
    faults = [f"{place}: {fault}" for place in sorted(places)
              if (fault := burned(counts.get(place, QualityCounts()), _order(facts).max_error_percent))]
    return Look(fault="; ".join(faults))


def _judged(facts: Facts, cell: DeploymentFacts, counts: Mapping[str, QualityCounts]) -> Look:
    """The same for a cell under traffic; silence is told, and passes."""
    asked = total(counts.get(cell.datacenter_id, QualityCounts()))
    return replace(_look(facts, counts, {cell.datacenter_id}),
                   remark="" if asked else "no request ended there to judge it by")


def _degrees(cell: DeploymentFacts, share: int, percents: Sequence[int]) -> list[Stage]:
    return [Stage({cell.id: max(share * percent // 100, min(percent, share, 1))},
                  f"{cell.id} gets {percent}% of its traffic") for percent in percents]


def _is_scaled_to_zero(cell: DeploymentFacts) -> bool:
    return not any(pool.replicas for pool in cell.pools)


def _is_back(facts: Facts) -> bool:
    return bool(facts.memory.baseline.get(BACK))


def _cell(facts: Facts) -> DeploymentFacts:
    (wanted,) = facts.memory.baseline[CELLS]
    return next(one for one in facts.deployments if one.id == wanted)


def _noted(facts: Facts, deployment_id: str) -> dict[str, Any] | None:
    """What a cell was before, null while it is untouched."""
    cells: list[dict[str, Any]] = facts.undo.get(CELLS, [])
    return next((noted for noted in cells if noted["id"] == deployment_id), None)


def _differs(cell: DeploymentFacts, noted: Mapping[str, Any]) -> bool:
    old = _old(cell, noted)
    return dict(cell.engine) != dict(old.engine) or list(cell.pools) != list(old.pools)


def _old(cell: DeploymentFacts, noted: Mapping[str, Any]) -> Specification:
    return Specification(cell.id, noted["engine"], tuple(Pool.model_validate(pool) for pool in noted["pools"]))


def _new(cell: DeploymentFacts, order: RolloutOrder) -> Specification:
    return Specification(cell.id, cell.engine if order.engine is None else order.engine,
                         cell.pools if order.pools is None else tuple(order.pools))


def _order(facts: Facts) -> RolloutOrder:
    assert isinstance(facts.order, RolloutOrder)  # noqa: S101 - what kind of operation it is
    return facts.order


STEPS: dict[StepName, Step] = {
    StepName.PREFLIGHT: _preflight, StepName.UNLOAD: _unload, StepName.AWAIT_IDLE: _await_idle,
    StepName.REPLACE: _replace, StepName.AWAIT_READY: _await_ready, StepName.PROBE: _probe,
    StepName.RELOAD: _reload, StepName.WATCH: _watch}

PLAYBOOK = Playbook(
    steps=STEPS, back={StepName.UNDO: _nothing}, stages=stages, back_stages=back_stages, reverts=True, expects=_expects)

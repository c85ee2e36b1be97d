"""One turn of the planner: read, plan, write down, and in mode `auto` carry out, all in one transaction.

A plan that would move something is made again with the datacenters locked, so that the safety rules are judged on what
stays true until the commit. Locks are taken as everywhere: datacenters, fleets by id, the routing head.
"""

import math
from dataclasses import asdict

from sqlalchemy.ext.asyncio import AsyncSession

from control_plane.audit import service as audit
from control_plane.capacity import facts, repository, wishes
from control_plane.capacity.facts import Facts
from control_plane.capacity.hysteresis import Limits
from control_plane.capacity.models import CapacityMove, CapacityPlan
from control_plane.capacity.observed import Observed, Policy, Pool
from control_plane.capacity.planner import Move, Plan, plan
from control_plane.contracts import ids
from control_plane.contracts.capacity import Figures, PlannerMode, PlanView, Verdict
from control_plane.contracts.signing import SigningKey
from control_plane.db import notify
from control_plane.routing import publisher
from control_plane.settings import Settings
from control_plane.topology import repository as topology
from control_plane.topology.service import fleet_channel

ACTOR = "meridian:planner"


def policy_of(settings: Settings) -> Policy:
    """What the planner keeps to here."""
    return Policy(
        limits=Limits(sustain_s=settings.capacity_sustain_s, step_interval_s=settings.capacity_step_interval_s,
                      reversal_s=settings.capacity_reversal_s, interval_s=settings.capacity_interval_s),
        spare_datacenters=settings.capacity_spare_datacenters, release_s=settings.capacity_release_s,
        settle_s=settings.capacity_settle_s)


def mode_of(seen: Facts, settings: Settings) -> PlannerMode:
    """What the planner may do: an operator's word before the configured one."""
    return seen.planner.mode or settings.capacity_mode


def made(seen: Facts, policy: Policy) -> Plan:
    """The plan for what was seen."""
    return plan(seen.observed, seen.demand, policy, seen.now.timestamp())


async def turn(session: AsyncSession, key: SigningKey, settings: Settings, token: str) -> bool:
    """One turn under the lease `token`; whether anything was moved. Nothing is done when the lease is another's."""
    policy = policy_of(settings)
    seen = await facts.read(session, policy.covered_minutes)
    found = made(seen, policy)
    is_locked = bool(found.moves) and mode_of(seen, settings) is PlannerMode.AUTO
    if is_locked:
        await topology.lock_datacenters(session)
        seen = await facts.read(session, policy.covered_minutes)
        found = made(seen, policy)
    planner = await repository.planner(session, lock=True)  # the row that `seen` holds, as it is now
    mode = mode_of(seen, settings)
    if planner.lock_token != token or mode is PlannerMode.OFF:
        return False
    applied = is_locked and bool(found.moves) and mode is PlannerMode.AUTO
    plan_id = ids.new_id("plan")
    view = plan_view(found, seen, mode, plan_id, applied)
    session.add(CapacityPlan(id=plan_id, planned_at=seen.now, applied=applied, moves=len(found.moves),
                             body=view.model_dump(mode="json")))
    planner.planned_at, planner.signals = seen.now, facts.write_signals(found.signals)
    await session.flush()
    if applied:
        await _carry_out(session, key, found, seen, plan_id)
    return applied


def plan_view(found: Plan, seen: Facts, mode: PlannerMode, plan_id: str | None, applied: bool) -> PlanView:
    """A plan as operators see it: moves first, then what was held back, then what is content."""
    moved = [_verdict(seen.observed, one.pool, one.after, one.after, None, one.why, one.leaves, one.figures)
             for one in found.moves]
    held = [_verdict(seen.observed, one.pool, one.pool.replicas, one.wanted, one.rule.value, one.why, "", one.figures)
            for one in sorted(found.held, key=lambda one: one.wanted == one.pool.replicas)]
    return PlanView(id=plan_id, at=seen.now, mode=mode, applied=applied, verdicts=moved + held)


async def _carry_out(session: AsyncSession, key: SigningKey, found: Plan, seen: Facts, plan_id: str) -> None:
    for fleet_id in sorted({move.pool.fleet_id for move in found.moves}):
        moves = [move for move in found.moves if move.pool.fleet_id == fleet_id]
        await topology.lock_fleet(session, fleet_id)
        for move in moves:
            await _resize(session, move, seen, plan_id)
        await repository.reissue(session, fleet_id, sorted({move.pool.deployment_id for move in moves}))
        await notify(session, fleet_channel(fleet_id))
    await session.flush()
    await publisher.publish(session, key, f"capacity:{plan_id}")


async def _resize(session: AsyncSession, move: Move, seen: Facts, plan_id: str) -> None:
    pool = move.pool
    if not await repository.resize(session, pool.deployment_id, pool.role, move.before, move.after):
        raise RuntimeError(f"{pool.deployment_id} changed although its datacenter is locked")
    session.add(CapacityMove(
        id=ids.new_id("move"), plan_id=plan_id, moved_at=seen.now, model_id=pool.model_id, fleet_id=pool.fleet_id,
        deployment_id=pool.deployment_id, role=pool.role, replicas=move.after - move.before, gpus=move.gpus))
    audit.record(session, actor=ACTOR, action="capacity.step", target=f"deployment:{pool.deployment_id}",
                 reason=move.why, before={"role": pool.role.value, "replicas": move.before},
                 after={"role": pool.role.value, "replicas": move.after, "plan": plan_id})


def _verdict(observed: Observed, pool: Pool, after: int, wanted: int, rule: str | None, why: str, leaves: str,
             found: wishes.Figures) -> Verdict:
    return Verdict(
        model=pool.model_id, datacenter=observed.fleet_of(pool).datacenter_id, fleet=pool.fleet_id,
        deployment=pool.deployment_id, role=pool.role, before=pool.replicas, after=after, wanted=wanted,
        gpus=(after - pool.replicas) * pool.gpus_per_replica, rule=rule, why=why, leaves=leaves,
        figures=Figures(**{name: None if value == math.inf else value for name, value in asdict(found).items()}))

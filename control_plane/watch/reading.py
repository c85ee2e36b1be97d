"""Rows in, samples out: what the figures of `figures` are now."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from sqlalchemy.ext.asyncio import AsyncSession

from control_plane.capacity import service as capacity
from control_plane.capacity.headroom import ModelHeadroom
from control_plane.contracts.evidence import VoteVerdict
from control_plane.contracts.figures import Figure, Sample
from control_plane.contracts.operations import FINAL, OperationKind, OperationState
from control_plane.operations.facts import Pace
from control_plane.operations.freezing import why_still
from control_plane.topology.states import ROUTABLE, effective_weight
from control_plane.watch import figures as f
from control_plane.watch import queries

LIVE_FOR_S = Pace().edge_excused_after_s
OPEN_STATES = tuple(state for state in OperationState if state not in FINAL)


async def read(session: AsyncSession) -> list[Sample]:
    """Every sample, as the database has them now."""
    head = await queries.head(session)
    datacenters, deployments = await queries.datacenters(session), await queries.deployments(session)
    return [
        *_datacenters(datacenters), *_models(await queries.models(session), datacenters, deployments),
        *_deployments(deployments), *_pools(await queries.pools(session)), *_leases(await queries.leases(session)),
        *_edges(await queries.edges(session), head), *_head(head),
        *_attempts(await queries.attempts(session)), *_votes(await queries.votes(session), datacenters),
        *_blocked(await queries.findings(session), datacenters),
        *_capacity(await capacity.headroom(session)),
        *_planner(await queries.planner(session), await queries.moves(session)),
        *_open_operations(await queries.open_operations(session)),
        *_ended_operations(await queries.ended_operations(session)), *_steps(await queries.step_times(session)),
        *_commands(await queries.open_commands(session)), *_outbox(await queries.outbox(session)),
        *_one(f.AUTOMATION_FROZEN, bool(await why_still(session))),
        *_usage(await queries.open_requests(session), await queries.quarantined(session))]


def _datacenters(rows: Iterable[Any]) -> Iterator[Sample]:
    for row in rows:
        place = (row.id, row.region_id)
        yield from _one(f.DATACENTER_WEIGHT, _weight(row), *place)
        yield from _one(f.DATACENTER_STATE, 1, *place, row.traffic_state.value)
        yield from _one(f.DATACENTER_STATE_AGE_S, row.age_s, *place)


def _models(rows: Iterable[Any], datacenters: Iterable[Any], deployments: Iterable[Any]) -> Iterator[Sample]:
    serving = {row.id for row in datacenters if _weight(row)}
    routes = {(one.model_id, one.datacenter_id) for one in deployments
              if one.phase in ROUTABLE and one.replicas and one.share_permille and one.datacenter_id in serving}
    for row in rows:
        yield from _one(f.MODEL_DATACENTERS, sum(model == row.id for model, _ in routes), row.id)
        yield from _one(f.MODEL_DATACENTERS_WANTED, row.min_datacenters, row.id)


def _deployments(rows: Iterable[Any]) -> Iterator[Sample]:
    for row in rows:
        place = (row.id, row.model_id, row.datacenter_id)
        if row.phase is not None:
            yield from _one(f.DEPLOYMENT_PHASE, 1, *place, row.phase.value)
        yield from _one(f.DEPLOYMENT_INFLIGHT, row.inflight, *place)
        yield from _one(f.DEPLOYMENT_QUEUED, row.queued, *place)
        yield from _one(f.DEPLOYMENT_KV_USAGE, row.kv_usage, *place)
        if row.observed_generation is not None:
            yield from _one(f.DEPLOYMENT_BEHIND, max(row.generation - row.observed_generation, 0), *place)


def _pools(rows: Iterable[Any]) -> Iterator[Sample]:
    for row in rows:
        place = (row.deployment_id, row.model_id, row.datacenter_id, row.role.value)
        yield from _one(f.POOL_WANTED, row.replicas, *place)
        yield from _one(f.POOL_READY, row.ready_replicas, *place)


def _leases(rows: Iterable[Any]) -> Iterator[Sample]:
    for row in rows:
        yield from _one(f.LEASE_LIVE, bool(row.live), row.id, row.datacenter_id)
        yield from _one(f.LEASE_AGE_S, row.age_s, row.id, row.datacenter_id)
        yield from _one(f.LEASE_EPOCH, row.epoch, row.id, row.datacenter_id)


def _edges(rows: Iterable[Any], head: Any) -> Iterator[Sample]:
    newest = (head.lineage, head.version)
    for row in rows:
        edge, acked = (row.id, row.region), (row.acked_lineage, row.acked_version)
        behind = head.version - (row.acked_version if row.acked_lineage == head.lineage else 0)
        yield from _one(f.EDGE_LIVE, row.age_s < LIVE_FOR_S, *edge)
        yield from _one(f.EDGE_BEHIND, 0 if acked >= newest else behind, *edge)
        yield from _one(f.EDGE_REFUSING, (row.nack_lineage, row.nack_version) == newest and acked != newest, *edge)
        yield from _one(f.EDGE_AHEAD, acked > newest, *edge)


def _head(row: Any) -> Iterator[Sample]:
    yield from _one(f.SNAPSHOT_VERSION, row.version)
    yield from _one(f.SNAPSHOT_LINEAGE, row.lineage)
    yield from _one(f.SNAPSHOT_AGE_S, row.age_s)


def _attempts(rows: Iterable[Any]) -> Iterator[Sample]:
    for row in rows:
        yield from _one(f.ATTEMPTS, row.succeeded, row.model_id, row.datacenter_id, "succeeded")
        yield from _one(f.ATTEMPTS, row.failed, row.model_id, row.datacenter_id, "failed")


def _votes(rows: Iterable[Any], datacenters: Iterable[Any]) -> Iterator[Sample]:
    """Datacenters that nobody speaks against are told, too."""
    counted = {(row.datacenter_id, row.verdict): row.times for row in rows}
    for place in datacenters:
        for verdict in VoteVerdict:
            yield from _one(f.VOTES, counted.get((place.id, verdict), 0), place.id, verdict.value)


def _blocked(findings: Iterable[Mapping[str, Any]], datacenters: Iterable[Any]) -> Iterator[Sample]:
    blocked = {one["datacenter_id"] for one in findings if one["wanted"] and one["blocked"]}
    for place in datacenters:
        yield from _one(f.FAILOVER_BLOCKED, place.id in blocked, place.id)


def _capacity(headrooms: Mapping[str, ModelHeadroom]) -> Iterator[Sample]:
    for model_id, headroom in headrooms.items():
        yield from _one(f.CAPACITY_READY, headroom.total.ready, model_id)
        yield from _one(f.CAPACITY_PEAK, headroom.total.peak, model_id)
        yield from _one(f.CAPACITY_RESERVED, headroom.total.reserved, model_id)
        yield from _one(f.CAPACITY_HEADROOM, headroom.tightest.headroom, model_id)


def _planner(rows: Iterable[Any], moves: Iterable[Any]) -> Iterator[Sample]:
    for row in rows:
        yield from _one(f.PLAN_AGE_S, row.age_s)
    for move in moves:
        yield from _one(f.PLANNED_MOVES, move.times, move.model_id, "up" if move.grows else "down")


def _open_operations(rows: Iterable[Any]) -> Iterator[Sample]:
    """Kinds that have none under way are told, too, so that an end is seen as one."""
    rows = list(rows)
    for kind in OperationKind:
        mine = [row for row in rows if row.kind is kind]
        for state in OPEN_STATES:
            yield from _one(f.OPERATIONS_OPEN, sum(row.state is state for row in mine), kind.value, state.value)
        yield from _one(f.OPERATIONS_OVERDUE, sum(row.overdue for row in mine), kind.value)
        yield from _one(f.OPERATIONS_OLDEST_S, max((row.age_s for row in mine), default=0), kind.value)


def _ended_operations(rows: Iterable[Any]) -> Iterator[Sample]:
    """Every way to end is told, those with 0 too: only a rise from 0 is seen as one."""
    ended = {(kind.value, state.value, automatic): 0
             for kind in OperationKind for state in FINAL for automatic in ("false", "true")}
    refused: dict[tuple[str, str], int] = {}
    for row in rows:
        key = (row.kind.value, row.state.value, "true" if row.automatic else "false")
        ended[key] += row.times
        if row.rule and row.state is OperationState.REFUSED:  # a forced one has the rule that it overruled
            refused[row.kind.value, row.rule] = refused.get((row.kind.value, row.rule), 0) + row.times
    for labels, times in ended.items():
        yield from _one(f.OPERATIONS_ENDED, times, *labels)
    for by_rule, times in refused.items():
        yield from _one(f.OPERATIONS_REFUSED, times, *by_rule)


def _steps(rows: Iterable[Any]) -> Iterator[Sample]:
    for row in rows:
        yield Sample(f.OPERATION_STEPS_S, (row.kind.value, row.name.value), float(row.sum_s), row.times)


def _commands(rows: Iterable[Any]) -> Iterator[Sample]:
    oldest_s: dict[str, float] = {}
    for row in rows:
        yield from _one(f.COMMANDS_OPEN, row.times, row.fleet_id, row.kind.value)
        oldest_s[row.fleet_id] = max(oldest_s.get(row.fleet_id, 0.0), float(row.age_s))
    for fleet_id, age_s in oldest_s.items():
        yield from _one(f.COMMANDS_OLDEST_S, age_s, fleet_id)


def _outbox(rows: Iterable[Any]) -> Iterator[Sample]:
    for row in rows:
        yield from _one(f.OUTBOX_ROWS, row.times, row.topic)
        yield from _one(f.OUTBOX_OLDEST_S, row.age_s or 0, row.topic)


def _usage(unsettled: Any, quarantined: int) -> Iterator[Sample]:
    yield from _one(f.USAGE_OPEN, unsettled.times)
    yield from _one(f.USAGE_OPEN_OLDEST_S, unsettled.age_s or 0)
    yield from _one(f.USAGE_QUARANTINE, quarantined)


def _weight(row: Any) -> int:
    return effective_weight(row.traffic_state, row.weight, row.ramp_percent)


def _one(figure: Figure, value: Any, *labels: str) -> Iterator[Sample]:
    """The sample, or none where nothing is known."""
    if value is not None:
        yield Sample(figure, labels, float(value))

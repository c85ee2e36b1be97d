"""Publishes snapshots: builds one from what the database holds, signs it, and wakes the edges' polls on commit."""

from sqlalchemy.ext.asyncio import AsyncSession

from control_plane.billing.service import prices_of
from control_plane.contracts.deployment import EngineFacts
from control_plane.contracts.signing import SigningKey
from control_plane.contracts.snapshot import ModelDetails, OperatorKey, SignedSnapshot, check_meaning
from control_plane.db import database_time, notify
from control_plane.override import repository as overrides
from control_plane.routing import builder, repository
from control_plane.routing.builder import DatacenterFacts, DeploymentFacts, ModelFacts, RoutingFacts
from control_plane.routing.models import RoutingSnapshot
from control_plane.topology import repository as topology

CHANNEL = "routing"
KEPT_SNAPSHOTS = 1_000


async def publish(session: AsyncSession, key: SigningKey, cause: str) -> tuple[int, int]:
    """The lineage and version that edges route by once this transaction commits: a new one if anything changed.

    The head is locked first and the facts are read after it, so that a later version never holds older facts. It is the
    last lock of the caller's transaction.
    """
    lineage, version = await repository.lock_head(session)
    facts = await _facts(session)
    built_at = await database_time(session)
    snapshot = builder.build(facts, lineage, version + 1, built_at.timestamp())
    digest = builder.content_digest(snapshot)
    newest = await repository.snapshot(session, lineage, version)
    if newest is not None and (newest.content_digest, newest.key_id) == (digest, key.public.key_id):
        return lineage, version
    check_meaning(snapshot)
    sealed = SignedSnapshot.seal(snapshot, key)
    await repository.add_snapshot(session, RoutingSnapshot(
        lineage=lineage, version=version + 1, body=sealed.body, signature=sealed.signature, key_id=sealed.key_id,
        content_digest=digest, cause=cause, built_at=built_at), KEPT_SNAPSHOTS)
    await notify(session, CHANNEL)
    return lineage, version + 1


async def _facts(session: AsyncSession) -> RoutingFacts:
    rows = await topology.routing_rows(session)
    prices = await prices_of(session, [row.price_version for row in rows["models"]])
    return RoutingFacts(
        datacenters=tuple(DatacenterFacts(row.id, row.region_id, row.traffic_state, row.weight, row.ramp_percent,
                                          row.evacuate)
                          for row in rows["datacenters"]),
        models=tuple(ModelFacts(
            row.id, row.display_name, int(row.created_at.timestamp()), row.owned_by, row.context_window,
            row.max_output_tokens, prices[row.price_version][1], row.default_max_tokens,
            ModelDetails(**row.details)) for row in rows["models"]),
        deployments=tuple(DeploymentFacts(
            row.id, row.model_id, row.fleet_id, row.datacenter_id, row.ingress_url, row.phase, int(row.replicas),
            EngineFacts(**row.facts), row.share_permille) for row in rows["deployments"]),
        operator_keys=tuple(OperatorKey(key_id=key.key_id, public_key=key.public_key, name=key.name)
                            for key in await overrides.living_keys(session)))

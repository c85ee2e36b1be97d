"""What a simulated world is made of: regions, datacenters with one fleet each, models, and their rows as declared."""

from decimal import Decimal
from random import Random

from control_plane.contracts.agent_sync import DeploymentPhase
from control_plane.contracts.deployment import PoolRole
from control_plane.contracts.snapshot import TrafficState
from tests.simulation.database import Row, Tables

REGIONS = ("ap", "eu", "us")
MODELS = ("glm", "kimi")
AUDIT_ROOT = bytes(32)
OBSERVED_COLUMNS = {"inflight": None, "queued": None, "kv_usage": None, "message": "", "facts": {},
                    "observed_at": None, "observed_generation": None}


def declare(tables: Tables, chance: Random) -> dict[str, str]:
    """Stores a topology; each fleet's datacenter."""
    count = chance.choice((2, 2, 3, 3, 4))
    regions = chance.sample(REGIONS, k=min(count, chance.choice((1, 2, 3))))
    now, places = tables.now(), {}
    for number in range(count):
        region = regions[number % len(regions)]
        place = f"{region}{number + 1}"
        tables.table("datacenter")[place] = Row(
            id=place, region_id=region, traffic_state=TrafficState.ACTIVE, weight=chance.choice((100, 100, 50)),
            ramp_percent=0, evacuate=False, generation=1, changed_at=now, changed_by="test", reason="declared")
        fleet = f"{place}-a"
        places[fleet] = place
        tables.table("fleet")[fleet] = Row(
            id=fleet, datacenter_id=place, ingress_url=f"http://{place}.test:80", gpu_type="sim", gpu_total=64,
            generation=1, command_seq=0)
    for model in MODELS[:chance.choice((1, 2))]:
        _declare_model(tables, model, places)
    tables.table("region").update({region: Row(id=region) for region in regions})
    tables.table("routing_head")[True] = Row(id=True, lineage=1, version=0)
    tables.table("audit_head")[True] = Row(id=True, seq=0, hash=AUDIT_ROOT)
    tables.table("failover_watch")[True] = Row(id=True, findings=[], lock_token=None, lock_expires_at=None)
    tables.table("automation")[True] = Row(id=True, frozen=False, frozen_until=None, reason=None, by=None)
    return places


def _declare_model(tables: Tables, model: str, places: dict[str, str]) -> None:
    now = tables.now()
    tables.table("price")[f"{model}-1"] = Row(
        version=f"{model}-1", model_id=model, input_usd=Decimal("0.000001"), cached_input_usd=Decimal("0.0000001"),
        output_usd=Decimal("0.000003"), effective_from=now)
    tables.table("model")[model] = Row(
        id=model, display_name=model, owned_by="test", context_window=8_192, max_output_tokens=4_096,
        default_max_tokens=None, price_version=f"{model}-1", min_datacenters=1, details={}, created_at=now)
    for fleet in places:
        deployment = f"{fleet}-{model}"
        tables.table("deployment")[deployment] = Row(
            id=deployment, model_id=model, fleet_id=fleet, engine={"image": "one"}, generation=1,
            phase=DeploymentPhase.PENDING, share_permille=1_000, **OBSERVED_COLUMNS)
        for role, replicas in ((PoolRole.PREFILL, 1), (PoolRole.DECODE, 2)):
            tables.table("pool")[deployment, role] = Row(
                deployment_id=deployment, role=role, replicas=replicas, gpus_per_replica=1, max_inflight=16,
                ready_replicas=None)

"""Plain values for the edge's tests; every argument that a test cares about is named, the rest is dull."""

from decimal import Decimal
from uuid import UUID

from control_plane.contracts import ids
from control_plane.contracts.deployment import EngineFacts
from control_plane.contracts.pricing import Price
from control_plane.contracts.snapshot import Snapshot, SnapshotDatacenter, SnapshotModel, SnapshotRoute, TrafficState
from control_plane.contracts.usage import Attempt, MeterSource, Outcome, UsageOpen, UsageRecord

MODEL = "sim/glm-5.3"
PRICE = Price(version="pv_1", input_usd=Decimal("0.0000006"), cached_input_usd=Decimal("0.00000011"),
              output_usd=Decimal("0.0000022"))


def snapshot(
    version: int = 1, lineage: int = 1, weights: dict[str, int] | None = None, models: tuple[str, ...] = (MODEL,),
    reason: str | None = None, ports: dict[str, int] | None = None, engine: EngineFacts | None = None,
) -> Snapshot:
    """A snapshot in which every model is served by every datacenter."""
    weights = {"us-east-1": 100, "eu-north-1": 100} if weights is None else weights
    routes = [
        SnapshotRoute(deployment_id=f"{dc}-a-glm", fleet_id=f"{dc}-a", datacenter_id=dc,
                      ingress_url=f"http://127.0.0.1:{(ports or {}).get(dc, 9000 + at)}",
                      engine=engine or EngineFacts())
        for at, dc in enumerate(weights)]
    return Snapshot(
        lineage=lineage, version=version, built_at_s=1_800_000_000.0,
        datacenters=[
            SnapshotDatacenter(id=dc, region=dc, weight=weight,
                               state=TrafficState.ACTIVE if weight else TrafficState.DRAINED)
            for dc, weight in weights.items()],
        models=[
            SnapshotModel(id=model, display_name="GLM-5.3 (simulated)", created_s=1_758_499_200, owned_by="sim",
                          context_window=202_752, max_output_tokens=131_072, price=PRICE, routes=routes,
                          unroutable_reason=reason)
            for model in models])


def usage_open(request_id: UUID | None = None, opened_at_s: float = 1_800_000_000.0) -> UsageOpen:
    """A request about to be sent."""
    return UsageOpen(request_id=request_id or ids.uuid7(), team_id="team_1", key_id="key_1", model_id=MODEL,
                     price_version="pv_1", opened_at_s=opened_at_s)


def usage_record(request_id: UUID | None = None, completion_tokens: int = 7) -> UsageRecord:
    """A request that completed."""
    return UsageRecord(
        request_id=request_id or ids.uuid7(), team_id="team_1", key_id="key_1", model_id=MODEL,
        datacenter_id="us-east-1", price_version="pv_1", outcome=Outcome.COMPLETED, meter=MeterSource.TOKEN_IDS,
        streamed=True, http_status=200, prompt_tokens=16, cached_tokens=0, completion_tokens=completion_tokens,
        reasoning_tokens=0, cost_usd="0.000025", attempts=[Attempt("us-east-1", 200)], opened_at_s=1_800_000_000.0,
        duration_ms=120.5, ttft_ms=20.25, finish_reason="stop")

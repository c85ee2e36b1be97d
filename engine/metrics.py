"""What Dynamo 1.6 calls the figures that Meridian reads; every such name is here and nowhere else."""

from control_plane.contracts.launch import Gauges

# Each carries the label `model`, the model's id. `MODEL_READY` is 1 while a model has all the workers it needs; the
# frontend's /health stays 200 without any.
MODEL_READY = "dynamo_frontend_model_ready"
INFLIGHT_REQUESTS = "dynamo_frontend_inflight_requests"
QUEUED_REQUESTS = "dynamo_frontend_queued_requests"
# The used share of a worker's KV cache, on its own page: as the simulated GPU calls it, and as vLLM does.
KV_USAGE = ["vllm:gpu_cache_usage_perc", "vllm:kv_cache_usage_perc"]


def gauges(frontend_url: str) -> Gauges:
    """Where a frontend's figures are."""
    return Gauges(url=f"{frontend_url}/metrics", model_ready=MODEL_READY, inflight=INFLIGHT_REQUESTS,
                  queued=QUEUED_REQUESTS, kv_usage=KV_USAGE)

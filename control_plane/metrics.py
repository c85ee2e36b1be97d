"""The control plane's own metrics, all names in one place; `/metrics` prints them for Prometheus."""

from prometheus_client import Counter, Gauge, Histogram

REQUESTS = Counter("meridian_control_plane_requests", "Requests answered.", ["route", "method", "status"])
REQUEST_DURATION_S = Histogram(
    "meridian_control_plane_request_duration_seconds", "How long requests took, long-polls included.", ["route"],
    buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60))
USAGE_FRAMES = Counter("meridian_usage_frames", "Usage frames received, by verdict.", ["verdict"])
USAGE_QUARANTINED = Counter(
    "meridian_usage_quarantined", "Usage frames kept aside; any growth is an alarm.", ["reason"])
WORKER_TASKS = Counter("meridian_worker_tasks", "Tasks that ended in the worker: done or failed.", ["task", "result"])
WORKER_TASK_DURATION_S = Histogram(
    "meridian_worker_task_duration_seconds", "How long the worker's tasks took.", ["task"],
    buckets=(0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 300))
WORKER_HEARTBEAT_S = Gauge(
    "meridian_worker_heartbeat_seconds", "Unix time at which a task of the beat last ran in the worker.")
OUTBOX_RELAYED = Counter("meridian_outbox_relayed", "Outbox rows handed to the task queue.", ["topic"])
OUTBOX_RELAY_UP = Gauge("meridian_outbox_relay_up", "1 if the last attempt to hand rows over went well.")

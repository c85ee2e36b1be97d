"""The control plane's own metrics, all names in one place; `/metrics` prints them for Prometheus."""

from prometheus_client import Counter, Gauge, Histogram

REQUESTS = Counter("meridian_control_plane_requests", "Requests answered.", ["route", "method", "status"])
REQUEST_DURATION_S = Histogram(
    "meridian_control_plane_request_duration_seconds", "How long requests took, long-polls included.", ["route"],
    buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60))
DATABASE_UP = Gauge(
    "meridian_control_plane_database_up", "1 if the figures that the database holds could be read at this scrape.")
MACHINE_CLOCK_OFFSET_S = Gauge(
    "meridian_control_plane_machine_clock_offset_seconds",
    "How far the clock of an agent or edge is ahead of this replica's, by its last signed request; the request's own "
    "way makes it look behind.", ["kind", "identity"])
PROPAGATION_S = Histogram(
    "meridian_routing_propagation_seconds",
    "From a snapshot's making to its acknowledgement by an edge that was there all the while.",
    buckets=(0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.75, 1, 1.5, 2.5, 5, 10, 30))
SNAPSHOTS_REFUSED = Counter(
    "meridian_routing_snapshots_refused", "Times that an edge said of a snapshot that it refuses it.", ["region"])
USAGE_LAG_S = Histogram(
    "meridian_usage_lag_seconds", "From a request's end to its record's being stored: the longest of each batch.",
    buckets=(0.25, 0.5, 1, 2, 5, 10, 30, 60, 120, 300, 900, 3600))
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
AUDIT_CHAIN_OK = Gauge(
    "meridian_audit_chain_ok", "1 if the log was as it was written when it was verified last, else 0; absent before.",
    ["log"])
MACHINES_AHEAD = Counter(
    "meridian_control_plane_reports_ahead",
    "Reports of edges and agents that have seen more than the database holds: it is an older copy.", ["kind"])

"""Every figure that the control plane reads from its database when Prometheus asks, in one table.

All replicas read the same rows, so all tell the same: take `max`, never `sum`, over replicas. What nobody observed has
no sample; it is never 0. Labels are declared things, kinds and states: never a team, a key or a request.
"""

from control_plane.contracts.figures import Figure, FigureKind, counter, gauge

DATACENTER_WEIGHT = gauge(
    "datacenter_weight", "Weight that edges route by: 0 unless it is active, draining or warming up.",
    "datacenter", "region")
DATACENTER_STATE = gauge(
    "datacenter_state", "1 for the traffic state that it is in.", "datacenter", "region", "state")
DATACENTER_STATE_AGE_S = gauge(
    "datacenter_state_age_seconds", "Since its weight or its state were last changed.", "datacenter", "region")
MODEL_DATACENTERS = gauge(
    "model_routable_datacenters", "Datacenters that take a model's requests now.", "model")
MODEL_DATACENTERS_WANTED = gauge(
    "model_wanted_datacenters", "Datacenters that a model shall never have fewer of.", "model")
DEPLOYMENT_PHASE = gauge(
    "deployment_phase", "1 for the phase that its agent reported last.", "deployment", "model", "datacenter", "phase")
DEPLOYMENT_INFLIGHT = gauge(
    "deployment_inflight_requests", "Requests inside its engine.", "deployment", "model", "datacenter")
DEPLOYMENT_QUEUED = gauge(
    "deployment_queued_requests", "Those of them that wait for their first token.", "deployment", "model", "datacenter")
DEPLOYMENT_KV_USAGE = gauge(
    "deployment_kv_usage_ratio", "Share of the KV cache in use on its fullest worker.",
    "deployment", "model", "datacenter")
DEPLOYMENT_BEHIND = gauge(
    "deployment_behind_generations", "Generations of its specification that its agent has not put in place.",
    "deployment", "model", "datacenter")
POOL_WANTED = gauge(
    "pool_wanted_replicas", "Replicas that shall run.", "deployment", "model", "datacenter", "role")
POOL_READY = gauge(
    "pool_ready_replicas", "Replicas that are ready.", "deployment", "model", "datacenter", "role")

LEASE_LIVE = gauge("fleet_lease_live", "1 while an agent holds the fleet's lease.", "fleet", "datacenter")
LEASE_AGE_S = gauge("fleet_lease_age_seconds", "Since the fleet's lease was renewed.", "fleet", "datacenter")
LEASE_EPOCH = gauge("fleet_lease_epoch", "Epoch of the fleet's lease: grows with each new holder.", "fleet",
                    "datacenter")

EDGE_LIVE = gauge("routing_edge_live", "1 while an edge is heard from.", "edge", "region")
EDGE_BEHIND = gauge("routing_edge_behind_versions", "Snapshots that an edge has not put to use.", "edge", "region")
EDGE_REFUSING = gauge("routing_edge_refusing", "1 while an edge refuses the newest snapshot that it was sent.", "edge",
                      "region")
EDGE_AHEAD = gauge("routing_edge_ahead", "1 if an edge has a snapshot that this database never made.", "edge", "region")
SNAPSHOT_VERSION = gauge("routing_snapshot_version", "Version of the newest snapshot.")
SNAPSHOT_LINEAGE = gauge("routing_lineage", "Lineage of the newest snapshot.")
SNAPSHOT_AGE_S = gauge("routing_snapshot_age_seconds", "Since the newest snapshot was made.")

ATTEMPTS = gauge(
    "quality_attempts_last_5m",
    "Attempts that ended within the last 5 minutes, as edges saw them: succeeded, failed; what counts as which is in "
    "docs/operations/quality.md.", "model", "datacenter", "outcome")
VOTES = gauge(
    "routing_votes", "Edges that say that a datacenter is lost to them, or falters.", "datacenter", "verdict")
FAILOVER_BLOCKED = gauge(
    "failover_blocked",
    "1 while enough edges call a datacenter lost and something keeps it from failing over by itself: `meridian status` "
    "says what.", "datacenter")

OPERATIONS_OPEN = gauge("operations_open", "Operations under way.", "kind", "state")
OPERATIONS_OLDEST_S = gauge("operations_oldest_seconds", "Age of the oldest operation under way.", "kind")
OPERATIONS_OVERDUE = gauge("operations_overdue", "Operations under way and past their deadline.", "kind")
OPERATIONS_ENDED = counter("operations_ended", "Operations that ended, by how.", "kind", "state", "automatic")
OPERATIONS_REFUSED = counter("operations_refused", "Operations that a safety rule refused.", "kind", "rule")
OPERATION_STEPS_S = Figure("meridian_operations_step_seconds", FigureKind.SUMMARY, ("kind", "step"),
                           "How long the steps of operations took.")
COMMANDS_OPEN = gauge("commands_open", "Commands that an agent has not finished.", "fleet", "kind")
COMMANDS_OLDEST_S = gauge("commands_oldest_seconds", "Age of a fleet's oldest unfinished command.", "fleet")
AUTOMATION_FROZEN = gauge("automation_frozen", "1 while automation stands still.")

CAPACITY_READY = gauge(
    "capacity_ready_requests", "Concurrent requests that a model's ready replicas hold well.", "model")
CAPACITY_PEAK = gauge("capacity_peak_requests", "Most concurrent requests of a model within 30 minutes.", "model")
CAPACITY_RESERVED = gauge("capacity_reserved_requests", "Concurrent requests of a model that are reserved.", "model")
CAPACITY_HEADROOM = gauge(
    "capacity_headroom_requests",
    "What is left of a model's ready capacity beyond 1.2 times the larger of peak and reservations, in the tightest "
    "set of regions; negative: too little.", "model")

PLAN_AGE_S = gauge("capacity_plan_age_seconds", "Since the planner planned last; absent while it never did.")
PLANNED_MOVES = gauge(
    "capacity_moves_last_hour", "Changes of pools by the planner within the last hour.", "model", "direction")

USAGE_OPEN = gauge("usage_open_requests", "Requests that were announced and have no record yet.")
USAGE_OPEN_OLDEST_S = gauge("usage_open_oldest_seconds", "Age of the oldest announced request without a record.")
USAGE_QUARANTINE = gauge("usage_quarantine_frames", "Usage frames in quarantine, waiting for a person.")
OUTBOX_ROWS = gauge("outbox_rows", "Jobs that wait to be handed to the worker.", "topic")
OUTBOX_OLDEST_S = gauge("outbox_oldest_seconds", "Age of the oldest job that waits.")

FIGURES: tuple[Figure, ...] = tuple(value for value in list(globals().values()) if isinstance(value, Figure))

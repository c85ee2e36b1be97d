"""The dashboards: what an operator looks at, from the whole to the parts."""

from infra.grafana.panels import Board, Panel, Query

EDGES = 'instance=~"$instance"'
PLACES = 'datacenter=~"$datacenter"'
MODELS = 'model=~"$model"'


def rate(metric: str, by: str, where: str = "") -> str:
    """Events a second, summed over processes."""
    return f"sum by ({by}) (rate({metric}{{{where}}}[$__rate_interval]))"


def quantile(share: float, metric: str, where: str = "") -> str:
    """A percentile of a histogram, over all processes."""
    return f"histogram_quantile({share}, sum by (le) (rate({metric}_bucket{{{where}}}[$__rate_interval])))"


def latest(metric: str, by: str, where: str = "") -> str:
    """A figure of the control plane's database, of which every replica tells the same."""
    return f"max by ({by}) ({metric}{{{where}}})"


def percentiles(metric: str, where: str = "") -> tuple[Query, ...]:
    """The three that are looked at."""
    return tuple(Query(quantile(share, metric, where), f"p{share * 100:.0f}") for share in (0.5, 0.9, 0.99))


ATTEMPTS = latest("meridian_quality_attempts_last_5m", "model, datacenter, outcome", PLACES)
READY = latest("meridian_pool_ready_replicas", "deployment, datacenter, role", PLACES)

OBJECTIVES = ("Objectives", (
    Panel("Answers that fail", "Share of the last hour's answers that failed or broke off; 0.1 % are allowed.",
          (Query("meridian:edge_bad_answers:ratio_rate1h"),), "percentunit", "stat", 6, 4, red_above=0.001),
    Panel("Answers that begin late", "Share of the last hour's answers that began after more than 10 s; 1 % is fine.",
          (Query("meridian:edge_slow_first_bytes:ratio_rate1h"),), "percentunit", "stat", 6, 4, red_above=0.01),
    Panel("Slow streams", "Share of the last hour's streams with more than 50 ms between tokens; 1 % is allowed.",
          (Query("meridian:edge_slow_streams:ratio_rate1h"),), "percentunit", "stat", 6, 4, red_above=0.01),
    Panel("Budget of success, 3 days", "How fast the error budget is spent; 1 spends it in exactly its 30 days.",
          (Query("meridian:edge_bad_answers:ratio_rate3d / 0.001"),), "none", "stat", 6, 4, red_above=1),
))

FLEET = Board("meridian-fleet", "Meridian: fleet", "Is the service well, and where does its traffic go.", (
    OBJECTIVES,
    ("Traffic", (
        Panel("Answers", "Answers by HTTP status, all edges.", (
            Query(rate("meridian_edge_answers_total", "status"), "{{status}}"),), "reqps"),
        Panel("Open requests", "Requests open in each datacenter.", (
            Query(f"sum by (datacenter) (meridian_edge_open_requests{{{PLACES}}})", "{{datacenter}}"),), "short"),
        Panel("First byte", "From a request to the first byte of its answer.",
              percentiles("meridian_edge_first_byte_seconds"), "s"),
    )),
    ("Datacenters", (
        Panel("Weight", "What edges route by; 0 takes no new request.", (
            Query(latest("meridian_datacenter_weight", "datacenter", PLACES), "{{datacenter}}"),), "short"),
        Panel("Datacenters of each model", "How many take its requests now.", (
            Query(latest("meridian_model_routable_datacenters", "model"), "{{model}}"),), "short", red_below=1),
        Panel("Ready replicas", "Replicas that are ready, by datacenter and role.", (
            Query(f"sum by (datacenter, role) ({READY})", "{{datacenter}} {{role}}"),), "short"),
        Panel("Agents' leases", "Since each lease was renewed; it lapses after 15 s.", (
            Query(latest("meridian_fleet_lease_age_seconds", "fleet", PLACES), "{{fleet}}"),), "s", red_above=60),
        Panel("Engine processes that ended", "By themselves; the agent starts them again.", (
            Query("sum by (instance) (increase(meridian_agent_restarts_total[$__rate_interval]))", "{{instance}}"),),
              "short"),
        Panel("Clocks", "How far machines' clocks are from the control plane's; refused from 60 s on.", (
            Query("max by (kind, identity) (meridian_control_plane_machine_clock_offset_seconds)",
                  "{{kind}} {{identity}}"),
        ), "s", red_below=-10, red_above=10),
    )),
    ("Losses", (
        Panel("Frontends lost", "What probes found lost.", (
            Query("sum by (datacenter) (increase(meridian_edge_losses_total[$__rate_interval]))", "{{datacenter}}"),),
              "short"),
        Panel("Failed attempts", "Share of each datacenter's attempts of the last 5 minutes.", (
            Query(f"max by (model, datacenter) (meridian_quality_attempts_last_5m{{outcome=\"failed\", {PLACES}}}) "
                  f"/ sum by (model, datacenter) ({ATTEMPTS})", "{{model}} {{datacenter}}"),), "percentunit",
              red_above=0.05),
        Panel("Edges' votes", "How many edges say what of a datacenter; a quorum of them fails it over.", (
            Query(latest("meridian_routing_votes", "datacenter, verdict", PLACES) + " > 0",
                  "{{datacenter}} {{verdict}}"),), "short"),
        Panel("Overrides", "Operators' orders to edges that beat the snapshot.", (
            Query("meridian_edge_overrides_in_force", "{{instance}}"),), "short", red_above=1),
        Panel("Streams that broke", "By what became of them.", (
            Query(rate("meridian_edge_resumes_total", "result"), "{{result}}"),), "reqps"),
        Panel("Pause of a stream that went on elsewhere", "From the break to the first new event.",
              percentiles("meridian_edge_seam_gap_seconds"), "s"),
    )),
), narrowed_by=(("datacenter", "meridian_datacenter_weight"),))

EDGE = Board("meridian-edge", "Meridian: edges", "One edge, or all of them: requests, choices, snapshots, keys.", (
    ("Requests", (
        Panel("Answers", "By HTTP status.", (
            Query(rate("meridian_edge_answers_total", "status", EDGES), "{{status}}"),), "reqps"),
        Panel("Answers that broke", "Began with 200 and ended with an error.", (
            Query(rate("meridian_edge_broken_answers_total", "instance", EDGES), "{{instance}}"),), "reqps"),
        Panel("Refused at the door", "By what ran out.", (
            Query(rate("meridian_edge_admission_refusals_total", "kind", EDGES), "{{kind}}"),), "reqps"),
        Panel("First byte", "From a request to the first byte of its answer.",
              percentiles("meridian_edge_first_byte_seconds", EDGES), "s"),
        Panel("Time between tokens", "Mean of each stream.",
              percentiles("meridian_edge_token_gap_seconds", EDGES), "s"),
        Panel("Wrong tool calls", "Answers that ended with calls, by verdict.", (
            Query(rate("meridian_edge_called_answers_total", "model, verdict", EDGES), "{{model}} {{verdict}}"),),
              "reqps"),
    )),
    ("Choice of a datacenter", (
        Panel("Open requests", "By datacenter.", (
            Query(f"sum by (datacenter) (meridian_edge_open_requests{{{EDGES}}})", "{{datacenter}}"),), "short"),
        Panel("Failed attempts", "By datacenter and kind.", (
            Query(rate("meridian_edge_upstream_failures_total", "datacenter, kind", EDGES),
                  "{{datacenter}} {{kind}}"),), "reqps"),
        Panel("Sent elsewhere", "Retries, ejections, and choices that ignored what was known.", (
            Query(rate("meridian_edge_retries_total", "instance", EDGES), "retries {{instance}}"),
            Query(rate("meridian_edge_ejections_total", "datacenter", EDGES), "ejected {{datacenter}}"),
            Query(rate("meridian_edge_panic_choices_total", "instance", EDGES), "panic {{instance}}")), "reqps"),
        Panel("Round trip", "To each datacenter's frontend.", (
            Query(f"max by (datacenter) (meridian_edge_round_trip_seconds{{{EDGES}}})", "{{datacenter}}"),), "s"),
        Panel("Probes", "By datacenter and what came back.", (
            Query(rate("meridian_edge_probes_total", "datacenter, result", EDGES), "{{datacenter}} {{result}}"),),
              "reqps"),
        Panel("Streams that broke", "By what became of them.", (
            Query(rate("meridian_edge_resumes_total", "result", EDGES), "{{result}}"),), "reqps"),
    )),
    ("What comes from above", (
        Panel("Snapshot in use", "Version by edge: all the same, or a step apart for a moment.", (
            Query(f"meridian_edge_snapshot_version{{{EDGES}}}", "{{instance}}"),), "none"),
        Panel("Control plane away", "1 while the last poll failed.", (
            Query(f"meridian_edge_control_plane_away{{{EDGES}}}", "{{instance}}"),), "none", red_above=1),
        Panel("Valkey", "1 while limits are shared.", (
            Query(f"meridian_edge_valkey_up{{{EDGES}}}", "{{instance}}"),), "none", red_below=1),
        Panel("Unknown keys", "Look-ups by result.", (
            Query(rate("meridian_edge_key_lookups_total", "result", EDGES), "{{result}}"),), "reqps"),
        Panel("Cached keys", "Principals in the cache.", (
            Query(f"meridian_edge_cached_keys{{{EDGES}}}", "{{instance}}"),), "short"),
        Panel("Snapshots refused", "Each one is a page.", (
            Query(f"increase(meridian_edge_snapshots_refused_total{{{EDGES}}}[$__rate_interval])", "{{instance}}"),),
              "short", red_above=1),
    )),
), narrowed_by=(("instance", "meridian_edge_snapshot_version"),))

OPERATIONS = Board("meridian-operations", "Meridian: operations",
                   "What is being changed, by whom it is refused, and whether it gets everywhere.", (
    ("Operations", (
        Panel("Under way", "By kind and state.", (
            Query(latest("meridian_operations_open", "kind, state") + " > 0", "{{kind}} {{state}}"),), "short"),
        Panel("Oldest under way", "By kind.", (
            Query(latest("meridian_operations_oldest_seconds", "kind"), "{{kind}}"),), "s"),
        Panel("Past their deadline", "And not ended: stuck.", (
            Query(latest("meridian_operations_overdue", "kind"), "{{kind}}"),), "short", "stat", red_above=1),
        Panel("Ended within a day", "By kind and how.", (
            Query("max by (kind, state) (increase(meridian_operations_ended_total[1d])) > 0",
                  "{{kind}} {{state}}"),), "short"),
        Panel("Refused within a day", "By kind and safety rule.", (
            Query("max by (kind, rule) (increase(meridian_operations_refused_total[1d])) > 0", "{{kind}} {{rule}}"),),
              "short"),
        Panel("Mean time of a step", "Since the beginning, by kind and step.", (
            Query("max by (kind, step) (meridian_operations_step_seconds_sum / meridian_operations_step_seconds_count)",
                  "{{kind}} {{step}}"),), "s"),
        Panel("Commands", "That agents have not finished.", (
            Query(latest("meridian_commands_open", "fleet, kind"), "{{fleet}} {{kind}}"),), "short"),
        Panel("Automation", "1 while it is frozen.", (
            Query("max(meridian_automation_frozen)", "frozen"),), "none", "stat", red_above=1),
        Panel("Audit log", "1 if it was as it was written when it was last verified.", (
            Query("min(meridian_audit_chain_ok)", "whole"),), "none", "stat", red_below=1),
    )),
    ("Snapshots", (
        Panel("Newest", "Version and lineage.", (
            Query("max(meridian_routing_snapshot_version)", "version"),
            Query("max(meridian_routing_lineage)", "lineage")), "none", "stat"),
        Panel("To every edge", "From commit to acknowledgement; the objective is 1 s.",
              percentiles("meridian_routing_propagation_seconds"), "s", red_above=1),
        Panel("Edges behind", "Versions that an edge has not put to use.", (
            Query(latest("meridian_routing_edge_behind_versions", "edge, region"), "{{region}} {{edge}}"),), "short",
              red_above=1),
    )),
    ("Control plane", (
        Panel("Requests", "By status.", (
            Query(rate("meridian_control_plane_requests_total", "status"), "{{status}}"),), "reqps"),
        Panel("Request duration, p99", "By route; long-polls take as long as they may.", (
            Query("histogram_quantile(0.99, sum by (le, route) "
                  "(rate(meridian_control_plane_request_duration_seconds_bucket[$__rate_interval])))", "{{route}}"),),
              "s"),
        Panel("Postgres", "1 while a replica can read it.", (
            Query("meridian_control_plane_database_up", "{{instance}}"),), "none", red_below=1),
        Panel("Jobs that wait for the worker", "By topic.", (
            Query(latest("meridian_outbox_rows", "topic"), "{{topic}}"),), "short"),
        Panel("Worker's tasks", "By task and result.", (
            Query(rate("meridian_worker_tasks_total", "task, result"), "{{task}} {{result}}"),), "ops"),
        Panel("Worker's last sign of life", "Seconds ago.", (
            Query("time() - max(meridian_worker_heartbeat_seconds)", "worker"),), "s", "stat", red_above=120),
    )),
))

USAGE = Board("meridian-usage", "Meridian: metering and money", "Is every request's record here, once, and soon.", (
    ("Records", (
        Panel("Frames by verdict", "What became of what edges shipped.", (
            Query(rate("meridian_usage_frames_total", "verdict"), "{{verdict}}"),), "ops"),
        Panel("Lag", "From a request's end to its record's being stored; the longest of each batch.",
              percentiles("meridian_usage_lag_seconds"), "s", red_above=60),
        Panel("Quarantine", "Frames that wait for a person.", (
            Query("max(meridian_usage_quarantine_frames)", "frames"),), "short", "stat", red_above=1),
        Panel("Open requests", "Announced, and without a record yet.", (
            Query("max(meridian_usage_open_requests)", "requests"),), "short"),
        Panel("Oldest open request", "How long it was announced ago.", (
            Query("max(meridian_usage_open_oldest_seconds)", "oldest"),), "s"),
        Panel("Not shipped", "Since all of an edge's records were with the control plane.", (
            Query("time() - (meridian_edge_all_shipped_timestamp_seconds > 0)", "{{instance}}"),), "s", red_above=600),
    )),
    ("Outboxes", (
        Panel("Outbox on disk", "Bytes by edge.", (Query("meridian_edge_outbox_bytes", "{{instance}}"),), "bytes"),
        Panel("Batches that were not stored", "By edge; they are sent again.", (
            Query(rate("meridian_edge_ship_failures_total", "instance"), "{{instance}}"),), "ops"),
        Panel("Refused or unsettled", "Frames that could not be written: the disk is full or broken.", (
            Query("increase(meridian_edge_outbox_refusals_total[$__rate_interval])", "refused {{instance}}"),
            Query("increase(meridian_edge_unsettled_requests_total[$__rate_interval])", "unsettled {{instance}}")),
              "short", red_above=1),
    )),
    ("Money", (
        Panel("Leased to edges", "The most that is spent before it is booked.", (
            Query("sum(meridian_edge_money_leased_nanodollars) / 1e9", "leased"),), "currencyUSD"),
        Panel("Asks for money", "By result.", (
            Query(rate("meridian_edge_money_lease_asks_total", "result"), "{{result}}"),), "ops"),
        Panel("Spent beyond what was leased", "Each dollar of it is a bug.", (
            Query("sum(increase(meridian_edge_money_overrun_nanodollars_total[$__rate_interval])) / 1e9", "overrun"),),
              "currencyUSD"),
    )),
))

CAPACITY = Board("meridian-capacity", "Meridian: capacity", "How much there is of each model, and how much it needs.", (
    ("Models", (
        Panel("Ready, peak, reserved", "Concurrent requests.", (
            Query(latest("meridian_capacity_ready_requests", "model", MODELS), "ready {{model}}"),
            Query(latest("meridian_capacity_peak_requests", "model", MODELS), "peak {{model}}"),
            Query(latest("meridian_capacity_reserved_requests", "model", MODELS), "reserved {{model}}")), "short",
              width=12),
        Panel("Headroom", "Beyond 1.2 times what is needed, in the tightest set of regions; below 0 is too little.", (
            Query(latest("meridian_capacity_headroom_requests", "model", MODELS), "{{model}}"),), "short", width=12,
              red_below=0),
    )),
    ("Planner", (
        Panel("Changes within the hour", "By model and direction.", (
            Query(latest("meridian_capacity_moves_last_hour", "model, direction", MODELS), "{{model}} {{direction}}"),),
              "short", width=12),
        Panel("Last plan", "How long ago.", (Query("max(meridian_capacity_plan_age_seconds)", "plan"),), "s", width=12),
    )),
    ("Deployments", (
        Panel("Inside the engines", "Requests by deployment.", (
            Query(latest("meridian_deployment_inflight_requests", "deployment", MODELS), "{{deployment}}"),), "short"),
        Panel("Queued", "Requests that an engine has not begun.", (
            Query(latest("meridian_deployment_queued_requests", "deployment", MODELS), "{{deployment}}"),), "short"),
        Panel("KV cache", "Share in use on the fullest worker.", (
            Query(latest("meridian_deployment_kv_usage_ratio", "deployment", MODELS), "{{deployment}}"),),
              "percentunit", red_above=0.9),
        Panel("Replicas wanted", "By deployment and role.", (
            Query(latest("meridian_pool_wanted_replicas", "deployment, role", MODELS), "{{deployment}} {{role}}"),),
              "short"),
        Panel("Replicas ready", "By deployment and role.", (
            Query(latest("meridian_pool_ready_replicas", "deployment, role", MODELS), "{{deployment}} {{role}}"),),
              "short"),
        Panel("Behind its specification", "Generations that are not in place.", (
            Query(latest("meridian_deployment_behind_generations", "deployment", MODELS), "{{deployment}}"),), "short"),
    )),
), narrowed_by=(("model", "meridian_model_routable_datacenters"),))

BOARDS = {"fleet": FLEET, "edges": EDGE, "operations": OPERATIONS, "usage": USAGE, "capacity": CAPACITY}

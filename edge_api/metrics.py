"""Every figure that the edge exposes to Prometheus, in one registry of its own. Labels are bounded sets: statuses,
datacenters of the snapshot, kinds of failure; never a key, a team or anything that a client sent.
"""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from control_plane.contracts.snapshot import Snapshot
from edge_api.tallies import Spread, Tally

EXPECTED_STATUSES = (200, 429, 500, 502, 503, 504)

TTFT_BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)

TOKEN_GAP_BUCKETS_S = (0.002, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.04, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 1.0)

SEAM_BUCKETS_S = (0.05, 0.1, 0.2, 0.35, 0.5, 0.75, 1.0, 1.5, 2.0, 3.5, 5.0, 10.0, 20.0, 30.0)


class Metrics:
    """Owns the registry. Names begin with `meridian_edge_`; durations are seconds, sizes bytes."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.answers = Tally(
            "meridian_edge_answers", "Answers on the hot path by HTTP status; 499: the client left.", "status",
            EXPECTED_STATUSES)
        self.ttft_s = Spread(
            "meridian_edge_first_byte_seconds", "From the request to the first byte of its answer.", TTFT_BUCKETS_S)
        self.token_gap_s = Spread(
            "meridian_edge_token_gap_seconds", "Mean time between two tokens of a stream that ended well.",
            TOKEN_GAP_BUCKETS_S)
        self.answered, self.first_byte, self.streamed = self.answers.add, self.ttft_s.add, self.token_gap_s.add
        for figures in (self.answers, self.ttft_s, self.token_gap_s):
            self.registry.register(figures)
        self._make_request_figures()
        self._make_routing_figures()
        self._make_metering_figures()
        self._make_control_figures()

    def text(self) -> bytes:
        """The exposition format."""
        return generate_latest(self.registry)

    def snapshot_in_use(self, snapshot: Snapshot) -> None:
        """This edge routes by this snapshot from now on. Its datacenters are told with 0, so that the first loss of one
        is seen as a rise."""
        self.snapshot_version.set(snapshot.version)
        self.snapshot_built_at_s.set(snapshot.built_at_s)
        for place in snapshot.datacenters:
            for counter in (self.losses, self.ejections):
                counter.labels(place.id)

    def upstream_failed(self, datacenter_id: str, kind: str) -> None:
        """An attempt in a datacenter failed."""
        self.upstream_failures.labels(datacenter_id, kind).inc()

    def retried(self) -> None:
        """A request goes to another datacenter."""
        self.retries.inc()

    def not_resumed(self, reason: str) -> None:
        """A broken stream could not go on."""
        self.resumes.labels(reason).inc()

    def resumed(self, gap_s: float) -> None:
        """A broken stream goes on elsewhere."""
        self.resumes.labels("resumed").inc()
        self.seam_gap_s.observe(gap_s)

    def broken(self) -> None:
        """An answer that had begun with 200 could not be finished."""
        self.broken_answers.inc()

    def unsettled(self) -> None:
        """A usage record could not be written; its `open` frame stays."""
        self.unsettled_requests.inc()

    def _make_request_figures(self) -> None:
        self.open_requests = Gauge(
            "meridian_edge_open_requests", "Requests open in a datacenter.", ["datacenter"], registry=self.registry)
        self.broken_answers = Counter(
            "meridian_edge_broken_answers_total", "Answers that began with 200 and ended with an error.",
            registry=self.registry)
        self.key_lookups = Counter(
            "meridian_edge_key_lookups_total",
            "Look-ups of keys that were not cached: found, unknown, limited, away.", ["result"], registry=self.registry)
        self.cached_keys = Gauge("meridian_edge_cached_keys", "Principals in the key cache.", registry=self.registry)
        self.called_answers = Counter(
            "meridian_edge_called_answers_total",
            "Answers that ended with tool calls: fine, wrong (bad JSON, no such tool, or not its schema), unjudged.",
            ["model", "datacenter", "verdict"], registry=self.registry)

    def _make_routing_figures(self) -> None:
        self.upstream_failures = Counter(
            "meridian_edge_upstream_failures_total", "Failed attempts by datacenter and kind.",
            ["datacenter", "kind"], registry=self.registry)
        self.retries = Counter(
            "meridian_edge_retries_total", "Requests sent to another datacenter.", registry=self.registry)
        self.resumes = Counter(
            "meridian_edge_resumes_total", "Streams that broke after their first event: resumed, or why not.",
            ["result"], registry=self.registry)
        self.seam_gap_s = Histogram(
            "meridian_edge_seam_gap_seconds", "From the break of a stream to its first new event.",
            buckets=SEAM_BUCKETS_S, registry=self.registry)
        self.ejections = Counter(
            "meridian_edge_ejections_total", "Datacenters ejected by this edge.", ["datacenter"],
            registry=self.registry)
        self.panics = Counter(
            "meridian_edge_panic_choices_total", "Choices that ignored ejections because too little was left.",
            registry=self.registry)
        self.probes = Counter(
            "meridian_edge_probes_total", "Probes of a datacenter's frontends: good, failed, refused, unfair.",
            ["datacenter", "result"], registry=self.registry)
        self.losses = Counter(
            "meridian_edge_losses_total", "Frontends of a datacenter that probes found lost.", ["datacenter"],
            registry=self.registry)
        self.rtt_s = Gauge(
            "meridian_edge_round_trip_seconds", "Round trip to a datacenter's frontend, smoothed.", ["datacenter"],
            registry=self.registry)

    def _make_metering_figures(self) -> None:
        self.unsettled_requests = Counter(
            "meridian_edge_unsettled_requests_total", "Requests whose usage record could not be written.",
            registry=self.registry)
        self.outbox_bytes = Gauge(
            "meridian_edge_outbox_bytes", "Bytes of usage in the outbox on disk.", registry=self.registry)
        self.outbox_refusals = Counter(
            "meridian_edge_outbox_refusals_total", "Frames that the outbox could not take.", registry=self.registry)
        self.outbox_quarantined = Counter(
            "meridian_edge_outbox_quarantined_total", "Stretches of the outbox that could not be read or shipped.",
            registry=self.registry)
        self.outbox_dropped_bytes = Counter(
            "meridian_edge_outbox_dropped_bytes_total",
            "Bytes of the oldest usage that an edge without a control plane deleted to stay within its bound.",
            registry=self.registry)
        self.shipped_frames = Counter(
            "meridian_edge_shipped_frames_total", "Usage frames by the control plane's verdict.",
            ["verdict"], registry=self.registry)
        self.all_shipped_at_s = Gauge(
            "meridian_edge_all_shipped_timestamp_seconds",
            "Unix time at which every usage record of this edge was last with the control plane.",
            registry=self.registry)
        self.ship_failures = Counter(
            "meridian_edge_ship_failures_total", "Batches that were not stored.", registry=self.registry)

    def _make_control_figures(self) -> None:
        self.snapshot_version = Gauge(
            "meridian_edge_snapshot_version", "Version of the snapshot in use.", registry=self.registry)
        self.snapshot_built_at_s = Gauge(
            "meridian_edge_snapshot_built_at_seconds", "Unix time at which the snapshot in use was built.",
            registry=self.registry)
        self.snapshots_refused = Counter(
            "meridian_edge_snapshots_refused_total", "Snapshots that this edge refused.", registry=self.registry)
        self.control_plane_away = Gauge(
            "meridian_edge_control_plane_away", "1 while the last poll of the control plane failed.",
            registry=self.registry)
        self.background_faults = Counter(
            "meridian_edge_background_faults_total", "Unexpected errors in a background task.",
            ["task"], registry=self.registry)

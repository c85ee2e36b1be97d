"""What admission exposes to Prometheus. Labels are bounded sets: kinds of refusal, states; never a key or a team."""

from prometheus_client import CollectorRegistry, Counter, Gauge


class AdmissionFigures:
    """Registers its figures in the edge's registry. Names begin with `meridian_edge_`."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.refusals = Counter(
            "meridian_edge_admission_refusals_total",
            "Requests not let in: rate, concurrency, too_large, funds, budget, money_away.", ["kind"],
            registry=registry)
        self.valkey_up = Gauge(
            "meridian_edge_valkey_up", "1 while limits are shared through Valkey; 0: by this edge's share alone.",
            registry=registry)
        self.valkey_losses = Counter(
            "meridian_edge_valkey_losses_total", "Times that Valkey did not answer in time.", registry=registry)
        self.valkey_calls = Counter(
            "meridian_edge_valkey_calls_total", "Scripts that were run in Valkey.", registry=registry)
        self.grants = Gauge("meridian_edge_admission_open_grants", "Requests let in and not over.", registry=registry)
        self.reaped = Counter(
            "meridian_edge_admission_reaped_total", "Grants that were never released: each one is a bug.",
            registry=registry)
        self.leases = Gauge("meridian_edge_money_leases", "Money leases that are not closed.", registry=registry)
        self.leased_nusd = Gauge(
            "meridian_edge_money_leased_nanodollars",
            "Sum of the money leases that are not closed: the most that is spent here before it is booked.",
            registry=registry)
        self.overrun_nusd = Counter(
            "meridian_edge_money_overrun_nanodollars_total", "Spent beyond what was reserved and leased.",
            registry=registry)
        self.lease_asks = Counter(
            "meridian_edge_money_lease_asks_total", "Asks for money: granted, refused, away.", ["result"],
            registry=registry)

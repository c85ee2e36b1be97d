"""What the capacity planner costs and saves on a month of made-up traffic, against capacity standing for the peak."""

from control_plane.capacity.observed import Policy
from tests.bench.harness import CLOCK, Figures
from tests.simulation.planner_traces import EVERY_MINUTES, MINUTES_A_DAY, Sum, World

NAME = "planner"
SUMMARY = "a month of traffic: swings (0), requests over capacity (< 0.01 %), GPU-hours against standing ones (< 60 %)"
OPTIONS = ("--large",)

DAYS = 30
TRACES, LARGE_TRACES = 5, 1_000
MAX_SHORT, MAX_GPU_HOURS = 0.0001, 0.6


def main(large: bool = False) -> Figures:
    """Runs traces from seed 0 on; 1,000 with `--large`."""
    total, faulty = Sum(), 0
    began_s = CLOCK.monotonic_s()
    for seed in range(LARGE_TRACES if large else TRACES):
        found = World(seed, DAYS).run()
        total.add(found)
        faulty += bool(found.faults)
    plans = total.traces * DAYS * MINUTES_A_DAY // EVERY_MINUTES
    return {
        "traces": total.traces, "moves_a_day": round(total.moves / total.traces / DAYS, 1), "swings": total.swings,
        "faulty_traces": faulty, "minutes_over_capacity_percent": round(100 * total.short_minute_share, 5),
        "requests_over_capacity_percent": round(100 * total.short_request_share, 5),
        "gpu_hours_percent_of_standing": round(100 * total.gpu_hour_share, 1),
        "spare_datacenters": Policy().spare_datacenters,
        "plan_and_minutes_ms": round(1_000 * (CLOCK.monotonic_s() - began_s) / plans, 3),
        "within": not faulty and total.short_request_share < MAX_SHORT and total.gpu_hour_share < MAX_GPU_HOURS}

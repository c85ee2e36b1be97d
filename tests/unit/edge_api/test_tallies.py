"""Counters of the hot path: what they expose is what a Prometheus counter and histogram would."""

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.registry import Collector

from edge_api.tallies import Spread, Tally

BOUNDS = (0.1, 0.5, 2.0)
VALUES = (0.0, 0.1, 0.2, 0.5, 1.9, 2.0, 2.1, 100.0)


def exposed(collector: Collector) -> list[str]:
    """The samples in exposition form, without the times at which Prometheus' own metrics were made."""
    registry = CollectorRegistry()
    registry.register(collector)
    lines = generate_latest(registry).decode().splitlines()
    return sorted(line for line in lines if "_created" not in line)


def test_a_tally_looks_like_a_counter() -> None:
    ours, theirs = Tally("answers", "Answers.", "status"), Counter("answers", "Answers.", ["status"], registry=None)
    for status in (200, 200, 429, 200):
        ours.add(status)
        theirs.labels(status).inc()
    assert exposed(ours) == exposed(theirs)


def test_a_tally_that_counted_nothing_has_no_samples() -> None:
    assert not [line for line in exposed(Tally("answers", "Answers.", "status")) if not line.startswith("#")]


def test_a_spread_looks_like_a_histogram() -> None:
    ours, theirs = Spread("wait_s", "Wait.", BOUNDS), Histogram("wait_s", "Wait.", buckets=BOUNDS, registry=None)
    for value in VALUES:
        ours.add(value)
        theirs.observe(value)
    assert exposed(ours) == exposed(theirs)


def test_a_value_at_a_bound_belongs_below_it() -> None:
    spread = Spread("wait_s", "Wait.", BOUNDS)
    spread.add(0.5)
    assert 'wait_s_bucket{le="0.5"} 1.0' in exposed(spread)
    assert 'wait_s_bucket{le="0.1"} 0.0' in exposed(spread)


def test_what_is_read_does_not_change_what_is_counted() -> None:
    tally = Tally("answers", "Answers.", "status")
    tally.add(200)
    assert exposed(tally) == exposed(tally)

"""Samples of a table in Prometheus' form."""

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from control_plane.contracts.figures import Figure, FigureKind, Sample, counter, families, gauge

WEIGHT = gauge("weight", "How heavy.", "place")
ENDED = counter("ended", "How many ended.")
STEP_S = Figure("meridian_step_seconds", FigureKind.SUMMARY, ("step",), "How long.")


class Given(Collector):
    """Samples that a test gives."""

    def __init__(self, *samples: Sample) -> None:
        self.samples = samples

    def collect(self) -> list[Metric]:
        return list(families(self.samples))


def lines(*samples: Sample) -> list[str]:
    registry = CollectorRegistry()
    registry.register(Given(*samples))
    return generate_latest(registry).decode().splitlines()


def test_a_gauge_has_a_line_for_each_sample_under_one_head() -> None:
    assert lines(Sample(WEIGHT, ("a",), 1), Sample(ENDED, (), 2), Sample(WEIGHT, ("b",), 0.5)) == [
        "# HELP meridian_weight How heavy.", "# TYPE meridian_weight gauge",
        'meridian_weight{place="a"} 1.0', 'meridian_weight{place="b"} 0.5',
        "# HELP meridian_ended_total How many ended.", "# TYPE meridian_ended_total counter",
        "meridian_ended_total 2.0"]


def test_a_summary_has_its_count_and_its_sum() -> None:
    assert lines(Sample(STEP_S, ("open",), 12.5, 3))[2:] == [
        'meridian_step_seconds_count{step="open"} 3.0', 'meridian_step_seconds_sum{step="open"} 12.5']


def test_a_figure_without_samples_is_absent() -> None:
    assert lines() == []


def test_label_values_are_escaped() -> None:
    assert lines(Sample(WEIGHT, ('a"b\\\n',), 1))[2] == 'meridian_weight{place="a\\"b\\\\\\n"} 1.0'

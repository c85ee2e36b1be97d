"""Figures that a process reads when Prometheus asks, rather than counts as it goes: tables of names, and samples."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric, SummaryMetricFamily


class FigureKind(StrEnum):
    """Prometheus' types. A summary has a count and a sum."""

    COUNTER = "counter"
    GAUGE = "gauge"
    SUMMARY = "summary"


@dataclass(frozen=True, slots=True)
class Figure:
    """A metric's name (without `_total`), type, labels and meaning."""

    name: str
    kind: FigureKind
    labels: tuple[str, ...]
    meaning: str


@dataclass(frozen=True, slots=True)
class Sample:
    """One value of a figure; `labels` in the figure's order, `count` of summaries only."""

    figure: Figure
    labels: tuple[str, ...]
    value: float
    count: int = 0


def gauge(name: str, meaning: str, *labels: str) -> Figure:
    """A value that goes up and down."""
    return Figure(f"meridian_{name}", FigureKind.GAUGE, labels, meaning)


def counter(name: str, meaning: str, *labels: str) -> Figure:
    """A count that only grows."""
    return Figure(f"meridian_{name}", FigureKind.COUNTER, labels, meaning)


def families(samples: Iterable[Sample]) -> Iterator[Metric]:
    """The samples in Prometheus' form, one family a figure that has any."""
    found: dict[Figure, list[Sample]] = {}
    for sample in samples:
        found.setdefault(sample.figure, []).append(sample)
    for figure, mine in found.items():
        yield _family(figure, mine)


def _family(figure: Figure, samples: Iterable[Sample]) -> Metric:
    if figure.kind is FigureKind.SUMMARY:
        summary = SummaryMetricFamily(figure.name, figure.meaning, labels=figure.labels)
        for sample in samples:
            summary.add_metric(sample.labels, sample.count, sample.value)
        return summary
    kind = CounterMetricFamily if figure.kind is FigureKind.COUNTER else GaugeMetricFamily
    family = kind(figure.name, figure.meaning, labels=figure.labels)
    for sample in samples:
        family.add_metric(list(sample.labels), sample.value)
    return family

"""Counters of the hot path: plain numbers that one event loop writes, put into Prometheus' form when they are read.

A counter of prometheus_client takes a lock and looks its labels up each time: more than a request's routing costs.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector


class Tally(Collector):
    """Counts by one label. Those that are `expected` are told from the start, so that their first rise is seen."""

    def __init__(self, name: str, documentation: str, label: str, expected: Iterable[int] = ()) -> None:
        self._name, self._documentation, self.labels = name, documentation, (label,)
        self.counts: dict[int, int] = dict.fromkeys(expected, 0)

    def add(self, value: int) -> None:
        """One more of `value`."""
        counts = self.counts
        counts[value] = counts.get(value, 0) + 1

    def describe(self) -> list[CounterMetricFamily]:
        return [CounterMetricFamily(self._name, self._documentation, labels=self.labels)]

    def collect(self) -> Iterator[CounterMetricFamily]:
        family = CounterMetricFamily(self._name, self._documentation, labels=self.labels)
        for value, count in list(self.counts.items()):
            family.add_metric([str(value)], count)
        yield family


class Spread(Collector):
    """How values spread over buckets, each named by its upper bound, which belongs to it."""

    def __init__(self, name: str, documentation: str, bounds: Sequence[float]) -> None:
        self._name, self._documentation, self._bounds = name, documentation, bounds
        self.labels: tuple[str, ...] = ()
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def add(self, value: float) -> None:
        """One more value."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def describe(self) -> list[HistogramMetricFamily]:
        return [HistogramMetricFamily(self._name, self._documentation)]

    def collect(self) -> Iterator[HistogramMetricFamily]:
        names = [*(str(float(bound)) for bound in self._bounds), "+Inf"]
        buckets = list(zip(names, accumulate(self._counts), strict=True))
        family = HistogramMetricFamily(self._name, self._documentation)
        family.add_metric([], buckets, self._sum)
        yield family

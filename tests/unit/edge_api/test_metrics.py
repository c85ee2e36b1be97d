"""What the edge tells Prometheus before anything happened: a rise is only seen from a value that was there."""

import asyncio

import pytest

from edge_api.background import running
from edge_api.metrics import Metrics
from tests.unit.edge_api.builders import snapshot


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(name, labels)


def test_the_datacenters_of_the_snapshot_in_use_are_told_with_0() -> None:
    metrics, used = Metrics(), snapshot()
    assert value(metrics, "meridian_edge_losses_total", datacenter=used.datacenters[0].id) is None
    metrics.snapshot_in_use(used)
    for place in used.datacenters:
        assert value(metrics, "meridian_edge_losses_total", datacenter=place.id) == 0
        assert value(metrics, "meridian_edge_ejections_total", datacenter=place.id) == 0
    assert value(metrics, "meridian_edge_snapshot_version") == used.version
    assert value(metrics, "meridian_edge_snapshot_built_at_seconds") == used.built_at_s


def test_a_new_snapshot_leaves_what_was_counted() -> None:
    metrics, used = Metrics(), snapshot()
    place = used.datacenters[0].id
    metrics.snapshot_in_use(used)
    metrics.losses.labels(place).inc()
    metrics.snapshot_in_use(used.model_copy(update={"version": used.version + 1}))
    assert value(metrics, "meridian_edge_losses_total", datacenter=place) == 1


@pytest.mark.parametrize("status", ["200", "429", "500", "502", "503", "504"])
def test_statuses_that_objectives_look_at_are_told_with_0(status: str) -> None:
    assert value(Metrics(), "meridian_edge_answers_total", status=status) == 0


async def test_background_tasks_are_told_with_0() -> None:
    metrics = Metrics()
    async with running({"ship": asyncio.Event().wait}, metrics):  # type: ignore[dict-item]
        assert value(metrics, "meridian_edge_background_faults_total", task="ship") == 0

"""What processes expose, as Prometheus' own linter sees it: names, types, suffixes and help."""

import subprocess

import pytest
from prometheus_client import REGISTRY, CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

import control_plane.metrics
from control_plane.contracts.figures import Figure, Sample, families
from control_plane.watch import figures as fleet
from edge_api.admission.figures import AdmissionFigures
from edge_api.metrics import Metrics
from edge_api.override.board import Figures as OverrideFigures
from fleet_agent import figures as agent
from tests.unit.infra.prometheus.promtool import DEADLINE_S, program


class OfATable(Collector):
    """One sample of each figure of a table."""

    def __init__(self, table: tuple[Figure, ...]) -> None:
        self.table = table

    def collect(self) -> list[Metric]:
        return list(families(Sample(figure, tuple("x" for _ in figure.labels), 1.0, 1) for figure in self.table))


def edge_text() -> str:
    metrics = Metrics()
    AdmissionFigures(metrics.registry)
    OverrideFigures(metrics.registry)
    metrics.upstream_failed("us-east-1", "refused")
    return metrics.text().decode()


def replica_text() -> str:
    assert control_plane.metrics.REQUESTS  # importing it registered all of them
    return generate_latest(REGISTRY).decode()


def table_text(table: tuple[Figure, ...]) -> str:
    registry = CollectorRegistry()
    registry.register(OfATable(table))
    return generate_latest(registry).decode()


def lint(text: str) -> str:
    done = subprocess.run([program(), "check", "metrics"], input=text, capture_output=True, text=True,
                          timeout=DEADLINE_S, check=False)
    return done.stdout + done.stderr


@pytest.mark.parametrize("text", [
    edge_text(), replica_text(), table_text(fleet.FIGURES), table_text(agent.FIGURES)],
    ids=["edge", "control plane", "fleet", "agent"])
def test_the_linter_finds_nothing(text: str) -> None:
    assert "meridian_" in text
    assert lint(text) == ""


def test_the_linter_would_say_so() -> None:
    wrong = "# HELP lag_milliseconds How late.\n# TYPE lag_milliseconds gauge\nlag_milliseconds 1\n"
    assert "lag_milliseconds" in lint(wrong)

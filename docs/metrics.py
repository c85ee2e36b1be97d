"""The page of metrics, made from the processes' own registries: every name, its type, labels and meaning, and which
alerts look at it."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import yaml
from prometheus_client.metrics import MetricWrapperBase

from control_plane import metrics as control_plane
from control_plane.watch.figures import FIGURES
from edge_api.admission.figures import AdmissionFigures
from edge_api.metrics import Metrics
from edge_api.override.board import Figures as OverrideFigures
from edge_api.tallies import Spread, Tally
from fleet_agent import figures as agent

RULES = Path(__file__).parent.parent / "infra" / "prometheus" / "rules"
SUFFIXES = {"counter": ("_total",), "gauge": ("",), "summary": ("_count", "_sum"),
            "histogram": ("_bucket", "_count", "_sum")}
NAME = re.compile(r"\bmeridian_[a-z0-9_]+\b")


@dataclass(frozen=True, slots=True)
class Described:
    """One metric as its page shows it; `name` without the suffixes that its type adds."""

    name: str
    kind: str
    labels: tuple[str, ...]
    meaning: str

    @property
    def exposed(self) -> tuple[str, ...]:
        """The names that Prometheus sees."""
        return tuple(self.name + suffix for suffix in SUFFIXES[self.kind])


def sections() -> Iterator[tuple[str, str, list[Described]]]:
    """Each process, what is to be known of its figures, and the figures."""
    edge = Metrics()
    parts = (edge, AdmissionFigures(edge.registry), OverrideFigures(edge.registry))
    yield ("Edge", "Of one process; sum over edges.",
           _of_objects(one for part in parts for one in vars(part).values()))
    yield ("Control plane and worker", "Of one process; sum over replicas.",
           _of_objects(vars(control_plane).values()))
    yield ("The fleet, as the control plane's database has it",
           "Every replica tells the same: take `max`, never `sum`, over replicas. They are absent while Postgres is "
           "away, and what nobody observed is absent, never 0.",
           [Described(one.name, one.kind.value, one.labels, one.meaning) for one in FIGURES])
    yield ("Fleet agent", "Of one process.",
           [Described(one.name, one.kind, one.labels, one.meaning) for one in agent.FIGURES])


def known_metrics() -> set[str]:
    """Every name that some process of ours exposes."""
    return {name for _, _, found in sections() for one in found for name in one.exposed}


def metrics_page(heading: str) -> str:
    """The page; `heading` is what every generated page begins with."""
    used = _alerts_by_metric()
    parts = ["# Metrics", heading,
             "Every process answers `/metrics` in Prometheus' text format. `infra/prometheus/` has what to scrape and "
             "alert rules, `infra/grafana/` dashboards, [runbooks](runbooks/README.md) say what to do. Durations are "
             "seconds, money is nano-dollars. No label holds a team, a key, a request or anything that a client "
             "sent. A counter's name ends with `_total`, a histogram has `_bucket`, `_count` and `_sum`."]
    for title, note, found in sections():
        rows = "\n".join(_row(one, used) for one in found)
        parts += [f"## {title}", note,
                  f"| Name | Type | Labels | Meaning | Alerts |\n| --- | --- | --- | --- | --- |\n{rows}"]
    return "\n\n".join(parts) + "\n"


def _row(one: Described, used: dict[str, list[str]]) -> str:
    alerts = dict.fromkeys(alert for name in one.exposed for alert in used.get(name, ()))
    name = one.name + ("_total" if one.kind == "counter" else "")
    labels = ", ".join(f"`{label}`" for label in one.labels)
    return f"| `{name}` | {one.kind} | {labels} | {one.meaning} | {', '.join(alerts)} |"


def _alerts_by_metric() -> dict[str, list[str]]:
    """Which alerts look at a metric, by its exposed name; recorded series count as what they are made of."""
    rules = [rule for path in sorted(RULES.glob("*.yml")) for group in yaml.safe_load(path.read_text())["groups"]
             for rule in group["rules"]]
    recorded = {rule["record"]: rule["expr"] for rule in rules if "record" in rule}
    used: dict[str, list[str]] = {}
    for rule in rules:
        if "alert" in rule:
            made_of = [rule["expr"], *(expr for name, expr in recorded.items() if name in rule["expr"])]
            for name in {name for expr in made_of for name in NAME.findall(expr)}:
                used.setdefault(name, []).append(rule["alert"])
    return used


def _of_objects(objects: Iterable[object]) -> list[Described]:
    """The metrics among these objects, in the order in which they were made."""
    return [_described(one) for one in objects if isinstance(one, MetricWrapperBase | Tally | Spread)]


def _described(one: MetricWrapperBase | Tally | Spread) -> Described:
    [family] = one.describe()
    labels = one.labels if isinstance(one, Tally | Spread) else one._labelnames
    return Described(family.name, family.type, tuple(labels), family.documentation)

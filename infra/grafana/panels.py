"""Rows of panels in, Grafana's JSON out. Pure: the same definitions make the same bytes."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

COLUMNS = 24
SCHEMA_VERSION = 39
UNKNOWN = "\N{EN DASH}"
SOURCE = {"type": "prometheus", "uid": "${datasource}"}


@dataclass(frozen=True, slots=True)
class Query:
    """A PromQL expression, and what its series are called in the legend."""

    expr: str
    legend: str = ""


@dataclass(frozen=True, slots=True)
class Panel:
    """One figure. `unit` is Grafana's name of it, `width` in columns of 24, `red_above` and `red_below` the values that
    somebody should look at."""

    title: str
    meaning: str
    queries: tuple[Query, ...]
    unit: str
    kind: str = "timeseries"
    width: int = 8
    height: int = 7
    red_above: float | None = None
    red_below: float | None = None


@dataclass(frozen=True, slots=True)
class Board:
    """A dashboard: rows with a title, and the label by which it can be narrowed."""

    uid: str
    title: str
    meaning: str
    rows: tuple[tuple[str, tuple[Panel, ...]], ...]
    narrowed_by: tuple[tuple[str, str], ...] = ()
    """Variables: a label, and the metric whose values of it may be chosen."""


def text(board: Board) -> str:
    """The dashboard as its file."""
    return json.dumps(document(board), indent=2) + "\n"


def document(board: Board) -> dict[str, Any]:
    """The dashboard as Grafana takes it."""
    return {
        "uid": board.uid, "title": board.title, "description": board.meaning, "tags": ["meridian"],
        "schemaVersion": SCHEMA_VERSION, "version": 1, "editable": True, "graphTooltip": 1, "refresh": "30s",
        "timezone": "utc", "time": {"from": "now-6h", "to": "now"},
        "templating": {"list": [_source_variable(), *(_variable(*one) for one in board.narrowed_by)]},
        "panels": _placed(board.rows)}


def _placed(rows: Sequence[tuple[str, tuple[Panel, ...]]]) -> list[dict[str, Any]]:
    """Panels from left to right, a new line when one is full; each row begins with its title."""
    made: list[dict[str, Any]] = []
    y = 0
    for title, panels in rows:
        made.append({"id": len(made) + 1, "type": "row", "title": title, "collapsed": False, "panels": [],
                     "gridPos": {"x": 0, "y": y, "w": COLUMNS, "h": 1}})
        x, y, line = 0, y + 1, 0
        for panel in panels:
            if x + panel.width > COLUMNS:
                x, y, line = 0, y + line, 0
            made.append({"id": len(made) + 1, "gridPos": {"x": x, "y": y, "w": panel.width, "h": panel.height},
                         **_panel(panel)})
            x, line = x + panel.width, max(line, panel.height)
        y += line
    return made


def _panel(panel: Panel) -> dict[str, Any]:
    stat = {"reduceOptions": {"calcs": ["lastNotNull"]}, "colorMode": "value", "textMode": "auto"}
    series = {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi", "sort": "desc"}}
    return {
        "type": panel.kind, "title": panel.title, "description": panel.meaning, "datasource": SOURCE,
        "targets": [{"refId": chr(ord("A") + index), "datasource": SOURCE, "expr": query.expr,
                     "legendFormat": query.legend or "__auto"} for index, query in enumerate(panel.queries)],
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": None if panel.red_below is not None else 0,
                                     "noValue": UNKNOWN, "thresholds": _thresholds(panel)}, "overrides": []},
        "options": stat if panel.kind == "stat" else series}


def _thresholds(panel: Panel) -> dict[str, Any]:
    steps: list[dict[str, Any]] = [{"color": "green", "value": None}]
    if panel.red_below is not None:
        steps = [{"color": "red", "value": None}, {"color": "green", "value": panel.red_below}]
    if panel.red_above is not None:
        steps.append({"color": "red", "value": panel.red_above})
    return {"mode": "absolute", "steps": steps}


def _source_variable() -> dict[str, Any]:
    return {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus", "hide": 0}


def _variable(label: str, metric: str) -> dict[str, Any]:
    query = f"label_values({metric}, {label})"
    return {"name": label, "label": label, "type": "query", "datasource": SOURCE, "definition": query,
            "query": {"query": query, "refId": "values"}, "includeAll": True, "allValue": ".*", "multi": True,
            "current": {"text": "All", "value": "$__all"}, "refresh": 2, "sort": 1, "hide": 0}

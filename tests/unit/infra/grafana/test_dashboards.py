"""Dashboards: whole, drawn without overlaps, and asking only for what is there."""

import itertools
import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from docs.metrics import known_metrics
from infra.grafana import __main__ as writer
from infra.grafana.boards import BOARDS
from infra.grafana.panels import Board, Panel, Query, document
from tests.unit.infra.grafana.schema import DASHBOARD
from tests.unit.infra.prometheus.promtool import check_expressions, rule_files

FILES = sorted(writer.DASHBOARDS.glob("*.json"))
PROVISIONING = writer.DASHBOARDS.parent / "provisioning"
NAME = re.compile(r"\b(meridian_[a-z0-9_]+)\b")
RECORDED = re.compile(r"\b(meridian:[a-z0-9_:]+)\b")
VARIABLE = re.compile(r"\$(\w+)")
BUILT_IN = {"__rate_interval", "__all"}


def read(path: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(path.read_text())
    return loaded


def expressions(dashboard: dict[str, Any]) -> list[str]:
    return [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", [])]


def as_prometheus_gets_it(expression: str) -> str:
    return VARIABLE.sub(".*", expression.replace("$__rate_interval", "5m"))


def overlap(one: dict[str, int], other: dict[str, int]) -> bool:
    return (one["x"] < other["x"] + other["w"] and other["x"] < one["x"] + one["w"]
            and one["y"] < other["y"] + other["h"] and other["y"] < one["y"] + one["h"])


def test_the_files_are_what_the_definitions_say() -> None:
    assert writer.main(["--check"]) == 0, "run ./dev docs"
    assert {path.stem for path in FILES} == set(BOARDS)


def test_a_stale_file_is_found_named_and_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                 capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(writer, "DASHBOARDS", tmp_path)
    assert writer.main(["--check"]) == 1
    assert "fleet.json is stale" in capsys.readouterr().err
    assert writer.main([]) == 0
    assert writer.main(["--check"]) == 0


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_dashboard_is_what_grafana_reads(path: Path) -> None:
    faults = sorted(error.json_path + ": " + error.message for error in Draft202012Validator(DASHBOARD).iter_errors(
        read(path)))
    assert faults == []


@pytest.mark.parametrize(("part", "value"), [
    ("uid", "other"), ("panels", []), ("templating", {"list": []}), ("refresh", "often"), ("schemaVersion", 1)])
def test_the_schema_finds_what_is_wrong(part: str, value: object) -> None:
    wrong = document(BOARDS["fleet"]) | {part: value}
    assert list(Draft202012Validator(DASHBOARD).iter_errors(wrong))


def test_the_schema_finds_a_panel_without_a_unit() -> None:
    wrong = document(BOARDS["fleet"])
    wrong["panels"][1]["fieldConfig"]["defaults"]["unit"] = "furlongs"
    assert list(Draft202012Validator(DASHBOARD).iter_errors(wrong))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_no_two_panels_overlap_or_share_an_id(path: Path) -> None:
    panels = read(path)["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    assert [(one["title"], other["title"]) for one, other in itertools.combinations(panels, 2)
            if overlap(one["gridPos"], other["gridPos"])] == []
    assert all(panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24 for panel in panels)


def test_panels_flow_into_lines_below_their_rows_title() -> None:
    panel = Panel("P", "Meaning.", (Query("up"),), "short", width=10)
    places = [made["gridPos"] for made in document(Board("meridian-x", "Meridian: x", "x", (
        ("One", (panel, panel, panel)), ("Two", (panel,)))))["panels"]]
    assert [(place["x"], place["y"]) for place in places] == [(0, 0), (0, 1), (10, 1), (0, 8), (0, 15), (0, 16)]


def test_dashboards_have_different_names() -> None:
    assert len({read(path)["uid"] for path in FILES}) == len({read(path)["title"] for path in FILES}) == len(FILES)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_dashboards_ask_only_for_what_exists(path: Path) -> None:
    dashboard = read(path)
    recorded = {rule["record"] for file in rule_files() for group in yaml.safe_load(file.read_text())["groups"]
                for rule in group["rules"] if "record" in rule}
    asked = [*expressions(dashboard), *(one.get("definition", "") for one in dashboard["templating"]["list"])]
    assert {name for one in asked for name in NAME.findall(one)} - known_metrics() == set()
    assert {name for one in asked for name in RECORDED.findall(one)} - recorded == set()
    variables = {one["name"] for one in dashboard["templating"]["list"]} | BUILT_IN
    assert {name for one in asked for name in VARIABLE.findall(one)} - variables == set()


def test_every_expression_is_promql(tmp_path: Path) -> None:
    asked = [as_prometheus_gets_it(one) for path in FILES for one in expressions(read(path))]
    assert len(asked) > 50
    assert check_expressions(tmp_path, asked) == ""


def test_an_expression_that_is_no_promql_is_told(tmp_path: Path) -> None:
    assert "parse error" in check_expressions(tmp_path, ["sum by (x (up)"])


def test_grafana_is_told_where_prometheus_and_the_dashboards_are() -> None:
    [source] = yaml.safe_load((PROVISIONING / "datasources" / "meridian.yml").read_text())["datasources"]
    assert (source["type"], source["access"]) == ("prometheus", "proxy")
    [provider] = yaml.safe_load((PROVISIONING / "dashboards" / "meridian.yml").read_text())["providers"]
    assert provider["type"] == "file"
    assert provider["options"]["path"].endswith("/meridian")

"""Alert rules: right to promtool, each seen to fire and to be quiet, each with a page that says what to do."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from docs.metrics import known_metrics
from tests.unit.infra.prometheus import cases
from tests.unit.infra.prometheus.promtool import Case, check_cases, rule_files, run

ROOT = Path(__file__).parents[4]
METRIC = re.compile(r"\b(meridian_[a-z0-9_]+)\b")


def rules() -> list[dict[str, Any]]:
    return [rule for path in rule_files() for group in yaml.safe_load(path.read_text())["groups"]
            for rule in group["rules"]]


def alerts() -> list[dict[str, Any]]:
    return [rule for rule in rules() if "alert" in rule]


def test_promtool_finds_nothing_wrong() -> None:
    done = run("check", "rules", *map(str, rule_files()))
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_fires_when_it_should_and_only_then(tmp_path: Path) -> None:
    assert check_cases(tmp_path, cases.CASES) == ""


def test_no_objective_is_judged_without_traffic(tmp_path: Path) -> None:
    at, series = cases.FALLEN_SILENT
    names = [rule["alert"] for rule in alerts() if "budget" in rule["alert"].lower()]
    assert check_cases(tmp_path, [Case(name, series, at, fires=False) for name in names]) == ""


def test_a_case_that_does_not_hold_is_told(tmp_path: Path) -> None:
    at, fires, _ = cases.ALERTS["AgentSilent"]
    assert "AgentSilent" in check_cases(tmp_path, [Case("AgentSilent", fires, at, fires=False)])


def test_every_alert_has_its_cases_and_one_name() -> None:
    names = [rule["alert"] for rule in alerts()]
    assert len(names) == len(set(names))
    assert set(names) == set(cases.ALERTS)


@pytest.mark.parametrize("alert", alerts(), ids=lambda alert: str(alert["alert"]))
def test_an_alert_says_how_bad_it_is_what_it_is_and_what_to_do(alert: dict[str, Any]) -> None:
    assert alert["labels"]["severity"] in ("page", "ticket")
    words = alert["annotations"]
    assert set(words) == {"summary", "description", "runbook_url"}
    assert len(words["summary"]) <= 100
    assert not words["summary"].endswith(".")
    assert words["description"].endswith(".")
    assert re.fullmatch(r"docs/runbooks/[a-z-]+\.md", words["runbook_url"])
    assert (ROOT / words["runbook_url"]).is_file()


def test_rules_name_only_metrics_that_exist() -> None:
    known = known_metrics()
    named = {name for rule in rules() for name in METRIC.findall(rule["expr"])}
    assert named - known == set()

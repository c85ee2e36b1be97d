"""Prometheus' own checker, and how tests ask it what rules do with series."""

import json
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

RULES = Path(__file__).parents[4] / "infra" / "prometheus" / "rules"
DEADLINE_S = 60.0

Series = Mapping[str, str]
"""Series and their values in promtool's short form: `{"up{job=\"x\"}": "1x10"}`; a step between two values."""


@dataclass(frozen=True, slots=True)
class Case:
    """What Prometheus sees, at which steps, when it is asked, and whether the alert fires then."""

    alert: str
    series: Series
    at: str
    fires: bool
    step: str = "1m"


def rule_files() -> list[Path]:
    """Every file of rules."""
    return sorted(RULES.glob("*.yml"))


def program() -> str:
    """Where promtool is; a machine without it skips the test."""
    found = shutil.which("promtool")
    if found is None:
        pytest.skip("promtool is not installed (Debian's package prometheus has it)")
    return found


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs promtool."""
    return subprocess.run([program(), *arguments], capture_output=True, text=True, timeout=DEADLINE_S, check=False)


def file_of(alert: str) -> Path:
    """The file that holds an alert."""
    [found] = [path for path in rule_files() if f"- alert: {alert}\n" in path.read_text()]
    return found


def check_cases(place: Path, cases: Sequence[Case]) -> str:
    """What promtool has to say against the cases; empty when all came out as told."""
    said = ""
    for file, step in sorted({(file_of(case.alert), case.step) for case in cases}):
        document = {"rule_files": [str(file)], "evaluation_interval": step, "group_eval_order": _groups(file),
                    "tests": [_test(case) for case in cases if (file_of(case.alert), case.step) == (file, step)]}
        asked = place / f"{file.stem}-{step}.json"  # JSON is YAML, too
        asked.write_text(json.dumps(document))
        done = run("test", "rules", str(asked))
        said += "" if done.returncode == 0 else done.stdout + done.stderr
    return said


def check_expressions(place: Path, expressions: Sequence[str]) -> str:
    """What is wrong with the expressions as PromQL; empty if nothing is."""
    rules = [{"record": f"checked:{number}:expression", "expr": one} for number, one in enumerate(expressions)]
    file = place / "expressions.json"
    file.write_text(json.dumps({"groups": [{"name": "expressions", "rules": rules}]}))
    done = run("check", "rules", str(file))
    return "" if done.returncode == 0 else done.stdout + done.stderr


def _groups(file: Path) -> list[str]:
    return [group["name"] for group in yaml.safe_load(file.read_text())["groups"]]


def _test(case: Case) -> dict[str, Any]:
    firing = f'count(ALERTS{{alertname="{case.alert}", alertstate="firing"}}) > 0'
    return {
        "name": f"{case.alert} {'fires' if case.fires else 'is quiet'}", "interval": case.step,
        "input_series": [{"series": name, "values": values} for name, values in case.series.items()],
        "promql_expr_test": [{"expr": f"({firing}) * 0", "eval_time": case.at,
                              "exp_samples": [{"labels": "{}", "value": 0}] if case.fires else []}]}

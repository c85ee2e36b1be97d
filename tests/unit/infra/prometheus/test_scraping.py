"""What a Prometheus beside the local stack is told."""

import json
import re
from pathlib import Path

import yaml

from infra.local.shape import Shape
from infra.prometheus.scraping import configuration
from tests.unit.infra.prometheus.promtool import rule_files, run

SHAPE = Shape(8700, datacenter_count=2, edge_count=2, replica_count=2, engine="sim")
EXAMPLE = Path(__file__).parents[4] / "infra" / "prometheus" / "prometheus.yml"


def jobs() -> dict[str, list[str]]:
    read = json.loads(configuration(SHAPE))
    return {job["job_name"]: job["static_configs"][0]["targets"] for job in read["scrape_configs"]}


def test_every_process_of_the_stack_is_scraped() -> None:
    assert jobs() == {
        "meridian-edge": ["127.0.0.1:8700", "127.0.0.1:8701"],
        "meridian-control-plane": ["127.0.0.1:8710", "127.0.0.1:8711"],
        "meridian-worker": ["127.0.0.1:8722"], "meridian-agent": ["127.0.0.1:8802", "127.0.0.1:8902"],
        "dynamo-frontend": ["127.0.0.1:8800", "127.0.0.1:8900"]}


def test_the_jobs_are_those_of_the_example_and_of_the_rules() -> None:
    example = {job["job_name"] for job in yaml.safe_load(EXAMPLE.read_text())["scrape_configs"]}
    assert set(jobs()) == example
    named = {name for path in rule_files() for name in re.findall(r'job="([^"]+)"', path.read_text())}
    assert named
    assert named <= example


def test_prometheus_would_take_both(tmp_path: Path) -> None:
    local = tmp_path / "prometheus.yml"
    local.write_text(configuration(SHAPE))
    for path in (local, EXAMPLE):
        done = run("check", "config", str(path))
        assert done.returncode == 0, done.stdout + done.stderr
        assert f"{len(rule_files())} rule files found" in done.stdout

"""Models on the status screen: what they hold and how they are served, and what nobody knows."""

from typing import Any

import pytest

from control_plane.cli.models import capacity_sheet, quality_sheet
from control_plane.contracts.operator import ModelStatus, Quality
from tests.unit.control_plane.cli.conftest import Meridian
from tests.unit.control_plane.cli.servers import OperatorServer
from tests.unit.control_plane.cli.test_status import shown, view

SERVED = Quality(ttft_p50_s=0.123, ttft_p90_s=0.35, ttft_p99_s=1.2, itl_p50_s=0.0112, itl_p90_s=0.02, uptime_5m=100.0,
                 uptime_30m=99.999, uptime_1d=98.2)


def model(**changes: Any) -> ModelStatus:
    return ModelStatus(**{"model": "sim/glm-5.3", "region": None, "serving": 2, "holding": 2, "ready": 1_256,
                          "peak": 14, "reserved": 0, "headroom": 1_239, "open_requests": 14, "quality": SERVED,
                          **changes})


def words(sheet: Any) -> list[list[str]]:
    return [line.split("\t") for line in sheet.lines()]


def test_capacity_is_told_in_requests() -> None:
    assert words(capacity_sheet([model()]))[1] == [
        "sim/glm-5.3", "all regions", "2/2", "1,256", "14", "0", "1,239", "14"]


def test_quality_is_told_in_the_units_that_people_think_in() -> None:
    assert words(quality_sheet([model()]))[1] == [
        "sim/glm-5.3", "all regions", "0.12/0.35/1.2 s", "11/20 ms", "100%", "99.99%", "98.20%"]


def test_uptime_is_never_rounded_up_to_all() -> None:
    [_, row] = words(quality_sheet([model(quality=Quality(uptime_5m=99.9999))]))
    assert row[4] == "99.99%"


def test_a_region_stands_below_its_model() -> None:
    assert [row[:2] for row in words(capacity_sheet([model(), model(region="eu-north")]))[1:]] == [
        ["sim/glm-5.3", "all regions"], ["", "eu-north"]]


def test_what_nobody_knows_is_a_dash_and_never_a_zero() -> None:
    unknown = model(ready=None, peak=None, headroom=None, open_requests=None, quality=Quality())
    assert words(capacity_sheet([unknown]))[1][3:] == ["–", "–", "0", "–", "–"]  # noqa: RUF001
    assert words(quality_sheet([unknown]))[1][2:] == ["–/–/–", "–/–", "–", "–", "–"]  # noqa: RUF001


@pytest.mark.parametrize(("headroom", "style"), [(-1, "red"), (0, ""), (5, "")])
def test_too_little_headroom_is_red(headroom: int, style: str) -> None:
    [[*_, left, _]] = capacity_sheet([model(headroom=headroom)]).rows
    assert getattr(left, "style", "") == style


def test_models_stand_between_datacenters_and_deployments(meridian: Meridian, api: OperatorServer) -> None:
    lines = shown(meridian, api, view(models=[model(), model(region="us-east-1")]))
    headings = [line[0] for line in lines if line and line[0].isupper()]
    assert headings == ["DATACENTER", "MODEL", "MODEL", "MODEL", "EDGE"]


def test_what_edges_say_against_a_datacenter_stands_below_it(meridian: Meridian, api: OperatorServer) -> None:
    vote = {"datacenter": "us-east-1", "verdict": "lost", "edges": 2, "of": 3, "held_s": 12.0,
            "evidence": "two probes failed"}
    said = " ".join(word for line in shown(meridian, api, view(votes=[vote])) for word in line)
    assert "us-east-1 is lost to 2 of 3 edges, for 12s: two probes failed" in said


def test_frozen_automation_is_in_the_heading(meridian: Meridian, api: OperatorServer) -> None:
    frozen = {"frozen": True, "until": None, "by": "operator:olga", "reason": "a storm"}
    said = " ".join(word for line in shown(meridian, api, view(automation=frozen))[:2] for word in line)
    assert "Automation is frozen until somebody ends it by operator:olga: a storm" in said

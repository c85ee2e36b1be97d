"""`meridian shift` and `meridian rollout`: what is typed is what is ordered."""

import json
import sys
from pathlib import Path

import pytest

from control_plane.cli import rollout
from control_plane.cli.errors import UsageFault
from tests.unit.control_plane.cli.conftest import Meridian
from tests.unit.control_plane.cli.servers import OperatorServer

MODEL = "sim/glm-5.3"
SHIFT = ("shift", MODEL, "--from", "us-east-1", "--to", "eu-north-1", "--percent", "30", "--reason", "test")


def last_order(api: OperatorServer) -> dict[str, object]:
    body = json.loads([call for call in api.calls if call.method == "POST"][-1].body)
    return {name: value for name, value in body.items() if value is not None}


class TestShift:
    def test_it_orders_what_was_typed(self, meridian: Meridian, api: OperatorServer) -> None:
        ran = meridian(*SHIFT, "--step", "10", "--interval", "90s", "--abort-if", "ttft_p90>2s")
        assert ran.code == 0, ran.err
        order = last_order(api)
        assert order["shift"] == {
            "model": MODEL, "source": "us-east-1", "target": "eu-north-1", "percent": 30, "step_percent": 10,
            "interval_s": 90.0, "abort_if": "ttft_p90>2s"}
        assert (order["kind"], order["reason"], order["deadline_s"]) == ("shift", "test", 3 * 150.0 + 600)

    def test_it_shows_the_traffic_before_and_after(self, meridian: Meridian, api: OperatorServer) -> None:
        api.plan = {"traffic": {"us-east-1": {"before_percent": 50.0, "after_percent": 35.0}}}
        assert "  us-east-1  50% of its requests, then 35%\n" in meridian(*SHIFT, "--dry-run").out

    @pytest.mark.parametrize("wrong", [
        ("--percent", "0"), ("--percent", "101"), ("--step", "0"), ("--to", "us-east-1")])
    def test_what_makes_no_sense_is_wrong_usage(self, meridian: Meridian, wrong: tuple[str, str]) -> None:
        assert meridian(*SHIFT, *wrong).code == 2

    def test_a_reason_is_needed(self, meridian: Meridian) -> None:
        assert meridian(*SHIFT[:-2]).code == 2


class TestRollout:
    @pytest.fixture
    def file(self, tmp_path: Path) -> Path:
        return tmp_path / "specification.json"

    def ran(self, meridian: Meridian, file: Path, *options: str) -> int:
        return meridian("rollout", MODEL, "--file", str(file), "--reason", "test", *options).code

    def test_it_orders_what_the_file_holds(self, meridian: Meridian, api: OperatorServer, file: Path) -> None:
        file.write_text('{"engine": {"kind": "sim"}, "pools": [{"role": "aggregated", "replicas": 2}]}')
        assert self.ran(meridian, file, "--in", "eu-north-1, us-east-1", "--watch", "5s") == 0
        order = last_order(api)
        assert (order["kind"], order["deadline_s"]) == ("rollout", 21_600.0)
        assert order["rollout"] == {
            "model": MODEL, "engine": {"kind": "sim"}, "datacenters": ["eu-north-1", "us-east-1"], "watch_s": 5.0,
            "pools": [{"role": "aggregated", "replicas": 2, "gpus_per_replica": 1, "max_inflight": None}],
            "finish_s": 600.0, "ready_s": 900.0, "max_error_percent": 1.0}

    def test_yaml_is_read_too(self, meridian: Meridian, api: OperatorServer, file: Path) -> None:
        file.write_text("engine:\n  kind: sim\n  cache: {block_size: 32}\n")
        assert self.ran(meridian, file) == 0
        assert last_order(api)["rollout"]["engine"] == {  # type: ignore[index]
            "kind": "sim", "cache": {"block_size": 32}}

    @pytest.mark.parametrize("text", [
        "", "[]", "{}", '{"engine": {}, "replicas": 3}', "engine: [", '{"pools": []}', '{"engine": "sim"}'])
    def test_what_is_no_specification_is_wrong_usage(self, meridian: Meridian, api: OperatorServer, file: Path,
                                                     text: str) -> None:
        file.write_text(text)
        assert self.ran(meridian, file) == 2
        assert api.calls == []

    def test_a_file_that_is_not_there_is_wrong_usage(self, meridian: Meridian, file: Path) -> None:
        assert self.ran(meridian, file) == 2

    def test_without_the_yaml_package_it_is_said(self, meridian: Meridian, file: Path,
                                                 monkeypatch: pytest.MonkeyPatch) -> None:
        file.write_text("engine: {kind: sim}")
        monkeypatch.setitem(sys.modules, "yaml", None)
        with pytest.raises(UsageFault, match="PyYAML"):
            rollout.read_specification(file)

"""`python -m engine plan`, run as the agent runs it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from control_plane.contracts.launch import LaunchPlan, PlanRefused, PlanRequest
from engine.prepare import WITNESS_SEGMENTS_KEPT, prepare

DEPLOYMENT = {
    "deployment_id": "glm", "generation": 1, "model_id": "sim/glm", "context_window": 4096,
    "pools": [{"role": "prefill", "replicas": 1}, {"role": "decode", "replicas": 2}], "engine": {"kind": "sim"},
}


def request(state_dir: Path, **changes: object) -> PlanRequest:
    return PlanRequest.model_validate({
        "fleet_id": "eu-a", "state_dir": state_dir, "host": "127.0.0.1", "port_base": 9000,
        "deployments": [DEPLOYMENT | changes]})


def run(text: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "engine", *arguments], input=text, capture_output=True, text=True,
                          timeout=30, check=False)


def test_it_prints_the_plan_and_nothing_else(tmp_path: Path) -> None:
    done = run(request(tmp_path).model_dump_json(), "plan")
    assert done.returncode == 0, done.stderr
    assert LaunchPlan.model_validate_json(done.stdout) == prepare(request(tmp_path))
    assert done.stderr == ""


def test_a_specification_that_cannot_run_ends_with_2_and_the_reason(tmp_path: Path) -> None:
    done = run(request(tmp_path, engine={"kind": "vllm"}).model_dump_json(), "plan")
    assert done.returncode == 2
    refused = PlanRefused.model_validate_json(done.stdout)
    assert refused.deployment_id == "glm"
    assert "vllm is not in this release" in refused.error


@pytest.mark.parametrize(("text", "arguments"), [("{}", ["plan"]), ("", ["plan"]), ("{}", []), ("{}", ["sing"])])
def test_a_wrong_call_is_neither_a_plan_nor_a_refusal(text: str, arguments: list[str]) -> None:
    done = run(text, *arguments)
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr


def test_the_programs_that_it_names_exist(tmp_path: Path) -> None:
    assert all(Path(process.argv[0]).is_file() for process in prepare(request(tmp_path)).processes)


def test_the_grammar_service_is_part_of_the_ordinary_environment(tmp_path: Path) -> None:
    found = prepare(request(tmp_path))
    assert "grammar" in [process.name for process in found.processes]
    assert found.facts["glm"].grammar_url == "http://127.0.0.1:9005"


def test_two_fleets_of_the_same_model_have_the_same_identity(tmp_path: Path) -> None:
    here, there = prepare(request(tmp_path / "a")), prepare(request(tmp_path / "b", deployment_id="other"))
    assert here.facts["glm"].identity == there.facts["other"].identity


def test_everything_that_processes_need_is_there_and_private(tmp_path: Path) -> None:
    found = prepare(request(tmp_path / "new"))
    worker = next(process for process in found.processes if process.role == "decode")
    assert (Path(worker.argv[worker.argv.index("--model-path") + 1]) / "tokenizer.json").is_file()
    assert Path(worker.env["DYN_FILE_KV"]).is_dir()
    assert worker.log_path.parent.is_dir()
    assert Path(worker.env["HOME"]).stat().st_mode & 0o077 == 0


def test_a_second_plan_is_the_same_and_makes_nothing_new(tmp_path: Path) -> None:
    first = prepare(request(tmp_path))
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    assert prepare(request(tmp_path)) == first
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before


def test_ports_are_remembered_across_plans(tmp_path: Path) -> None:
    prepare(request(tmp_path, deployment_id="m"))
    assigned = json.loads((tmp_path / "ports.json").read_text())
    prepare(request(tmp_path, deployment_id="a"))
    assert assigned.items() <= json.loads((tmp_path / "ports.json").read_text()).items()


@pytest.mark.parametrize("spoiled", ["", "[1]", "{\"glm-decode-0\": \"x\"}"])
def test_a_spoiled_memory_of_ports_is_made_anew(tmp_path: Path, spoiled: str) -> None:
    first = prepare(request(tmp_path))
    (tmp_path / "ports.json").write_text(spoiled)
    assert prepare(request(tmp_path)) == first


def test_more_workers_than_ports_are_refused(tmp_path: Path) -> None:
    done = run(request(tmp_path, pools=[{"role": "aggregated", "replicas": 91}]).model_dump_json(), "plan")
    assert done.returncode == 2
    assert "91 workers and ports for 90" in PlanRefused.model_validate_json(done.stdout).error


def test_old_witness_segments_are_pruned(tmp_path: Path) -> None:
    (tmp_path / "witness").mkdir()
    names = [f"requests.{at:06}.jsonl.gz" for at in range(WITNESS_SEGMENTS_KEPT + 3)]
    for name in names:
        (tmp_path / "witness" / name).touch()
    prepare(request(tmp_path))
    assert sorted(path.name for path in (tmp_path / "witness").iterdir()) == names[3:]


def test_planning_imports_nothing_heavy() -> None:
    heavy = ("dynamo", "httpx", "cryptography", "asyncio", "msgspec")
    code = f"import sys, engine.__main__; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=30)
    assert done.stdout.strip() == "[]"

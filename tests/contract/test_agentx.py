"""AgentX, unmodified, plays agents' conversations: prompts that grow turn by turn, helpers beside them."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.contract.environments.install import environment
from tests.contract.guests import MODEL, Guest, invite
from tests.e2e.stack import LocalStack, until

pytestmark = [
    pytest.mark.stack, pytest.mark.slow, pytest.mark.timeout(600),
    pytest.mark.skipif(sys.version_info >= (3, 14), reason="agentx-harness has no release for this Python")]
BLOCK = 64
LANES, PLAYED_S = 3, 12


def turns(at_s: float, first_tokens: int, more_tokens: int, count: int, block_id: int) -> list[dict[str, Any]]:
    """A conversation whose prompts grow; equal blocks have equal text."""
    return [{"t": at_s + number / 2, "type": "s" if number % 2 else "n", "model": MODEL, "out": 20,
             "in": (tokens := first_tokens + number * more_tokens), "think_time": 0.1, "stop": "end_turn",
             "hash_ids": list(range(block_id, block_id - (-tokens // BLOCK)))} for number in range(count)]


def write_traces(directory: Path) -> None:
    """Six agents, each with a helper on the way."""
    directory.mkdir()
    for number in range(6):
        helper = turns(1.2, 1500, 200, 3, block_id=5000)
        requests = turns(0, 3000, 300, 6, block_id=1)
        requests.insert(3, {
            "t": 1.2, "type": "subagent", "agent_id": "agent_1", "subagent_type": "Explore", "status": "completed",
            "duration_ms": 500, "total_tokens": 5000, "tool_use_count": 1, "models": [MODEL], "requests": helper})
        trace = {"id": f"trace-{number}", "models": [MODEL], "block_size": BLOCK, "hash_id_scope": "local",
                 "requests": requests}
        (directory / f"{number}.json").write_text(json.dumps(trace))


def play(guest: Guest, endpoint: str, directory: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """AgentX's summary, and each of its requests."""
    [tokenizer] = (guest.stack.state / "datacenters" / "us-east-1" / "engine" / "models").iterdir()
    write_traces(directory / "traces")
    programs = environment("agentx")
    done = subprocess.run([
        programs / "agentx", "profile", "--model", MODEL, "--url", guest.url, "--api-key", guest.key,
        "--endpoint-type", endpoint, "--session-header", "X-Session-ID", "--tokenizer", str(tokenizer),
        "--custom-dataset-type", "weka_trace", "--input-file", "traces", "--concurrency", str(LANES),
        "--benchmark-duration", str(PLAYED_S), "--benchmark-grace-period", "10", "--warmup-requests-per-lane", "1",
        "--unsafe-override", "--artifact-dir", "out", "--ui", "none"],
        capture_output=True, text=True, timeout=240, check=False, cwd=directory,
        env={"HOME": str(directory), "PATH": f"{programs}:/usr/bin:/bin"})
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    rows = (directory / "out" / "profile_export.jsonl").read_text().splitlines()
    return json.loads((directory / "out" / "profile_export_aiperf.json").read_text()), [json.loads(row) for row in rows]


@pytest.mark.parametrize("endpoint", ["chat", "messages"])
def test_agents_are_served_without_an_error_and_each_request_is_recorded_once(
        stack: LocalStack, tmp_path: Path, endpoint: str) -> None:
    guest = invite(stack)
    summary, rows = play(guest, endpoint, tmp_path)
    assert summary["error_summary"] == []
    assert [row["error"] for row in rows if row.get("error")] == []
    assert len(rows) > 20
    assert summary["overall_usage_prompt_cache_read_pct"]["avg"] > summary["theoretical_prefix_cache_hit"]["avg"] / 2

    def told(name: str) -> int:
        return int(sum(row["metrics"][name]["value"] for row in rows))

    def recorded() -> dict[str, Any]:
        total: dict[str, Any] = guest.stack.json("usage", "--team", guest.team)["total"]
        return total

    until(lambda: recorded()["requests"] >= len(rows), 10, "a record for each request")
    sums = recorded()
    assert {name: sums[name] for name in ("requests", "prompt_tokens", "cached_tokens", "completion_tokens")} == {
        "requests": len(rows), "prompt_tokens": told("usage_prompt_tokens"),
        "cached_tokens": told("usage_prompt_cache_read_tokens"), "completion_tokens": told("usage_completion_tokens")}

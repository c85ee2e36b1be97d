"""A real Dynamo cluster, started from our own launch plan: what it answers, and what it survives."""

import contextlib
import gzip
import json
import re
import signal
import time
from pathlib import Path

import httpx
import psutil
import pytest

from control_plane.contracts.deployment import PoolRole
from engine.sim.tokenizer import words
from tests.engine.chat import METERED, ask, stream, streams
from tests.engine.cluster import MODEL, Cluster, wait_for

NOT_NATS = ("frontend", "test-glm-prefill-0", "test-glm-decode-0", "test-glm-decode-1")


def witnessed(running: Cluster) -> bytes:
    """All that the witness holds by now; a segment that is being written counts from the next time on."""
    text = b""
    for path in sorted(Path(running.plan.processes[-1].env["DYN_REQUEST_TRACE_FILE_PATH"]).parent.glob("*.gz")):
        with contextlib.suppress(EOFError):
            text += gzip.decompress(path.read_bytes())
    return text


def busy_decode_worker(running: Cluster) -> str:
    """A decode worker that has open requests."""
    def open_requests(name: str) -> float:
        port = next(process.env["DYN_SYSTEM_PORT"] for process in running.plan.processes if process.name == name)
        text = httpx.get(f"http://127.0.0.1:{port}/metrics", timeout=5).text
        return sum(float(found) for found in re.findall(r"^vllm:num_requests_running\{.*\} (\S+)$", text, re.M))

    counts = {name: open_requests(name) for name in running.workers(PoolRole.DECODE)}
    assert any(counts.values()), counts
    return max(counts, key=lambda name: counts[name])


def logged(running: Cluster) -> bytes:
    return b"".join(process.log_path.read_bytes() for process in running.plan.processes)


def migrations(running: Cluster) -> float:
    text = httpx.get(running.plan.gauges.url, timeout=5).text
    return sum(float(line.rpartition(" ")[2]) for line in text.splitlines()
               if line.startswith("dynamo_frontend_model_migration_total{"))


def test_a_stream_is_made_of_our_words_only(running: Cluster) -> None:
    read = stream(running.url, max_tokens=300)
    assert re.fullmatch(r"( [a-z]+){300}", read.text)
    assert set(read.text.split()) <= set(words())
    assert len(set(read.token_ids)) > 100


def test_each_event_ends_in_usage_and_token_ids(running: Cluster) -> None:
    read = stream(running.url, max_tokens=3)
    for number, line in enumerate(read.lines[:3], start=1):
        event = json.loads(line.removeprefix("data: "))
        assert list(event)[-2:] == ["usage", "nvext"]
        assert list(event["nvext"]) == ["completion_token_ids"]
        assert line.count(',"usage":') == 1
        assert len(event["nvext"]["completion_token_ids"]) == 1
        assert event["usage"]["completion_tokens"] == number
        assert event["usage"]["prompt_tokens_details"] == {"cached_tokens": 0}


def test_a_stream_ends_with_usage_without_choices_and_then_done(running: Cluster) -> None:
    read = stream(running.url, max_tokens=3)
    last = json.loads(read.lines[-2].removeprefix("data: "))
    assert (last["choices"], last["usage"]["completion_tokens"]) == ([], 3)
    assert "nvext" not in last
    assert read.lines[-1] == "data: [DONE]"


def test_a_unary_answer_ends_in_usage_and_token_ids(running: Cluster) -> None:
    answer = ask(running.url, max_tokens=7, nvext=METERED["nvext"]).json()
    assert list(answer)[-2:] == ["usage", "nvext"]
    assert len(answer["nvext"]["completion_token_ids"]) == answer["usage"]["completion_tokens"] == 7
    assert answer["choices"][0]["finish_reason"] == "length"


def test_a_sessions_second_turn_reuses_the_first_ones_cache(running: Cluster) -> None:
    prompt, session = " ".join(words()[:400]), {"x-dynamo-session-id": "two turns"}
    first = ask(running.url, prompt, headers=session).json()["usage"]
    second = ask(running.url, prompt + " and then some more", headers=session).json()["usage"]
    assert first["prompt_tokens_details"]["cached_tokens"] == 0
    assert second["prompt_tokens_details"]["cached_tokens"] >= 384
    assert second["prompt_tokens"] > first["prompt_tokens"]


def test_the_chat_template_renders_tools_parts_calls_and_thoughts(running: Cluster) -> None:
    call = {"id": "c", "type": "function", "function": {"name": "look", "arguments": '{"at":"sky"}'}}
    messages = [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": [{"type": "text", "text": "one "}, {"type": "text", "text": "two"}]},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "blue"},
    ]
    body = {
        "model": MODEL, "messages": messages, "max_tokens": 2, "stream": True,
        "chat_template_args": {"enable_thinking": True}, "nvext": {"annotations": ["formatted_prompt"]},
        "tools": [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}],
    }
    text = httpx.post(f"{running.url}/v1/chat/completions", json=body, timeout=10).text
    comment = re.search(r"event: formatted_prompt\n: (.*)\n", text)
    assert comment, text
    prompt = json.loads(comment[1])
    assert prompt.startswith("[gMASK]<sop><|system|>")
    assert '"name":"look"' in prompt.replace(" ", "").splitlines()[2]
    assert "</tool_call><|system|>\nBe kind.<|user|>\none \ntwo<|assistant|>\n<tool_call>look\n<arg_key>" in prompt
    assert "<arg_key>at</arg_key>\n<arg_value>sky</arg_value>\n</tool_call>" in prompt
    assert prompt.endswith("<|observation|>\n<tool_response>\nblue\n</tool_response><|assistant|>\n<think>")


def test_an_unknown_field_is_400_and_named(running: Cluster) -> None:
    answer = ask(running.url, bogus=1)
    assert answer.status_code == 400
    assert "`bogus`" in answer.json()["message"]


def test_an_unknown_model_is_404(running: Cluster) -> None:
    assert ask(running.url, model="sim/none").status_code == 404


def test_a_prompt_past_the_context_window_is_refused(running: Cluster) -> None:
    # The simulated engine refuses it itself, so that it is no tidy 400.
    assert ask(running.url, "é" * 32_768).status_code == 500
    assert ask(running.url).status_code == 200


def test_the_model_is_listed_with_its_window(running: Cluster) -> None:
    (model,) = httpx.get(f"{running.url}/v1/models", timeout=5).json()["data"]
    assert (model["id"], model["context_window"]) == (MODEL, 32_768)


def test_the_gauges_show_readiness_and_open_requests(running: Cluster) -> None:
    gauges = running.plan.gauges
    assert running.gauge(gauges.model_ready) == 1
    assert running.gauge(gauges.queued) == 0
    with streams(running.url, 2, max_tokens=150):
        assert running.gauge(gauges.inflight) == 2
    assert running.gauge(gauges.inflight) == 0


def test_every_listener_is_on_loopback(running: Cluster) -> None:
    ask(running.url)
    listeners = [
        connection.laddr.ip
        for process in running.running.values()
        for member in (psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True))
        for connection in member.net_connections("inet")
        if connection.status == psutil.CONN_LISTEN or (connection.laddr and not connection.raddr)
    ]
    assert len(listeners) > len(running.running)
    assert set(listeners) == {"127.0.0.1"}


def test_the_witness_has_each_request_under_its_id(running: Cluster) -> None:
    ask(running.url, max_tokens=6, headers={"x-request-id": "attempt-7.1", "x-dynamo-session-id": "session"})
    wait_for(lambda: b"attempt-7.1" in witnessed(running), "the witness", 5)
    (line,) = [line for line in witnessed(running).splitlines() if b"attempt-7.1" in line]
    request = json.loads(line)["event"]["request"]
    assert (request["x_request_id"], request["output_tokens"]) == ("attempt-7.1", 6)


def test_no_prompt_reaches_a_log_or_the_witness(running: Cluster) -> None:
    for fields in ({}, {"bogus": 1}, {"max_tokens": -1}, {"model": "sim/none"}, {"messages": "SECRETPROMPT"}):
        ask(running.url, "SECRETPROMPT", **fields)
    time.sleep(0.5)
    assert witnessed(running)
    assert logged(running)
    assert b"SECRETPROMPT" not in witnessed(running) + logged(running)


def test_a_refused_request_leaves_nothing_in_the_logs(running: Cluster) -> None:
    before = len(logged(running))
    for fields in ({"bogus": 1}, {"model": "sim/none"}, {"messages": 7}) * 5:
        assert ask(running.url, **fields).status_code in (400, 404)
    time.sleep(0.2)
    assert len(logged(running)) == before


def test_a_killed_decode_workers_streams_go_on_elsewhere(running: Cluster) -> None:
    before = migrations(running)
    with streams(running.url, 4, max_tokens=300) as opened:
        running.kill(busy_decode_worker(running))
    for read in (future.result() for future in opened):
        assert (len(read.token_ids), read.usage["completion_tokens"]) == (300, 300)
        assert read.error is None
    assert migrations(running) > before


def test_a_stopped_decode_worker_finishes_its_streams(running: Cluster) -> None:
    before = migrations(running)
    with streams(running.url, 4, max_tokens=300) as opened:
        stopped = busy_decode_worker(running)
        running.signal(stopped, signal.SIGTERM)
    assert [len(future.result().token_ids) for future in opened] == [300] * 4
    assert running.running[stopped].wait(10) == 0
    assert migrations(running) == before


def test_a_stopped_cluster_takes_nothing_new_and_finishes_what_is_open(running: Cluster) -> None:
    began = time.monotonic()
    with streams(running.url, 2, max_tokens=1100) as opened:  # longer than the 5 s that Dynamo waits by itself
        for name in NOT_NATS:
            running.signal(name, signal.SIGTERM)
        time.sleep(0.3)
        with pytest.raises(httpx.HTTPStatusError, match="503"):
            ask(running.url).raise_for_status()
    assert [len(future.result().token_ids) for future in opened] == [1100] * 2
    assert time.monotonic() - began > 5
    assert [running.running[name].wait(10) for name in NOT_NATS] == [0] * 4


def test_a_killed_decode_workers_session_goes_on_elsewhere(running: Cluster) -> None:
    with streams(running.url, 1, max_tokens=200):  # of session-0
        bound = busy_decode_worker(running)
    running.kill(bound)
    answers = [ask(running.url, headers={"x-dynamo-session-id": "session-0"}) for _ in range(5)]
    assert [answer.status_code for answer in answers] == [200] * 5


def test_a_killed_event_plane_costs_no_request(running: Cluster) -> None:
    with streams(running.url, 2, max_tokens=200) as opened:
        running.kill("nats")
        assert ask(running.url).status_code == 200
        running.start()
    assert [len(future.result().token_ids) for future in opened] == [200] * 2
    assert all(process.poll() is None for process in running.running.values())


def test_a_cluster_killed_whole_and_started_again_trips_over_no_dead_entry(running: Cluster) -> None:
    running.kill()
    instances = Path(running.plan.processes[-1].env["DYN_FILE_KV"]) / "v1" / "instances"
    assert len(list(instances.iterdir())) >= 3
    running.start()
    running.wait_model()
    wait_for(lambda: ask(running.url).status_code == 200, "the first answer", 2)
    assert {ask(running.url).status_code for _ in range(20)} == {200}


def test_a_cluster_without_workers_says_so(running: Cluster) -> None:
    running.kill(*running.workers(PoolRole.PREFILL), *running.workers(PoolRole.DECODE))
    answer = ask(running.url)
    assert answer.status_code >= 500
    wait_for(lambda: running.gauge(running.plan.gauges.model_ready) != 1.0, "the gauge to fall", 15)

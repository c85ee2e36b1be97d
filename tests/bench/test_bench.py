"""The benches' own parts: a bench that measures wrongly is worse than none."""

import asyncio
import json
import os
import subprocess
import sys
import time

import psutil
import pytest

from tests.bench import __main__ as runner
from tests.bench import harness
from tests.bench.raw_client import chat, judge
from tests.bench.start import STEP, kind_of

SSE = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
UNARY = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
ENDED = b'{"choices":[{"finish_reason":"stop"}]}'


def test_every_bench_has_a_name_and_says_what_it_measures() -> None:
    found = harness.benches()
    assert {"start", "drain", "command-line"} <= {bench.name for bench in found}
    assert all(bench.summary for bench in found)


def test_the_list_names_every_bench(capsys: pytest.CaptureFixture[str]) -> None:
    assert runner.main([]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == [bench.name for bench in harness.benches()]


def test_an_unknown_bench_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert runner.main(["nope"]) == 2
    assert "there are" in capsys.readouterr().err


def test_a_bench_ends_with_one_json_line(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    bench = harness.Bench("quick", "nothing", lambda: {"seconds": 1.5, "within": True})
    monkeypatch.setattr(runner, "benches", lambda: [bench])
    assert runner.main(["quick"]) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert json.loads(last) == {"bench": "quick", "seconds": 1.5, "within": True}


def test_cpu_of_a_tree_counts_its_children() -> None:
    burn = "import time; end = time.process_time() + 0.3\nwhile time.process_time() < end: pass\ntime.sleep(30)"
    script = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {burn!r}])"
    process = subprocess.Popen([sys.executable, "-c", script], start_new_session=True)
    try:
        ends = time.monotonic() + 20
        while harness.tree_cpu_s(process.pid) - harness.cpu_s([process.pid]) < 0.3 and time.monotonic() < ends:
            time.sleep(0.05)
        assert harness.tree_cpu_s(process.pid) >= harness.cpu_s([process.pid]) + 0.3
    finally:
        os.killpg(process.pid, 9)
        process.wait()


def test_a_process_that_is_gone_costs_nothing() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    assert harness.tree(process.pid) == []
    assert harness.cpu_s([process.pid]) == 0


def test_memory_is_counted_and_shared_pages_only_once() -> None:
    here = [psutil.Process()]
    assert harness.rss_mib(here) > 10
    assert 0 < harness.pss_mib(here) <= harness.rss_mib(here) + 1


def test_ratios_are_taken_pair_by_pair() -> None:
    assert harness.paired_ratio([(2, 1), (20, 10), (9, 1)]) == 2


@pytest.mark.parametrize(("values", "percent", "value"), [([7.0], 99, 7.0), ([1.0, 2.0, 3.0], 50, 2.0)])
def test_a_percentile_lies_among_the_values(values: list[float], percent: int, value: float) -> None:
    assert harness.percentile(values, percent) == value


def test_a_figure_is_held_against_its_yardstick() -> None:
    assert harness.verdict(30, 30) == "within the yardstick of 30"
    assert harness.verdict(31, 30) == "ABOVE the yardstick of 30"


def test_a_whole_stream_is_well() -> None:
    assert judge(SSE, b"10\r\ndata: " + ENDED + b"\n\ndata: [DONE]\n\n\r\n0\r\n\r\n").well


@pytest.mark.parametrize("body", [
    b"data: " + ENDED + b"\n\n\r\n0\r\n\r\n",
    b"data: " + ENDED + b"\n\ndata: [DONE]\n\n",
    b'data: {"choices":[]}\n\ndata: [DONE]\n\n\r\n0\r\n\r\n',
    b'data: {"error":{"message":"lost"}}\n\ndata: ' + ENDED + b"data: [DONE]\n\n0\r\n\r\n",
])
def test_a_stream_that_broke_is_not_well(body: bytes) -> None:
    assert not judge(SSE, body).well


def test_a_whole_answer_is_well_and_a_short_one_is_not() -> None:
    assert judge(UNARY % len(ENDED), ENDED).well
    assert not judge(UNARY % (len(ENDED) + 1), ENDED).well
    assert not judge(UNARY.replace(b"200 OK", b"502 Bad") % len(ENDED), ENDED).well


async def test_a_client_tells_a_fault_instead_of_raising_it() -> None:
    server = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    async with server:
        heard = await chat(url, "key", {}, deadline_s=5.0)
    assert not heard.well
    assert heard.fault


def test_the_steps_of_a_start_are_read_from_its_output() -> None:
    text = "Postgres: ready after 1.2 s\nkeys, team, topology: ready after 0.5 s\nMeridian is up\n"
    assert [found.groups() for found in STEP.finditer(text)] == [("Postgres", "1.2"), ("keys, team, topology", "0.5")]


def test_a_process_of_no_known_kind_is_called_by_its_program() -> None:
    assert kind_of(psutil.Process()) not in ("edge", "agent", "worker", "ended")

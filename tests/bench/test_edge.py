"""The parts of the bench `edge`: what lies beside the checkout, streams that are held, and what is printed."""

import asyncio
import json
import os
import resource
from pathlib import Path

import pytest

from tests.bench import __main__ as runner
from tests.bench import edge
from tests.bench.edge_relays import EDGE, NGINX, Relay
from tests.bench.edge_streams import HeldStreams, hold
from tests.bench.harness import Bench, machine, verdict
from tests.bench.shared_bench import TOKEN_IDS, SharedBench, shared_bench

METER = '''
import json
MSG = [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]
async def run(a):
    with open(a.out, "a") as out:
        out.write(json.dumps({"asked": MSG[-1]["content"], "pid": a.pid, "n": a.n}) + "\\n")
    print("noise")
'''
FIGURES = {"event_us": 20.0, "event_ids_us": 22.0, "request_us": 50.0, "long_request_us": 900.0, "added_p50_ms": 0.2,
           "reads_per_event": 0.97, "rss_mb": 80.0}
HELD = HeldStreams(streams=1_000, per_s=5, whole=1_000, gap_ms=300.0, direct_gap_ms=210.0, rss_kb=24.0,
                   body_bytes=4_000)


def test_a_missing_bench_says_where_it_belongs(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="beside the checkout"):
        shared_bench(tmp_path)


async def test_its_meter_is_run_as_a_library_and_stays_silent(
        tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "bench.py").write_text(METER)
    shared = SharedBench(tmp_path)
    asked = [await shared.run("http://127.0.0.1:1/v1", 7, "k", 1, tmp_path / "out", ids, n=5) for ids in (True, False)]
    assert [(run["asked"], run["pid"], run["n"]) for run in asked] == [("u" + TOKEN_IDS, [7], 5), ("u", [7], 5)]
    assert capsys.readouterr().out == ""


async def test_held_streams_are_told_by_their_longest_pause_and_whether_they_ended_whole() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        for pause_s in (0.01, 0.25):
            await asyncio.sleep(pause_s)
            writer.write(b"data: {}\n\n")
        writer.write(b"data: [DONE]\n\n\r\n0\r\n\r\n")
        await reader.read()
        writer.close()

    async def cut(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    server, cutting = [await asyncio.start_server(handler, "127.0.0.1", 0) for handler in (answer, cut)]
    port, cutting_port = [listening.sockets[0].getsockname()[1] for listening in (server, cutting)]
    async with server, cutting:
        held = await hold(Relay("x", os.getpid(), port), port, streams=3, per_s=5, seconds=1)
        assert held.whole == 3
        assert 240 < held.gap_ms < 5_000
        assert (await hold(Relay("x", os.getpid(), cutting_port), port, 2, 5, 1)).whole == 0


def test_memory_and_pauses_are_told_beside_what_is_not_the_edges_own() -> None:
    assert (HELD.own_rss_kb, HELD.added_gap_ms) == (20.0, 90.0)


def test_the_table_holds_ratios_where_there_is_a_yardstick() -> None:
    with_ratios = edge.table({EDGE: FIGURES, NGINX: FIGURES | {"event_us": 10.0}})
    assert "| edge | 20.0 (2.00 x) |" in with_ratios[2]
    assert "| edge | 20.0 |" in edge.table({EDGE: FIGURES})[2]
    assert len({line.count("|") for line in with_ratios}) == 1


def test_the_report_judges_medians_of_rounds(capsys: pytest.CaptureFixture[str]) -> None:
    theirs = FIGURES | {"event_us": 10.0, "request_us": 25.0}
    figures = edge.report({EDGE: [FIGURES] * 2, NGINX: [theirs] * 2}, [HELD], 120.0)
    assert (figures["event_x_nginx"], figures["request_x_nginx"]) == (2.0, 2.0)
    assert figures["mission_cores"] == round(80 * 900e-6 + 40_000 * 22e-6, 3)
    told = capsys.readouterr().out
    assert "2.00, ABOVE the yardstick of 1.5" in told
    assert "2.00, within the yardstick of 2.5" in told


def test_without_nginx_there_are_no_ratios() -> None:
    assert "event_x_nginx" not in edge.report({EDGE: [FIGURES]}, [], 120.0)


def test_the_long_prompt_is_as_long_as_it_says() -> None:
    body = edge.long_body()
    assert 550_000 < len(body) < 700_000
    assert len(json.loads(body)["messages"]) == edge.LONG_MESSAGES + 1
    assert 0 < edge.decode_us(body) < 1e6


def test_less_than_asked_for_is_told() -> None:
    assert verdict(0.9, 0.95, at_least=True) == "BELOW the yardstick of 0.95"
    assert verdict(0.95, 0.95, at_least=True) == "within the yardstick of 0.95"


def test_figures_name_their_day_and_machine() -> None:
    assert "cores of" in machine()


def test_a_bench_takes_its_own_options_and_no_others(
        monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    bench = Bench("b", "nothing", lambda quick=False: {"quick": quick}, ("--quick",))
    monkeypatch.setattr(runner, "benches", lambda: [bench])
    assert runner.main(["b", "--quick"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1]) == {"bench": "b", "quick": True}
    assert runner.main(["b", "--slow"]) == 2


def test_as_many_files_may_be_open_as_the_machine_allows() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        edge._allow_files()
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] >= soft
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

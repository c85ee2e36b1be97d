"""What capacity is planned by, as real Dynamo tells it; and a worker that is taken away."""

import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from control_plane.contracts.deployment import PoolRole
from fleet_agent.caches import fullest_of
from fleet_agent.observe import gauge_of
from tests.engine.chat import ask, streams
from tests.engine.cluster import MODEL, Cluster, cluster, request, wait_for
from tests.ports import claim_ports

REQUESTS = 6


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster whose prefill takes seconds for a long prompt, and whose decoding does not."""
    wanted = request(tmp_path_factory.mktemp("slow"), claim_ports(),
                     timing={"speedup_ratio": 0.02, "decode_speedup_ratio": 50})
    with cluster(wanted) as running:
        yield running


def test_requests_that_wait_for_a_first_token_are_counted_among_those_in_flight(slow: Cluster) -> None:
    gauges, seen = slow.plan.gauges, []
    with ThreadPoolExecutor(REQUESTS) as pool:
        asked = [pool.submit(ask, slow.url, f"{at} " + "word " * 2_000, max_tokens=2) for at in range(REQUESTS)]

        def ended() -> bool:
            page = httpx.get(gauges.url, timeout=5).text
            seen.append(tuple(gauge_of(page, name, MODEL) or 0 for name in (gauges.inflight, gauges.queued)))
            return all(one.done() for one in asked)

        wait_for(ended, "every answer", 60)
        assert {one.result().status_code for one in asked} == {200}
    assert (REQUESTS, REQUESTS) in seen, seen
    assert max(inflight for inflight, _ in seen) == REQUESTS, seen


def test_workers_that_decode_tell_how_full_their_caches_are(slow: Cluster) -> None:
    pages = [process.caches_url for process in slow.plan.processes if process.caches_url]
    assert len(pages) == len(slow.workers(PoolRole.DECODE))
    with streams(slow.url, count=4, max_tokens=200):
        shares = [fullest_of(httpx.get(url, timeout=5).text, slow.plan.gauges.kv_usage) for url in pages]
    assert None not in shares
    assert 0 < max(share or 0 for share in shares) <= 1


def test_a_decode_worker_that_is_taken_away_costs_no_stream_and_the_others_nothing(tmp_path: Path) -> None:
    with cluster(request(tmp_path, claim_ports(), decode=2)) as running:
        others = {name: process.pid for name, process in running.running.items() if name != "test-glm-decode-1"}
        with streams(running.url, count=6, max_tokens=150) as opened:
            running.signal("test-glm-decode-1", signal.SIGTERM)
            found = [one.result(60) for one in opened]
        assert [(one.error, one.finish_reason, len(one.token_ids)) for one in found] == [(None, "length", 150)] * 6
        wait_for(lambda: running.running["test-glm-decode-1"].poll() is not None, "the worker to go", 45)
        assert all(running.running[name].poll() is None for name in others)
        assert {ask(running.url).status_code for _ in range(8)} == {200}

"""How full the workers' KV caches are."""

from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import httpx
import pytest

from control_plane.contracts.clock import ManualClock
from control_plane.contracts.launch import LaunchPlan, LaunchProcess
from fleet_agent.caches import READ_EVERY_S, Caches, fullest_of
from tests.unit.fleet_agent import examples

NAMES = ["vllm:gpu_cache_usage_perc", "vllm:kv_cache_usage_perc"]

# Captured from a worker of Dynamo 1.6.1 with its simulated GPU, shortened.
PAGE = """\
# HELP vllm:gpu_cache_usage_perc GPU KV-cache usage. 1 means 100 percent usage.
# TYPE vllm:gpu_cache_usage_perc gauge
vllm:gpu_cache_usage_perc{engine="0",model_name="sim/test"} 0.01324462890625
vllm:inter_token_latency_seconds_bucket{engine="0",model_name="sim/test",le="0.01"} 0
"""


class Workers:
    """The pages of workers, on a real socket: a page by path; no page is a 503."""

    def __init__(self) -> None:
        self.pages: dict[str, str] = {}
        self.asked: list[str] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.asked.append(self.path)
                body = outer.pages.get(self.path, "").encode()
                self.send_response(200 if body else 503)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                """Quiet."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"

    def worker(self, name: str, page: str = "", deployment: str = "test-a-glm") -> LaunchProcess:
        self.pages[f"/{name}"] = page
        return examples.process(name, deployment_id=deployment, role="decode", caches_url=f"{self.url}/{name}")


@pytest.fixture
def workers() -> Iterator[Workers]:
    made = Workers()
    thread = Thread(target=made.server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield made
    made.server.shutdown()
    thread.join()
    made.server.server_close()


def plan(*processes: LaunchProcess) -> LaunchPlan:
    made = examples.plan(*processes)
    return made.model_copy(update={"gauges": made.gauges.model_copy(update={"kv_usage": NAMES})})


def usage(share: float) -> str:
    return f'vllm:kv_cache_usage_perc{{engine="0"}} {share}\n'


async def read(*processes: LaunchProcess, ready: set[str]) -> Mapping[str, float]:
    async with httpx.AsyncClient(trust_env=False) as client:
        return await Caches(client, ManualClock()).read(plan(*processes), ready)


@pytest.mark.parametrize(("page", "share"), [
    (PAGE, 0.01324462890625), (usage(0.5) + usage(0.75), 0.75), ("vllm:kv_cache_usage_perc 0.5\n", 0.5),
    ('vllm:kv_cache_usage_perc{model_name="a {b} c"} 0.25 1700000000\n', 0.25), (usage(1.25), 1.0), (usage(-1), 0.0),
    ('vllm:kv_cache_usage_perc{engine="0"} NaN\n', None), ('vllm:kv_cache_usage_perc{engine="0"} much\n', None),
    ("vllm:kv_cache_usage_perc\n", None), ("vllm:kv_cache_usage_perc_total 0.5\n", None), ("", None)])
def test_the_largest_sample_of_a_known_name_counts(page: str, share: float | None) -> None:
    assert fullest_of(page, NAMES) == share


async def test_the_fullest_worker_stands_for_its_deployment(workers: Workers) -> None:
    pools = [workers.worker("w1", usage(0.2)), workers.worker("w2", usage(0.6)),
             workers.worker("w3", usage(0.4), "other")]
    assert await read(*pools, ready={"w1", "w2", "w3"}) == {"test-a-glm": 0.6, "other": 0.4}


async def test_a_worker_that_does_not_answer_is_left_out_and_not_empty(workers: Workers) -> None:
    closed = workers.worker("w3", deployment="gone").model_copy(update={"caches_url": "http://127.0.0.1:1/"})
    pools = [workers.worker("w1", usage(0.2)), workers.worker("w2", "", "other"), closed]
    assert await read(*pools, ready={"w1", "w2", "w3"}) == {"test-a-glm": 0.2}


async def test_only_workers_that_are_ready_and_have_a_cache_are_asked(workers: Workers) -> None:
    pools = [workers.worker("w1", usage(0.2)), workers.worker("w2", usage(0.9)), examples.process("frontend")]
    assert await read(*pools, ready={"w1", "frontend"}) == {"test-a-glm": 0.2}
    assert workers.asked == ["/w1"]


async def test_they_are_asked_every_few_seconds_and_remembered_between(workers: Workers) -> None:
    clock, worker = ManualClock(), workers.worker("w1", usage(0.2))
    async with httpx.AsyncClient(trust_env=False) as client:
        caches = Caches(client, clock)
        for _ in range(3):
            assert await caches.read(plan(worker), {"w1"}) == {"test-a-glm": 0.2}
        assert workers.asked == ["/w1"]
        clock.advance(READ_EVERY_S)
        workers.pages.clear()
        assert await caches.read(plan(worker), {"w1"}) == {}

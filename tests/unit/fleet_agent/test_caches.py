"""How full the workers' KV caches are."""

from collections.abc import Mapping

import httpx
import pytest

from control_plane.contracts.clock import ManualClock
from control_plane.contracts.launch import LaunchPlan
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


def worker(number: int, deployment: str = "test-a-glm") -> object:
    return examples.process(f"w{number}", deployment_id=deployment, role="decode",
                            caches_url=f"http://127.0.0.1:{number}/metrics")


def plan(*processes: object) -> LaunchPlan:
    made = examples.plan(*processes)  # type: ignore[arg-type]
    return made.model_copy(update={"gauges": made.gauges.model_copy(update={"kv_usage": NAMES})})


class Workers:
    """The pages of workers by port; one that has none is not there."""

    def __init__(self, **pages: str) -> None:
        self.pages = {int(name.removeprefix("port_")): page for name, page in pages.items()}
        self.asked: list[int] = []
        self.client = httpx.AsyncClient(transport=httpx.MockTransport(self._answer))

    def _answer(self, request: httpx.Request) -> httpx.Response:
        port = request.url.port or 0
        self.asked.append(port)
        if port not in self.pages:
            raise httpx.ConnectError("refused", request=request)
        return httpx.Response(200 if self.pages[port] else 503, text=self.pages[port])


def usage(share: float) -> str:
    return f'vllm:kv_cache_usage_perc{{engine="0"}} {share}\n'


async def read(workers: Workers, *processes: object, ready: set[str]) -> Mapping[str, float]:
    return await Caches(workers.client, ManualClock()).read(plan(*processes), ready)


@pytest.mark.parametrize(("page", "share"), [
    (PAGE, 0.01324462890625), (usage(0.5) + usage(0.75), 0.75), ("vllm:kv_cache_usage_perc 0.5\n", 0.5),
    ('vllm:kv_cache_usage_perc{model_name="a {b} c"} 0.25 1700000000\n', 0.25), (usage(1.25), 1.0), (usage(-1), 0.0),
    ('vllm:kv_cache_usage_perc{engine="0"} NaN\n', None), ('vllm:kv_cache_usage_perc{engine="0"} much\n', None),
    ("vllm:kv_cache_usage_perc\n", None), ("vllm:kv_cache_usage_perc_total 0.5\n", None), ("", None)])
def test_the_largest_sample_of_a_known_name_counts(page: str, share: float | None) -> None:
    assert fullest_of(page, NAMES) == share


async def test_the_fullest_worker_stands_for_its_deployment() -> None:
    workers = Workers(port_1=usage(0.2), port_2=usage(0.6), port_3=usage(0.4))
    assert await read(workers, worker(1), worker(2), worker(3, "other"), ready={"w1", "w2", "w3"}) == {
        "test-a-glm": 0.6, "other": 0.4}


async def test_a_worker_that_does_not_answer_is_left_out_and_not_empty() -> None:
    workers = Workers(port_1=usage(0.2), port_3="")
    assert await read(workers, worker(1), worker(2), worker(3, "other"), ready={"w1", "w2", "w3"}) == {
        "test-a-glm": 0.2}


async def test_only_workers_that_are_ready_and_have_a_cache_are_asked() -> None:
    workers = Workers(port_1=usage(0.2), port_2=usage(0.9))
    bare = examples.process("frontend")
    assert await read(workers, worker(1), worker(2), bare, ready={"w1", "frontend"}) == {"test-a-glm": 0.2}
    assert workers.asked == [1]


async def test_they_are_asked_every_few_seconds_and_remembered_between() -> None:
    workers, clock = Workers(port_1=usage(0.2)), ManualClock()
    caches = Caches(workers.client, clock)
    for _ in range(3):
        assert await caches.read(plan(worker(1)), {"w1"}) == {"test-a-glm": 0.2}
    assert workers.asked == [1]
    clock.advance(READ_EVERY_S)
    del workers.pages[1]
    assert await caches.read(plan(worker(1)), {"w1"}) == {}

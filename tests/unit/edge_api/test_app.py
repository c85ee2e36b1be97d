"""The cold routes: what they show, and that every error is OpenAI-shaped and every answer named."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from structlog.testing import capture_logs

from edge_api.app import ColdParts, build_app
from edge_api.metering.outbox import Outbox
from edge_api.metrics import Metrics
from edge_api.open_requests import OpenRequests
from edge_api.snapshot.holder import TableHolder
from tests.unit.edge_api.builders import MODEL, snapshot

PROBLEM = "control plane away"


class Edge:
    """The cold routes over parts that a test changes."""

    def __init__(self) -> None:
        self.holder, self.open_requests, self.metrics, self.problem = TableHolder(), OpenRequests(), Metrics(), ""

    def client(self) -> httpx.AsyncClient:
        def problem() -> str:
            return self.problem

        app = build_app(ColdParts(self.holder, self.open_requests, self.metrics, problem, ["/v1/chat/completions"]))
        return httpx.AsyncClient(
            transport=httpx.ASGITransport(app, raise_app_exceptions=False), base_url="http://edge")


@pytest.fixture
def edge() -> Edge:
    edge = Edge()
    edge.holder.take(snapshot(version=5))
    return edge


@pytest.fixture
async def client(edge: Edge) -> AsyncIterator[httpx.AsyncClient]:
    async with edge.client() as client:
        yield client


def error_of(answer: httpx.Response) -> dict[str, Any]:
    """The error object, once its shape is right."""
    assert answer.headers["content-type"] == "application/json"
    body = answer.json()
    assert set(body) == {"error"}
    assert set(body["error"]) >= {"message", "type", "param", "code"}
    assert body["error"]["message"]
    error: dict[str, Any] = body["error"]
    return error


@pytest.mark.parametrize("prefix", ["/v1", "/api/v1"])
async def test_models_are_listed_without_a_key(client: httpx.AsyncClient, prefix: str) -> None:
    listed = (await client.get(f"{prefix}/models")).json()
    assert listed["object"] == "list"
    assert [model["id"] for model in listed["data"]] == [MODEL]


async def test_a_model_shows_what_openai_prime_and_openrouter_readers_need(client: httpx.AsyncClient) -> None:
    assert (await client.get(f"/v1/models/{MODEL}")).json() == {
        "id": MODEL, "object": "model", "created": 1_758_499_200, "owned_by": "sim",
        "display_name": "GLM-5.3 (simulated)", "serving": "hosted", "is_ready": True,
        "pricing": {
            "input_usd_per_mtok": 0.6, "output_usd_per_mtok": 2.2, "cache_read_usd_per_mtok": 0.11,
            "cache_write_usd_per_mtok": None,
            "unit_prices": {"prompt": "0.0000006", "completion": "0.0000022", "input_cache_read": "0.00000011"},
            "currency": "USD", "price_version": "pv_1"},
        "specs": {"context_window": 202_752, "max_output_tokens": 131_072},
        "service_tiers": ["default"],
        "datacenters": [{"id": "eu-north-1", "region": "eu-north-1"}, {"id": "us-east-1", "region": "us-east-1"}]}


async def test_a_model_that_no_datacenter_takes_is_listed_with_the_reason(edge: Edge) -> None:
    edge.holder.take(snapshot(weights={"us-east-1": 0}, reason="us-east-1 is drained"))
    async with edge.client() as client:
        (model,) = (await client.get("/v1/models")).json()["data"]
    assert (model["is_ready"], model["datacenters"], model["unavailable_reason"]) == (
        False, [], "us-east-1 is drained")


async def test_models_are_sorted(edge: Edge) -> None:
    edge.holder.take(snapshot(models=("sim/b", "a", "sim/a")))
    async with edge.client() as client:
        listed = (await client.get("/v1/models")).json()["data"]
    assert [model["id"] for model in listed] == ["a", "sim/a", "sim/b"]


@pytest.mark.parametrize("name", ["sim/glm-5.3", "sim%2Fglm-5.3", "sim%2fglm-5.3", "claude-compat/sim/glm-5.3"])
@pytest.mark.parametrize("prefix", ["/v1", "/api/v1"])
async def test_a_model_is_found_by_each_of_its_names(client: httpx.AsyncClient, prefix: str, name: str) -> None:
    assert (await client.get(f"{prefix}/models/{name}")).json()["id"] == MODEL


async def test_who_speaks_the_messages_api_gets_its_list(client: httpx.AsyncClient) -> None:
    listed = (await client.get("/v1/models?limit=1", headers={"anthropic-version": "2023-06-01"})).json()
    assert ([model["type"] for model in listed["data"]], listed["has_more"]) == (["model"], True)
    rest = (await client.get(f"/v1/models?after_id={listed['last_id']}", headers={"anthropic-version": "x"})).json()
    assert [model["id"] for model in rest["data"]] == [f"claude-compat/{MODEL}"]


async def test_the_messages_api_finds_a_model_under_the_name_it_asked_for(client: httpx.AsyncClient) -> None:
    name = f"claude-compat/{MODEL}"
    found = (await client.get(f"/v1/models/{name}", headers={"anthropic-version": "2023-06-01"})).json()
    assert (found["type"], found["id"]) == ("model", name)


async def test_a_bad_page_is_refused_in_openais_shape(client: httpx.AsyncClient) -> None:
    answer = await client.get("/v1/models?limit=0", headers={"anthropic-version": "2023-06-01"})
    assert (answer.status_code, error_of(answer)["param"]) == (400, "limit")


@pytest.mark.parametrize("path", [f"/models/{MODEL}/endpoints", "/models/sim%2Fglm-5.3/endpoints"])
async def test_a_models_endpoints_are_its_datacenters(client: httpx.AsyncClient, path: str) -> None:
    shown = (await client.get(f"/v1{path}")).json()["data"]
    assert shown["id"] == MODEL
    assert [(one["tag"], one["uptime_last_1d"]) for one in shown["endpoints"]] == [
        ("meridian/eu-north-1", None), ("meridian/us-east-1", None)]


async def test_a_drain_hides_a_model_from_openrouter(edge: Edge) -> None:
    async with edge.client() as client:
        before = (await client.get("/api/v1/providers/openrouter/models")).json()["data"]
        edge.holder.take(snapshot(weights={"us-east-1": 0}, reason="us-east-1 is drained"))
        after = (await client.get("/api/v1/providers/openrouter/models")).json()["data"]
    assert [model["is_ready"] for model in (*before, *after)] == [True, False]


@pytest.mark.parametrize("path", ["/v1/key", "/v1/credits", "/v1/generation?id=x"])
async def test_without_a_control_plane_to_ask_there_are_no_accounts(client: httpx.AsyncClient, path: str) -> None:
    answer = await client.get(path)
    assert (answer.status_code, error_of(answer)["code"]) == (404, "not_found")


@pytest.mark.parametrize("path", [
    "/v1/models/sim/nope", "/v1/models/nope", "/v1/models/nope/endpoints", "/api/v1/models/sim/glm-5.3/more"])
async def test_an_unknown_model_is_404_model_not_found(client: httpx.AsyncClient, path: str) -> None:
    answer = await client.get(path)
    assert (answer.status_code, error_of(answer)["code"]) == (404, "model_not_found")
    assert answer.headers["x-should-retry"] == "false"


@pytest.mark.parametrize("path", ["/", "/nope", "/v1", "/v1/nope", "/docs", "/openapi.json", "/v1/chat", "//", "/%00"])
async def test_an_unknown_route_is_404_and_names_what_there_is(client: httpx.AsyncClient, path: str) -> None:
    answer = await client.get(path)
    error = error_of(answer)
    assert (answer.status_code, error["code"]) == (404, "not_found")
    assert "POST /v1/chat/completions" in error["message"]
    assert "GET /v1/models/{model}/endpoints, GET /v1/providers/openrouter/models" in error["message"]


async def test_an_unknown_route_is_answered_with_each_route_once(client: httpx.AsyncClient) -> None:
    message = error_of(await client.get("/nope"))["message"]
    assert message.count("/chat/completions") == 1
    assert message.endswith(", and each under /api/v1 as well")


@pytest.mark.parametrize(("method", "path", "allowed"), [
    ("GET", "/v1/chat/completions", "POST"), ("DELETE", "/v1/models", "GET"), ("POST", "/healthz", "GET")])
async def test_a_wrong_method_is_405_and_names_the_right_one(
        client: httpx.AsyncClient, method: str, path: str, allowed: str) -> None:
    answer = await client.request(method, path)
    assert (answer.status_code, error_of(answer)["code"]) == (405, "method_not_allowed")
    assert allowed in answer.headers["allow"]


@pytest.mark.parametrize("path", ["/v1/models", "/v1/models/x", "/healthz", "/nope", "/metrics"])
async def test_every_answer_is_named_once_and_differently(client: httpx.AsyncClient, path: str) -> None:
    names = [(await client.get(path)).headers.get_list("x-request-id") for _ in range(2)]
    assert [len(name) for name in names] == [1, 1]
    assert names[0] != names[1]
    assert names[0][0].startswith("req_")


async def test_a_fault_of_ours_is_500_in_openai_shape_and_named(edge: Edge) -> None:
    def broken() -> float:
        raise RuntimeError("secret detail")

    edge.metrics.outbox_bytes.set_function(broken)
    with capture_logs() as logs:
        async with edge.client() as client:
            answer = await client.get("/metrics")
    assert [(line["event"], line["path"]) for line in logs] == [("cold_route_failed", "/metrics")]
    assert (answer.status_code, error_of(answer)["code"]) == (500, "internal_error")
    assert answer.headers["x-request-id"]
    assert "secret detail" not in answer.text


async def test_the_edge_is_alive_before_it_is_ready() -> None:
    edge = Edge()
    edge.problem = PROBLEM
    async with edge.client() as client:
        assert (await client.get("/healthz")).status_code == 200
        ready, models = await client.get("/readyz"), await client.get("/v1/models")
    for answer in (ready, models):
        assert answer.status_code == 503
        assert PROBLEM in error_of(answer)["message"]
        assert answer.headers["retry-after"]


async def test_the_edge_stays_ready_while_the_control_plane_is_away(edge: Edge) -> None:
    edge.problem = PROBLEM
    async with edge.client() as client:
        answer = await client.get("/readyz")
    assert answer.status_code == 200
    assert answer.json() == {
        "status": "ready", "snapshot": {"lineage": 1, "version": 5}, "control_plane": PROBLEM}


@pytest.mark.parametrize("path", [
    "/healthz", "/readyz", "/v1/models", f"/v1/models/{MODEL}", f"/v1/models/{MODEL}/endpoints",
    "/v1/providers/openrouter/models"])
async def test_head_is_answered_like_get(client: httpx.AsyncClient, path: str) -> None:
    assert (await client.head(path)).status_code == 200


async def test_metrics_show_open_requests_and_the_outbox(edge: Edge, tmp_path: Path) -> None:
    edge.open_requests.enter("us-east-1")
    outbox = Outbox(tmp_path, 1 << 20, 1 << 20, edge.metrics)
    size: Callable[[], float] = lambda: outbox.size_bytes + 17  # noqa: E731
    edge.metrics.outbox_bytes.set_function(size)
    async with edge.client() as client:
        shown = (await client.get("/metrics")).text
    assert 'meridian_edge_open_requests{datacenter="us-east-1"} 1.0' in shown
    assert "meridian_edge_outbox_bytes 17.0" in shown
    outbox.close()

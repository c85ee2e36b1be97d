"""Embeddings: what their client gets, what is metered, and who is at fault when there are none."""

from openai import AsyncOpenAI

from control_plane.contracts.pricing import rate, usd_text
from control_plane.contracts.usage import Attempt, MeterSource, Outcome
from tests.integration.edge_api.hot.client import request
from tests.integration.edge_api.hot.conftest import HOME, OTHER, EdgeUnderTest
from tests.integration.edge_api.hot.datacenter import Datacenter, Upcall, refuses
from tests.unit.edge_api.builders import PRICE

PATH = "/api/v1/embeddings"
VECTORS = [[0.25, -1.0], [0.5, 2.0]]


async def embeds(call: Upcall) -> None:
    """Answers in the shape that frontends have: no id, and usage at the end."""
    assert call.path == "/v1/embeddings"
    data = [{"object": "embedding", "index": index, "embedding": vector} for index, vector in enumerate(VECTORS)]
    await call.answer(200, {"object": "list", "data": data, "model": call.body["model"],
                            "usage": {"prompt_tokens": 7, "total_tokens": 7}})


async def test_texts_are_embedded_and_metered_once(edge: EdgeUnderTest, home: Datacenter) -> None:
    home.script = embeds
    body = {"model": edge.client.model, "input": ["a", "b"]}
    answer = await edge.client.send(request(edge.client.key, body, path=PATH))
    assert answer.status == 200
    assert [item["embedding"] for item in answer.json["data"]] == VECTORS
    assert "id" not in answer.json
    record = await edge.record()
    assert (record.dialect, record.outcome, record.meter) == ("embeddings", Outcome.COMPLETED, MeterSource.ENGINE)
    assert (record.prompt_tokens, record.completion_tokens) == (7, 0)
    assert record.cost_usd == usd_text(rate(PRICE, 7, 0, 0).total_usd)
    assert answer.json["usage"]["cost"] == float(record.cost_usd)


async def test_openais_client_reads_them(edge: EdgeUnderTest, home: Datacenter) -> None:
    home.script = embeds
    async with AsyncOpenAI(base_url=f"http://127.0.0.1:{edge.client.port}/v1", api_key=edge.client.key) as client:
        found = await client.embeddings.create(model=edge.client.model, input=["a", "b"], encoding_format="float")
    assert [item.embedding for item in found.data] == VECTORS
    assert home.seen[0].body["input"] == ["a", "b"]


async def test_another_datacenter_embeds_when_home_fails(
        edge: EdgeUnderTest, home: Datacenter, other: Datacenter) -> None:
    edge.prefer_home()
    home.script, other.script = refuses(503), embeds
    answer = await edge.client.send(request(edge.client.key, {"model": edge.client.model, "input": "a"}, path=PATH))
    assert answer.status == 200
    assert (await edge.record()).attempts == [Attempt(HOME, 503, failed=True), Attempt(OTHER, 200)]


async def test_a_model_that_makes_none_is_no_fault_of_its_datacenters(
        edge: EdgeUnderTest, home: Datacenter, other: Datacenter) -> None:
    edge.prefer_home()
    home.script = other.script = refuses(404)
    answer = await edge.client.send(request(edge.client.key, {"model": edge.client.model, "input": "a"}, path=PATH))
    assert (answer.status, answer.error["code"]) == (404, "model_not_found")
    assert (await edge.record()).cost_usd == "0"

"""The unmodified SDKs read the lists of models from the cold routes on a socket."""

from collections.abc import AsyncIterator

import httpx
import pytest
from anthropic import AsyncAnthropic
from openai import AsyncOpenAI, NotFoundError

from edge_api.app import ColdParts, build_app
from edge_api.metrics import Metrics
from edge_api.open_requests import OpenRequests
from edge_api.snapshot.holder import TableHolder
from tests.integration.edge_api.control_plane import listening
from tests.unit.edge_api.builders import MODEL, snapshot

SECOND = "sim/other"


@pytest.fixture
async def address() -> AsyncIterator[str]:
    holder = TableHolder()
    holder.take(snapshot(models=(MODEL, SECOND)))
    app = build_app(ColdParts(holder, OpenRequests(), Metrics(), lambda: "", []))
    async with listening(app) as url:
        yield url


async def test_openais_client_lists_and_finds_models(address: str) -> None:
    async with AsyncOpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0) as client:
        assert [model.id async for model in client.models.list()] == [MODEL, SECOND]
        assert (await client.models.retrieve(MODEL)).id == MODEL
        with pytest.raises(NotFoundError) as missing:
            await client.models.retrieve("sim/nope")
    assert missing.value.code == "model_not_found"
    assert missing.value.request_id is not None


async def test_anthropics_client_lists_and_finds_models_page_by_page(address: str) -> None:
    async with AsyncAnthropic(base_url=address, auth_token="none", max_retries=0) as client:
        listed = [model async for model in client.models.list(limit=1)]
        found = await client.models.retrieve(f"claude-compat/{MODEL}")
    assert [model.id for model in listed] == [MODEL, SECOND, f"claude-compat/{MODEL}", f"claude-compat/{SECOND}"]
    assert (found.id, found.max_input_tokens) == (f"claude-compat/{MODEL}", 202_752)
    assert found._request_id is not None


@pytest.mark.parametrize("name", [MODEL, MODEL.replace("/", "%2F")])
async def test_a_models_name_may_be_encoded_or_not(address: str, name: str) -> None:
    async with httpx.AsyncClient(base_url=address) as client:
        assert (await client.get(f"/api/v1/models/{name}")).json()["id"] == MODEL
        assert (await client.get(f"/api/v1/models/{name}/endpoints")).json()["data"]["id"] == MODEL

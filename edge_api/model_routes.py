"""The lists of models, which need no key: OpenAI's shape, the Messages API's for who speaks it, OpenRouter's."""

from collections.abc import Callable
from typing import Annotated, Any

from fastapi import APIRouter, Header

from edge_api import errors
from edge_api.errors import Refusal
from edge_api.listings import endpoints, messages, models, provider
from edge_api.listings.aliases import resolve_alias
from edge_api.listings.quality import Quality
from edge_api.routing.table import RoutedModel, RoutingTable

READ = ["GET", "HEAD"]

AnthropicVersion = Annotated[str | None, Header()]


def model_routes(table: Callable[[], RoutingTable], quality: Quality) -> APIRouter:
    """The routes over the table in use; `table` refuses while there is none."""
    router = APIRouter()

    @router.api_route("/models", methods=READ)
    async def list_models(anthropic_version: AnthropicVersion = None, limit: str | None = None,
                          after_id: str | None = None, before_id: str | None = None) -> dict[str, Any]:
        if anthropic_version is not None:
            return messages.list_page(table(), limit, after_id, before_id)
        return models.list_models(table())

    @router.api_route("/models/{model_id:path}/endpoints", methods=READ)
    async def list_endpoints(model_id: str) -> dict[str, Any]:
        return endpoints.list_endpoints(find(table(), model_id), quality)

    @router.api_route("/models/{model_id:path}", methods=READ)
    async def model(model_id: str, anthropic_version: AnthropicVersion = None) -> dict[str, Any]:
        found = find(table(), model_id)
        return models.describe(found) if anthropic_version is None else messages.describe(found, model_id)

    @router.api_route("/providers/openrouter/models", methods=READ)
    async def list_provider() -> dict[str, Any]:
        return provider.list_provider(table())

    return router


def find(table: RoutingTable, name: str) -> RoutedModel:
    """The model of an id or an alias.

    Raises:
        Refusal: there is none.
    """
    found = table.models.get(resolve_alias(name))
    if found is None:
        raise Refusal(errors.MODEL_NOT_FOUND, f"the model {name[:200]!r} does not exist; GET /v1/models lists all",
                      param="model")
    return found

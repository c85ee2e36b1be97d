"""`GET /v1/providers/openrouter/models`: what OpenRouter reads of a provider, in its schema 2.4, which takes no
property that it does not know. Prices are strings, USD per token. A model that no datacenter takes is not ready, and
hidden there."""

from typing import Any

from control_plane.contracts.pricing import usd_text
from control_plane.contracts.snapshot import ModelFeature
from edge_api.listings.models import taking
from edge_api.listings.parameters import supported
from edge_api.routing.table import RoutedModel, RoutingTable

SCHEMA_VERSION = "2.4"
MAX_STOPS = 4
DESCRIPTORS: dict[str, dict[str, Any]] = {
    "temperature": {"type": "range", "min": 0, "max": 2}, "top_p": {"type": "range", "min": 0, "max": 1},
    "stop": {"type": "array", "max_items": MAX_STOPS}, "top_logprobs": {"type": "integer", "min": 0, "max": 20}}


def list_provider(table: RoutingTable) -> dict[str, Any]:
    """All models, by id."""
    return {"data": [document(table.models[model_id]) for model_id in sorted(table.models)]}


def document(model: RoutedModel) -> dict[str, Any]:
    """One model; what is not known of it is left out."""
    price, details = model.price, model.listing.details
    named = {"hugging_face_id": details.hugging_face_id, "tokenizer": details.tokenizer,
             "quantization": details.quantization}
    prompt = [_priced("prompt", usd_text(price.input_usd))]
    if price.cached_input_usd != price.input_usd:
        prompt.append(_priced("cached_prompt", usd_text(price.cached_input_usd)) | {"implicit": True})
    return {
        "schema_version": SCHEMA_VERSION, "id": model.id, "name": model.listing.display_name,
        "created": model.listing.created_s, **{name: value for name, value in named.items() if value},
        "input_modalities": [{
            "type": "text", "supported_inputs": {"max_context_length": _tokens(model.context_window)},
            "pricing": prompt}],
        "output_modalities": [_embeddings() if ModelFeature.EMBEDDINGS in details.features else _text(model)],
        "is_ready": bool(taking(model)),
        "is_free": not (price.input_usd or price.cached_input_usd or price.output_usd),
        "openrouter": {"slug": model.id},
    }


def _text(model: RoutedModel) -> dict[str, Any]:
    longest = {"max_tokens": {"type": "integer", "min": 1, "max": model.max_output_tokens, "unit": "token"}}
    descriptors = DESCRIPTORS | longest
    return {"type": "text", "max_length": _tokens(model.max_output_tokens), "streaming": True,
            "supported_parameters": {name: descriptors.get(name, {"type": "boolean"})
                                     for name in supported(model.listing.details)},
            "pricing": [_priced("completion", usd_text(model.price.output_usd))]}


def _embeddings() -> dict[str, Any]:
    return {"type": "embeddings", "supported_parameters": {}}


def _priced(kind: str, cost_usd: str) -> dict[str, Any]:
    return {"type": kind, "unit": "token", "cost_usd": cost_usd}


def _tokens(count: int) -> dict[str, Any]:
    return {"value": count, "unit": "token"}

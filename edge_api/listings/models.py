"""`GET /v1/models`: the models of the snapshot, readable for the OpenAI SDK, Prime's CLI and OpenRouter at once.

Prices come twice: as numbers per million tokens for display, as decimal strings per token for billing. The strings
are the truth.
"""

from decimal import Decimal
from typing import Any

from control_plane.contracts.pricing import Price, usd_text
from control_plane.contracts.snapshot import ModelDetails, ModelFeature
from edge_api.routing.table import RoutedModel, RoutingTable

MILLION = Decimal(1_000_000)


def list_models(table: RoutingTable) -> dict[str, Any]:
    """All models, by id."""
    return {"object": "list", "data": [describe(table.models[model_id]) for model_id in sorted(table.models)]}


def describe(model: RoutedModel) -> dict[str, Any]:
    """One model. Without a datacenter that takes requests it is still listed, `is_ready` false, with the reason."""
    places, details = taking(model), model.listing.details
    named = {"hugging_face_id": details.hugging_face_id, "tokenizer": details.tokenizer}
    described = {
        "id": model.id,
        "object": "model",
        "created": model.listing.created_s,
        "owned_by": model.listing.owned_by,
        "display_name": model.listing.display_name,
        "serving": "hosted",
        "is_ready": bool(places),
        "pricing": _pricing(model.price),
        "specs": {"context_window": model.context_window, "max_output_tokens": model.max_output_tokens,
                  **_known_specs(details)},
        **{name: value for name, value in named.items() if value},
        "service_tiers": ["default"],
        "datacenters": [{"id": datacenter, "region": region} for datacenter, region in places.items()],
    }
    return described if places else described | {"unavailable_reason": model.unroutable_reason}


def taking(model: RoutedModel) -> dict[str, str]:
    """The datacenters that take requests for a model, by id, each with its region."""
    places = {route.datacenter_id: route.region for route in model.routes if route.weight > 0}
    return dict(sorted(places.items()))


def unit_prices(price: Price) -> dict[str, str]:
    """USD per token, exactly."""
    return {"prompt": usd_text(price.input_usd), "completion": usd_text(price.output_usd),
            "input_cache_read": usd_text(price.cached_input_usd)}


def _pricing(price: Price) -> dict[str, Any]:
    return {
        "input_usd_per_mtok": float(price.input_usd * MILLION),
        "output_usd_per_mtok": float(price.output_usd * MILLION),
        "cache_read_usd_per_mtok": float(price.cached_input_usd * MILLION),
        "cache_write_usd_per_mtok": None,
        "unit_prices": unit_prices(price),
        "currency": "USD",
        "price_version": price.version,
    }


def _known_specs(details: ModelDetails) -> dict[str, Any]:
    """What somebody said of the model: without any feature nobody said which it has."""
    specs: dict[str, Any] = {"quantization": details.quantization} if details.quantization else {}
    if details.features:
        for feature in (ModelFeature.REASONING, ModelFeature.TOOLS, ModelFeature.STRUCTURED_OUTPUTS):
            specs[f"supports_{feature.value}"] = feature in details.features
    return specs

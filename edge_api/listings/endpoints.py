"""`GET /v1/models/{author}/{slug}/endpoints`: where a model is served, and how well of late, datacenter by datacenter.

The quality is what this edge saw of its own requests. A figure over too few of them is null.
"""

from typing import Any

from edge_api.listings.models import taking, unit_prices
from edge_api.listings.parameters import supported
from edge_api.listings.quality import Quality
from edge_api.routing.table import RoutedModel

PROVIDER = "Meridian"
NORMAL = 0


def list_endpoints(model: RoutedModel, quality: Quality) -> dict[str, Any]:
    """The datacenters that take requests for a model."""
    return {"data": {"id": model.id, "name": model.listing.display_name,
                     "endpoints": [_endpoint(model, datacenter, quality) for datacenter in taking(model)]}}


def _endpoint(model: RoutedModel, datacenter: str, quality: Quality) -> dict[str, Any]:
    return {
        "name": f"{PROVIDER} | {model.id} | {datacenter}",
        "tag": f"{PROVIDER.lower()}/{datacenter}",
        "status": NORMAL,
        "quantization": model.listing.details.quantization,
        "context_length": model.context_window,
        "max_completion_tokens": model.max_output_tokens,
        "max_prompt_tokens": None,
        "pricing": unit_prices(model.price),
        "supported_parameters": supported(model.listing.details),
        "supports_implicit_caching": model.price.cached_input_usd < model.price.input_usd,
        **quality.figures(model.id, datacenter),
    }

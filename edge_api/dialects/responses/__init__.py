"""OpenAI's Responses dialect, without a store, told from chat."""

from edge_api.dialects.responses.dialect import INPUT_TOKENS, RESPONSES

__all__ = ["INPUT_TOKENS", "RESPONSES"]

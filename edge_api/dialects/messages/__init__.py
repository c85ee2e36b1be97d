"""Anthropic's Messages dialect, told from chat."""

from edge_api.dialects.messages.dialect import COUNT_TOKENS, MESSAGES

__all__ = ["COUNT_TOKENS", "MESSAGES"]

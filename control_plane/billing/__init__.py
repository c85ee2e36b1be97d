"""Prices: immutable versions in USD per token, and what a record costs by one of them."""

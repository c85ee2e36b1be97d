"""Routing snapshots and the edges that route by them."""

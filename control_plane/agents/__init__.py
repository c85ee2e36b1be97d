"""Fleets' agents: their leases, what they observe, and what they are told."""

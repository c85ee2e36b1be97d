"""Continuing a broken stream in another datacenter, so that its client sees nothing but a pause."""

"""Capacity: how much each model can serve, how much it is asked for, and how replicas move between the two."""

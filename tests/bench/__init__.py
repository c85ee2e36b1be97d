"""Figures of the whole system, each printed by one command: `python -m tests.bench NAME`."""

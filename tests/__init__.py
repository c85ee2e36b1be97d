"""The tests. `python -m tests` runs them: the quick ones in at most 10 minutes, all of them with `--all`."""

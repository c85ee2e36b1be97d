"""`./dev test [--all] [pytest arguments]`."""

import sys

import pytest

# Most tests wait more than they compute: three at a time keep two cores busy.
SIDE_BY_SIDE = ["-n", "3", "--dist", "loadscope", "--no-loadscope-reorder"]


def main(arguments: list[str]) -> int:
    """Runs pytest; without `--all` the tests marked `slow` stay out. `-n 0` runs them one after the other."""
    rest = [argument for argument in arguments if argument != "--all"]
    marks = [] if "--all" in arguments or "-m" in rest else ["-m", "not slow"]
    spread = [] if "-n" in rest or "--pdb" in rest else SIDE_BY_SIDE
    return pytest.main([*spread, *marks, *rest])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

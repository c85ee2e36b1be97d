"""`./dev test [--all] [pytest arguments]`."""

import sys

import pytest


def main(arguments: list[str]) -> int:
    """Runs pytest; without `--all` the tests marked `slow` stay out."""
    rest = [argument for argument in arguments if argument != "--all"]
    marks = [] if "--all" in arguments or any(a == "-m" for a in rest) else ["-m", "not slow"]
    return pytest.main([*marks, *rest])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

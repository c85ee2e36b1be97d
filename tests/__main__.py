"""`./dev test [--all] [pytest arguments]`: files side by side, then what failed once more alone."""

import subprocess
import sys

import pytest

from tests.contract.environments.install import NAMES, environment

# Most tests wait more than they compute: three at a time keep two cores busy.
SIDE_BY_SIDE = ["-n", "3", "--dist", "loadscope", "--no-loadscope-reorder"]
# More failures than this are no accident of a crowded machine.
MAX_AGAIN = 24


class Failures:
    """The ids of what failed, whatever phase of it did."""

    def __init__(self) -> None:
        self.ids: dict[str, None] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.ids[report.nodeid] = None


def main(arguments: list[str]) -> int:
    """Runs pytest; without `--all` the tests marked `slow` stay out. `-n 0` runs them one after the other, once."""
    rest = [argument for argument in arguments if argument != "--all"]
    marks = [] if "--all" in arguments or "-m" in rest else ["-m", "not slow"]
    if "--all" in arguments:
        for name in NAMES:  # before any test: what installs hundreds of megabytes starves whatever runs beside it
            environment(name)
            print(f"the environment of {name} is there", flush=True)  # noqa: T201
    if "-n" in rest or "--pdb" in rest:
        return pytest.main([*marks, *rest])
    failures = Failures()
    status = pytest.main([*SIDE_BY_SIDE, *marks, *rest], plugins=[failures])
    if status == pytest.ExitCode.TESTS_FAILED and 0 < len(failures.ids) <= MAX_AGAIN:
        return once_more(list(failures.ids))
    return status


def once_more(ids: list[str]) -> int:
    """The verdict on tests that failed in a crowd: their deadlines are real time, so each is run again alone.

    They are named, so that one that keeps coming here is seen and mended.
    """
    print(f"\nFailed side by side, now alone: {len(ids)}", *ids, sep="\n  ", flush=True)  # noqa: T201
    command = [sys.executable, "-m", "pytest", "-n", "0", *ids]
    return subprocess.run(command, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

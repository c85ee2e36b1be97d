"""Rules on where things stand: the top level, the tests beside what they test, and how much of them there is."""

from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath

from tests.lint.sources import PACKAGES, Fault, Source

TOP_LEVEL = {*PACKAGES, "tests", "docs", ".ci", "pyproject.toml", "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "dev",
             "requirements.lock", ".gitignore", "LICENSE"}
# Where the tests of a package may stand; `engine` has tests on real Dynamo clusters, too.
KINDS = ("unit", "integration", "engine")
# Packages that are all of the package around them, and are tested as that.
TESTED_AS = {"engine/sim": "engine", "infra/local": "infra", "migrations/versions": "migrations"}


def top_level(paths: Iterable[str]) -> Iterator[Fault]:
    """Nothing stands at the top but what the design names."""
    for name in sorted({path.split("/", 1)[0] for path in paths} - TOP_LEVEL):
        yield Fault(name, 1, "does not belong at the top level")


def unit_tests_mirror(sources: Iterable[Source]) -> Iterator[Fault]:
    """`tests/unit/a/b` holds the tests of `a/b`, which exists."""
    paths = [source.path for source in sources]
    folders = {str(parent) for path in paths for parent in PurePosixPath(path).parents}
    for folder in sorted({str(PurePosixPath(path).parent) for path in paths if path.startswith("tests/unit/")}):
        mirrored = folder.removeprefix("tests/unit").lstrip("/")
        if mirrored and mirrored not in folders:
            yield Fault(folder, 1, f"mirrors {mirrored}, which does not exist")


def packages_are_tested(sources: Iterable[Source]) -> Iterator[Fault]:
    """Every package that holds code has a folder of tests of its own."""
    sources = list(sources)
    tested = {str(PurePosixPath(source.path).parent) for source in sources if source.package == "tests"}
    holding = {str(PurePosixPath(source.path).parent) for source in sources
               if source.is_product and not source.path.endswith("__init__.py")}
    for folder in sorted(holding):
        places = {f"tests/{kind}/{TESTED_AS.get(folder, folder)}" for kind in KINDS}
        if not any(place == test or test.startswith(place + "/") for place in places for test in tested):
            yield Fault(folder, 1, "has no folder of tests")


def tests_are_packages(paths: Iterable[str]) -> Iterator[Fault]:
    """Every folder of tests has an `__init__.py`, so that two tests may have one name."""
    paths = set(paths)
    for folder in sorted({str(PurePosixPath(path).parent) for path in paths
                          if path.startswith("tests/") and path.endswith(".py")}):
        if f"{folder}/__init__.py" not in paths:
            yield Fault(folder, 1, "has no __init__.py")


def written_lines(sources: Iterable[Source]) -> int:
    """Lines that are not blank."""
    return sum(1 for source in sources for line in source.lines if line.strip())


def enough_tests(sources: Iterable[Source]) -> Iterator[Fault]:
    """There is at least as much test as there is product; rules and benches are not counted."""
    sources = list(sources)
    product = written_lines(source for source in sources if source.is_product)
    tests = written_lines(source for source in sources if source.package == "tests"
                          and not source.path.startswith(("tests/lint/", "tests/bench/")))
    if tests < product:
        yield Fault("tests", 1, f"{tests:,} lines of tests for {product:,} lines of product")

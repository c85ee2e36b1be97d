"""The rules on where things stand: each shown to fail, then applied to the repository."""

from tests.lint import layout
from tests.lint.sources import Source, python_sources, tracked_paths

CODE = Source("edge_api/hot/relay.py", "x = 1\n\ny = 2\n")
TEST = Source("tests/unit/edge_api/hot/test_relay.py", "a = 1\nb = 2\n")


def test_a_stranger_at_the_top_is_found() -> None:
    assert list(layout.top_level(["scripts/x.sh"]))
    assert list(layout.top_level(["edge_api/x.py", "README.md"])) == []


def test_tests_of_what_does_not_exist_are_found() -> None:
    assert list(layout.unit_tests_mirror([TEST]))
    assert list(layout.unit_tests_mirror([TEST, CODE])) == []


def test_a_package_without_tests_is_found() -> None:
    assert list(layout.packages_are_tested([CODE]))
    assert list(layout.packages_are_tested([CODE, TEST])) == []


def test_a_folder_of_tests_that_is_no_package_is_found() -> None:
    assert list(layout.tests_are_packages([TEST.path]))
    assert list(layout.tests_are_packages([TEST.path, "tests/unit/edge_api/hot/__init__.py"])) == []


def test_too_few_tests_are_found() -> None:
    assert list(layout.enough_tests([CODE, CODE, TEST]))
    assert list(layout.enough_tests([CODE, TEST])) == []


def test_rules_and_benches_do_not_count_as_tests() -> None:
    assert list(layout.enough_tests([CODE, Source("tests/lint/shape.py", "x = 1\n" * 9)]))


def test_nothing_strange_stands_at_the_top() -> None:
    assert [str(fault) for fault in layout.top_level(tracked_paths())] == []


def test_unit_tests_mirror_the_packages() -> None:
    assert [str(fault) for fault in layout.unit_tests_mirror(python_sources())] == []


def test_every_package_has_its_tests() -> None:
    assert [str(fault) for fault in layout.packages_are_tested(python_sources())] == []


def test_every_folder_of_tests_is_a_package() -> None:
    assert [str(fault) for fault in layout.tests_are_packages(tracked_paths())] == []


def test_there_is_as_much_test_as_product() -> None:
    assert [str(fault) for fault in layout.enough_tests(python_sources())] == []

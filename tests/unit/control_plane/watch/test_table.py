"""The table of figures: names by the rules, labels that stay few."""

import ast
import re

import pytest

from control_plane.contracts.figures import Figure, FigureKind
from control_plane.watch.figures import FIGURES
from docs.metrics import known_metrics, sections
from tests.lint.sources import python_sources

LABELS = {"datacenter", "region", "state", "model", "deployment", "phase", "role", "fleet", "edge", "kind", "automatic",
          "rule", "step", "topic", "verdict", "direction", "outcome"}
METRIC_MAKERS = {"Counter", "Gauge", "Histogram", "Summary", "Tally", "Spread"}
DESCRIBED = [one for _, _, found in sections() for one in found]


@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: str(figure.name))
def test_a_figures_labels_are_declared_things_kinds_and_states(figure: Figure) -> None:
    assert set(figure.labels) <= LABELS
    assert figure.kind in FigureKind


@pytest.mark.parametrize("name", [one.name for one in DESCRIBED])
def test_a_name_says_whose_it_is_and_has_no_suffix_of_its_type(name: str) -> None:
    assert re.fullmatch(r"meridian_[a-z][a-z0-9]*(_[a-z0-9]+)+", name)
    assert not name.endswith(("_total", "_count", "_sum", "_bucket"))


@pytest.mark.parametrize("one", DESCRIBED, ids=lambda one: str(one.name))
def test_every_metric_says_what_it_means_in_a_sentence(one: object) -> None:
    meaning = str(getattr(one, "meaning", ""))
    assert meaning.endswith(".")
    assert meaning[0].isupper() or meaning[0].isdigit()


def test_no_two_metrics_share_a_name() -> None:
    names = [one.name for one in DESCRIBED]
    assert len(names) == len(set(names))
    assert len(known_metrics()) > len(names)


@pytest.mark.parametrize("one", DESCRIBED, ids=lambda one: str(one.name))
def test_durations_are_seconds_and_sizes_bytes(one: object) -> None:
    name = str(getattr(one, "name", ""))
    assert not re.search(r"_(ms|millis|milliseconds|minutes|hours|kb|mb|kib|mib)(_|$)", name)


def made_in_code() -> set[str]:
    """The name of every metric that the product's code makes."""
    return {node.args[0].value.removesuffix("_total")
            for source in python_sources() if source.is_product for node in ast.walk(source.tree)
            if isinstance(node, ast.Call) and source.dotted(node.func).rpartition(".")[2] in METRIC_MAKERS
            and node.args and isinstance(node.args[0], ast.Constant) and isinstance(node.args[0].value, str)}


def test_every_metric_that_the_code_makes_is_on_the_page() -> None:
    made = {name for name in made_in_code() if name.startswith("meridian_")}
    assert len(made) > 40
    assert made - {one.name for one in DESCRIBED} == set()

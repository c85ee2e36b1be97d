"""The rules, applied to the whole repository."""

from statistics import median

import pytest

from tests.lint import effects, shape
from tests.lint.sources import Rule, python_sources
from tests.lint.states import states_with_tables

RULES: list[Rule] = [
    shape.short_files, shape.short_functions, shape.telling_names, shape.docstrings, shape.narrow_excepts,
    shape.plain_log_events, shape.finished, shape.units_in_names, effects.injected_clock, effects.sql_in_its_place,
    effects.commit_in_its_place, effects.no_network_in_a_session, effects.no_clients_at_import,
]
MAX_MEDIAN_FUNCTION_LINES = 10


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_the_repository_keeps_the_rule(rule: Rule) -> None:
    faults = [str(fault) for source in python_sources() for fault in rule(source)]
    assert faults == [], "\n".join(["", rule.__doc__ or "", *faults])


def test_every_state_has_its_transition_table() -> None:
    faults = [str(fault) for fault in states_with_tables(python_sources())]
    assert faults == [], "\n".join(["", *faults])


def test_half_of_all_functions_have_fewer_than_ten_lines() -> None:
    lengths = [shape.function_lines(function) for source in python_sources() if source.is_product
               for function in shape.functions(source)]
    assert median(lengths) < MAX_MEDIAN_FUNCTION_LINES


def test_the_rules_see_the_repository() -> None:
    seen = {source.package for source in python_sources()}
    assert {"control_plane", "edge_api", "fleet_agent", "engine", "infra", "migrations", "tests"} <= seen

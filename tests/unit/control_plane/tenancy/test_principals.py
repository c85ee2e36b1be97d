"""Where a key may be served, of what its team and it allow."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from control_plane.contracts.keys import LimitScope
from control_plane.tenancy.models import KeyLimit
from control_plane.tenancy.principals import both, rate_limit

REGIONS = st.none() | st.lists(st.sampled_from(["us", "eu", "ap"]), unique=True)


@pytest.mark.parametrize(("team", "key", "allowed"), [
    (None, None, None), (["us", "eu"], None, ["eu", "us"]), (None, ["us"], ["us"]), (["us", "eu"], ["us"], ["us"]),
    (["us"], ["eu"], [])])
def test_a_key_is_served_where_both_allow(
        team: list[str] | None, key: list[str] | None, allowed: list[str] | None) -> None:
    assert both(team, key) == allowed


@given(REGIONS, REGIONS)
def test_a_key_never_widens_what_its_team_allows(team: list[str] | None, key: list[str] | None) -> None:
    allowed = both(team, key)
    for bound in (team, key):
        assert bound is None or (allowed is not None and set(allowed) <= set(bound))


def test_a_limit_names_whom_it_binds() -> None:
    limit = KeyLimit(id="limit_1", team_id="team_1", key_id="key_1", model_id="m", requests_per_minute=5)
    bound = rate_limit(limit)
    assert (bound.scope, bound.scope_id, bound.model_id) == (LimitScope.KEY, "key_1", "m")
    assert (bound.requests_per_minute, bound.tokens_per_minute, bound.concurrency) == (5, None, None)
    limit.key_id = None
    assert (rate_limit(limit).scope, rate_limit(limit).scope_id) == (LimitScope.TEAM, "team_1")

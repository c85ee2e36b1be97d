"""Cache salts: one a team, the same everywhere, and nobody else's to make."""

import re

from hypothesis import given
from hypothesis import strategies as st

from control_plane.contracts.signing import SigningKey
from control_plane.tenancy.salt import cache_salt

KEY = SigningKey.generate()


def test_a_salt_is_43_url_safe_characters() -> None:
    assert re.fullmatch(r"[A-Za-z0-9_-]{43}", cache_salt(KEY, "team_1"))


def test_it_is_the_same_each_time() -> None:
    assert cache_salt(KEY, "team_1") == cache_salt(KEY, "team_1")


def test_another_installation_has_another() -> None:
    assert cache_salt(KEY, "team_1") != cache_salt(SigningKey.generate(), "team_1")


@given(st.text(), st.text())
def test_two_teams_never_share_one(one: str, other: str) -> None:
    assert (cache_salt(KEY, one) == cache_salt(KEY, other)) is (one == other)


def test_it_does_not_hold_the_teams_name() -> None:
    assert "team_1" not in cache_salt(KEY, "team_1")

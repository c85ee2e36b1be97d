"""Creating and listing teams."""

import pytest

from control_plane.cli.teams import slug_of
from tests.unit.control_plane.cli.conftest import Meridian
from tests.unit.control_plane.cli.servers import OperatorServer


def test_a_team_gets_a_slug_from_its_name(meridian: Meridian, api: OperatorServer) -> None:
    ran = meridian("teams", "create", "Acme Research")
    assert ran.code == 0
    assert api.teams[0].slug == "acme-research"
    assert "Next: meridian keys create acme-research --name NAME" in ran.out


def test_a_slug_may_be_given(meridian: Meridian, api: OperatorServer) -> None:
    meridian("teams", "create", "Acme", "--slug", "a1")
    assert api.teams[0].slug == "a1"


def test_a_team_in_json_is_the_team_alone(meridian: Meridian) -> None:
    assert meridian("teams", "create", "Acme", "-o", "json").json["slug"] == "acme"


def test_a_second_team_of_the_same_slug_is_denied(meridian: Meridian) -> None:
    meridian("teams", "create", "Acme")
    ran = meridian("teams", "create", "Acme")
    assert (ran.code, ran.err) == (1, "error: there is a team acme already\n")


def test_a_name_without_a_letter_needs_a_slug(meridian: Meridian, api: OperatorServer) -> None:
    ran = meridian("teams", "create", "数学")
    assert ran.code == 2
    assert "with --slug" in ran.err
    assert api.calls == []


def test_a_name_that_is_too_long_is_a_usage_error(meridian: Meridian) -> None:
    assert meridian("teams", "create", "x" * 101).code == 2


def test_the_list_fits_eighty_columns(meridian: Meridian) -> None:
    meridian("teams", "create", "A team with quite a long name of its own, for its own reasons", "--slug", "long")
    assert max(len(line) for line in meridian("teams", "list").out.splitlines()) <= 80


def test_an_empty_list_says_how_to_begin(meridian: Meridian) -> None:
    assert meridian("teams", "list").out == "No teams yet: meridian teams create NAME\n"


def test_a_plain_list_can_be_cut_by_its_tabs(meridian: Meridian) -> None:
    meridian("teams", "create", "Acme")
    assert [line.split("\t")[0] for line in meridian("teams", "list", "-o", "plain").out.splitlines()] == [
        "TEAM", "acme"]


@pytest.mark.parametrize(("name", "slug"), [
    ("Acme", "acme"), ("  Acme -- Labs ", "acme-labs"), ("R&D 2", "r-d-2"), ("é", ""), ("x" * 90, "x" * 63)])
def test_a_slug_is_lower_case_with_dashes(name: str, slug: str) -> None:
    assert slug_of(name) == slug

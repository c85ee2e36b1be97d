"""The names by which a client may ask for a generation."""

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_api.account.generation_id import generation_id, parse_generation_id

REQUEST = UUID("01a3185c-5000-7f09-98e4-4cdd0c7c247b")


@pytest.mark.parametrize("name", [
    f"gen_{REQUEST.hex}", f"gen-{REQUEST.hex}", f"req_{REQUEST.hex}", REQUEST.hex, str(REQUEST), f"gen-{REQUEST}",
    REQUEST.hex.upper(), f"msg_{REQUEST.hex}", f"resp_{REQUEST.hex}"])
def test_every_name_of_a_request_is_its_id(name: str) -> None:
    assert parse_generation_id(name) == REQUEST


@pytest.mark.parametrize("name", [
    "", "gen-", "gen-01JE6Z9V7Q4K", f"chatcmpl-{REQUEST.hex}", REQUEST.hex[:-1], REQUEST.hex + "0",
    "b23de580-8dfe-40d8-8ae6-8253b05f503b",
    "0" * 32, "g" * 32, f"../{REQUEST}"])
def test_what_no_edge_ever_made_is_nobodys_id(name: str) -> None:
    assert parse_generation_id(name) is None


def test_an_answer_carries_the_name_of_the_header() -> None:
    assert generation_id(REQUEST) == f"gen_{REQUEST.hex}"


@given(st.text())
def test_whatever_is_asked_for_is_an_id_or_none(name: str) -> None:
    parsed = parse_generation_id(name)
    assert parsed is None or isinstance(parsed, UUID)

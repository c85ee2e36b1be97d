"""The names by which a client may ask for a generation."""

from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from control_plane.contracts import ids
from edge_api.account.generation_id import generation_id, parse_generation_id

REQUEST = ids.uuid7(1_800_000_000)


@pytest.mark.parametrize("name", [
    f"gen_{REQUEST.hex}", f"gen-{REQUEST.hex}", f"req_{REQUEST.hex}", REQUEST.hex, str(REQUEST), f"gen-{REQUEST}",
    REQUEST.hex.upper()])
def test_every_name_of_a_request_is_its_id(name: str) -> None:
    assert parse_generation_id(name) == REQUEST


@pytest.mark.parametrize("name", [
    "", "gen-", "gen-01JE6Z9V7Q4K", f"chatcmpl-{REQUEST.hex}", REQUEST.hex[:-1], REQUEST.hex + "0", str(uuid4()),
    "0" * 32, "g" * 32, f"../{REQUEST}"])
def test_what_no_edge_ever_made_is_nobodys_id(name: str) -> None:
    assert parse_generation_id(name) is None


def test_an_answer_carries_the_name_of_the_header() -> None:
    assert generation_id(REQUEST) == f"gen_{REQUEST.hex}"


@given(st.text())
def test_whatever_is_asked_for_is_an_id_or_none(name: str) -> None:
    parsed = parse_generation_id(name)
    assert parsed is None or isinstance(parsed, UUID)

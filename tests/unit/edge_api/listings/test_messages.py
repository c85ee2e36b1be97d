"""The list of models as clients of the Messages API read it."""

from typing import Any

import pytest
from anthropic.types import ModelInfo

from edge_api.errors import Refusal
from edge_api.listings.aliases import alias_of, resolve_alias
from edge_api.listings.messages import describe, list_page
from edge_api.routing.table import build_table
from tests.unit.edge_api.builders import MODEL, snapshot

TABLE = build_table(snapshot(models=("sim/a", "sim/b", "sim/c")))
ALL = ["sim/a", "sim/b", "sim/c", "claude-compat/sim/a", "claude-compat/sim/b", "claude-compat/sim/c"]


def ids(page: dict[str, Any]) -> list[str]:
    return [model["id"] for model in page["data"]]


def test_every_model_is_listed_by_its_id_and_by_its_alias() -> None:
    page = list_page(TABLE, None, None, None)
    assert ids(page) == ALL
    assert (page["has_more"], page["first_id"], page["last_id"]) == (False, ALL[0], ALL[-1])


def test_pages_forwards_show_each_model_once() -> None:
    seen, after = [], None
    for _ in range(3):
        page = list_page(TABLE, "2", after, None)
        seen += ids(page)
        after = page["last_id"]
    assert (seen, page["has_more"]) == (ALL, False)


def test_a_page_backwards_ends_before_the_id() -> None:
    page = list_page(TABLE, "2", None, ALL[3])
    assert (ids(page), page["has_more"]) == (ALL[1:3], True)
    assert list_page(TABLE, "2", None, ALL[1])["has_more"] is False


def test_a_page_beyond_the_last_is_empty() -> None:
    page = list_page(TABLE, None, ALL[-1], None)
    assert page == {"data": [], "has_more": False, "first_id": None, "last_id": None}


@pytest.mark.parametrize("limit", ["0", "-1", "x", "1001", "1e2", "", "99999999999", "\u0663"])
def test_a_limit_that_is_none_is_refused(limit: str) -> None:
    with pytest.raises(Refusal, match="limit must be a number"):
        list_page(TABLE, limit, None, None)


def test_an_id_that_is_not_listed_is_refused() -> None:
    with pytest.raises(Refusal) as refused:
        list_page(TABLE, None, "nope", None)
    assert refused.value.param == "after_id"


def test_a_model_is_what_the_sdk_expects() -> None:
    shown = ModelInfo.model_validate(describe(build_table(snapshot()).models[MODEL], alias_of(MODEL)), strict=False)
    assert (shown.id, shown.type, shown.max_input_tokens, shown.max_tokens) == (
        f"claude-compat/{MODEL}", "model", 202_752, 131_072)
    assert shown.created_at.timestamp() == 1_758_499_200


@pytest.mark.parametrize(("name", "model_id"), [
    (f"claude-compat/{MODEL}", MODEL), (MODEL, MODEL), ("", ""), ("a/claude-compat/b", "a/claude-compat/b")])
def test_an_alias_means_its_model_and_every_other_name_itself(name: str, model_id: str) -> None:
    assert resolve_alias(name) == model_id

"""Requests that are written so that less is reserved for them than they can use."""

import json
from dataclasses import replace
from typing import Any

import pytest

from control_plane.contracts import ids
from control_plane.contracts.keys import LimitScope, Principal, Scope
from edge_api.dialects.base import Dialect
from edge_api.dialects.plain import CHAT, COMPLETIONS, EMBEDDINGS
from edge_api.errors import Refusal
from edge_api.hot.request import Prepared, prepare, worst_case
from edge_api.hot.services import Need
from edge_api.routing.table import RoutedModel, build_table
from tests.integration.edge_api.hot.client import request
from tests.integration.edge_api.hot.conftest import EdgeUnderTest
from tests.integration.edge_api.hot.datacenter import Datacenter
from tests.unit.edge_api.admission.parts import Place, principal
from tests.unit.edge_api.admission.parts import need as some_need
from tests.unit.edge_api.builders import MODEL, snapshot

WHO = Principal(key_id="key_1", team_id="team_1", key_name="test", scopes=[Scope.INFERENCE])
ROUTED = replace(build_table(snapshot()).models[MODEL], context_window=1_000, max_output_tokens=100)
LEAST: dict[str, dict[str, Any]] = {"chat": {"messages": [{"role": "user", "content": "hi"}]},
                                    "completions": {"prompt": "hi"}, "embeddings": {"input": "hi"}}


def prepared(dialect: Dialect, model: RoutedModel = ROUTED, **fields: Any) -> Prepared:
    body = json.dumps({"model": MODEL, **LEAST[dialect.name], **fields}).encode()
    return prepare(dialect.read(body, {}, ids.uuid7()), model, False)


def need(dialect: Dialect, model: RoutedModel = ROUTED, **fields: Any) -> Need:
    return worst_case(ids.uuid7(), WHO, model, prepared(dialect, model, **fields))


@pytest.mark.parametrize("limit", [-1, 0, -(10**15)])
@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens"])
async def test_an_answer_of_less_than_one_token_is_refused_and_frees_no_allowance(
        edge: EdgeUnderTest, home: Datacenter, name: str, limit: int) -> None:
    fields: dict[str, Any] = {name: limit}
    answer = await edge.client.ask(**fields)
    assert (answer.status, answer.error["param"]) == (400, name)
    assert not home.seen


@pytest.mark.parametrize("n", [0, -1])
def test_fewer_choices_than_one_free_no_allowance(n: int) -> None:
    with pytest.raises(Refusal):
        need(CHAT, n=n)


def test_a_limit_that_only_chat_knows_does_not_bound_a_completion() -> None:
    """Frontends read `max_tokens` alone there."""
    assert need(COMPLETIONS, max_completion_tokens=1).completion_tokens == 1_000
    assert need(COMPLETIONS, max_completion_tokens=1, max_tokens=50).completion_tokens == 50


def test_a_limit_that_only_chat_knows_does_not_keep_the_models_default_from_a_completion() -> None:
    pieces = prepared(COMPLETIONS, replace(ROUTED, default_max_tokens=7), max_completion_tokens=1).pieces
    assert json.loads(b"".join(pieces))["max_tokens"] == 7


def test_an_answer_that_nobody_limits_may_fill_the_context() -> None:
    assert need(CHAT).completion_tokens == 1_000
    assert need(CHAT, replace(ROUTED, default_max_tokens=7)).completion_tokens == 7
    assert need(CHAT, max_tokens=None, n=2).completion_tokens == 2_000


@pytest.mark.parametrize("limit", [0, -5, 101])
def test_a_completions_own_limit_is_checked_whatever_else_it_names(limit: int) -> None:
    with pytest.raises(Refusal) as refused:
        need(COMPLETIONS, max_tokens=limit, max_completion_tokens=1)
    assert refused.value.param == "max_tokens"


@pytest.mark.parametrize("prompt", [["a", "b", "c"], [[1, 2], [3], [4]], [["a"], ["b"], ["c"]]])
def test_each_of_several_prompts_has_an_answer(prompt: list[Any]) -> None:
    assert need(COMPLETIONS, prompt=prompt, max_tokens=10).completion_tokens == 30


@pytest.mark.parametrize("prompt", ["[1]", [1, 2, 3], ["a"]])
def test_one_prompt_has_one_answer(prompt: Any) -> None:
    assert need(COMPLETIONS, prompt=prompt, max_tokens=10).completion_tokens == 10


@pytest.mark.parametrize(("dialect", "name"), [(COMPLETIONS, "prompt"), (EMBEDDINGS, "input")])
def test_several_prompts_together_may_be_longer_than_the_context(dialect: Dialect, name: str) -> None:
    several: dict[str, Any] = {name: ["x" * 900] * 5}
    one: dict[str, Any] = {name: "x" * 900 * 5}
    assert need(dialect, **several).prompt_tokens >= 4_500
    assert need(dialect, **one).prompt_tokens == 1_000


def test_embeddings_generate_nothing() -> None:
    assert need(EMBEDDINGS).completion_tokens == 0


@pytest.mark.parametrize("fields", [{"n": 2}, {"stream": True}])
async def test_several_prompts_are_refused_where_their_tokens_could_not_be_told_apart(
        edge: EdgeUnderTest, home: Datacenter, fields: dict[str, Any]) -> None:
    body = {"model": edge.client.model, "prompt": ["a", "b"], "max_tokens": 1, **fields}
    answer = await edge.client.send(request(edge.client.key, body, path="/v1/completions"))
    assert (answer.status, answer.error["param"]) == (400, "prompt")
    assert not home.seen


async def test_a_crowd_of_prompts_is_refused(edge: EdgeUnderTest, home: Datacenter) -> None:
    body = {"model": edge.client.model, "prompt": ["a"] * 10_000, "max_tokens": 1}
    answer = await edge.client.send(request(edge.client.key, body, path="/v1/completions"))
    assert (answer.status, answer.error["param"]) == (400, "prompt")
    assert not home.seen


def test_whoever_holds_a_stream_for_ever_has_spent_what_was_reserved_for_it() -> None:
    """A client that reads as slowly as it may outlasts its grant; its money must not be lent to the next one."""
    place = Place(longest_request_s=100.0)
    money = place.parts.bank.account(LimitScope.TEAM, "team_1")
    money.purse.add("lease_1", 1_000)
    who = principal(money=[LimitScope.TEAM])
    granted = place.gate.admit_now(some_need(who, cost_nusd=900))
    assert granted is not None
    place.clock.advance(101)
    place.tend()
    assert (money.purse.free_nusd, money.purse.leases[0].spent_nusd) == (100, 900)
    granted.settle(5, 400)
    granted.release()
    assert (money.purse.free_nusd, money.purse.leases[0].reservations) == (100, 0)

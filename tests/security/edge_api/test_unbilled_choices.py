"""Requests for several choices that have engines work and bill nobody."""

import tracemalloc
from typing import Any

import pytest
from annotated_types import Le

from control_plane.contracts import ids
from control_plane.contracts.usage import MeterSource, Outcome
from control_plane.usage.intake import MAX_ATTEMPTS
from edge_api.dialects.plain import CHAT
from edge_api.hot.request import MAX_CHOICES, choice_of, one_choice, prepare
from edge_api.routing.table import build_table
from edge_api.settings import Settings
from tests.integration.edge_api.hot.client import request
from tests.integration.edge_api.hot.conftest import HOME, OTHER, EdgeUnderTest, until
from tests.integration.edge_api.hot.datacenter import Datacenter, Upcall, refuses, whole_answer
from tests.unit.edge_api.builders import MODEL, snapshot

TEXT = b"word " * 200_000


class Nth:
    """Answers so many requests, and works at the others until they are given up."""

    def __init__(self, answered: int) -> None:
        self.answered, self.seen = answered, 0

    async def __call__(self, call: Upcall) -> None:
        self.seen += 1
        if self.seen <= self.answered:
            await call.answer(200, whole_answer("a", prompt=50, completion=3))
        else:
            await call.until_abandoned()


@pytest.mark.parametrize("answered", [0, 1])
async def test_choices_that_a_client_leaves_unread_wait_for_the_engines_witness(
        edge: EdgeUnderTest, home: Datacenter, answered: int) -> None:
    script = home.script = Nth(answered)
    async with edge.client.connection() as connection:
        await connection.send(edge.client.request(n=2))
        await until(lambda: script.seen == 2)
        await until(lambda: sum(edge.open_requests.counts().values()) == 2 - answered)
    record = await edge.record()
    assert (record.outcome, record.meter) == (Outcome.CLIENT_GONE, MeterSource.PROVISIONAL)
    assert record.completion_tokens == 3 * answered


async def test_each_attempt_of_each_choice_is_counted_under_its_own_name(
        edge: EdgeUnderTest, home: Datacenter, other: Datacenter) -> None:
    """Two of one name would be one to whoever compares an engine's counts with the record."""
    home.script = refuses(503)
    edge.prefer_home()
    assert (await edge.client.ask(n=3)).status == 200
    record = await edge.record()
    places = {HOME: home, OTHER: other}
    names = {call.headers["x-request-id"]: place for place in places for call in places[place].seen}
    assert {name: record.attempts[int(name.rpartition(".")[2]) - 1].datacenter_id for name in names} == names
    assert len(names) == len(record.attempts) == 6


@pytest.mark.parametrize("fields", [{"n": 8}, {"stream": True}])
async def test_embeddings_are_made_once_for_one_bill(
        edge: EdgeUnderTest, home: Datacenter, fields: dict[str, Any]) -> None:
    body = {"model": edge.client.model, "input": "a", **fields}
    answer = await edge.client.send(request(edge.client.key, body, path="/v1/embeddings"))
    assert (answer.status, answer.error["param"]) == (400, next(iter(fields)))
    assert not home.seen


@pytest.mark.parametrize("more", [b"", b',"seed":7', b',"stream":true', b',"stream":true,"seed":7,"nvext":{}'])
def test_the_choices_of_a_long_request_share_its_bytes(more: bytes) -> None:
    model = build_table(snapshot()).models[MODEL]
    body = b'{"model":"%b","n":8,"messages":[{"role":"user","content":"%b"}]%b}' % (MODEL.encode(), TEXT, more)
    prepared = prepare(CHAT.read(body, {}, ids.uuid7()), model, False)
    tracemalloc.start()
    alone = one_choice(prepared, model)
    choices = [choice_of(alone, index, lambda: pytest.fail("nothing is told")) for index in range(8)]
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held < 3 * len(TEXT)
    assert all(TEXT in b"".join(choice.pieces) for choice in choices)
    assert all(sum(map(len, choice.pieces)) == choice.length for choice in choices)


def test_a_record_of_as_many_attempts_as_may_be_made_is_billed() -> None:
    """One with more goes to quarantine, where nobody pays for it."""
    most = next(rule.le for rule in Settings.model_fields["max_attempts"].metadata if isinstance(rule, Le))
    assert isinstance(most, int)
    assert MAX_CHOICES * most <= MAX_ATTEMPTS

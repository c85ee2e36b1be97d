"""A prompt beyond the context window, which Dynamo answers with a bare 500."""

from dataclasses import replace

import pytest

from edge_api.hot.failure import Failure, FailureKind
from edge_api.hot.request import Prepared
from edge_api.hot.too_long import may_be_too_long
from tests.integration.edge_api.hot.conftest import EdgeUnderTest
from tests.integration.edge_api.hot.datacenter import Datacenter, Upcall, refuses

WINDOW = 100


def counts(tokens: int, status: int = 500):  # type: ignore[no-untyped-def]
    """Cannot bear any request, and says how many tokens its prompt has."""

    async def script(call: Upcall) -> None:
        if "annotations" not in call.body.get("nvext", {}):
            await refuses(status)(call)
            return
        ids = ",".join(["7"] * tokens)
        await call.begin_stream()
        await call.send(f'event: token_ids\n: "[{ids}]"\n\n'.encode())
        await call.end_stream()
    return script


@pytest.fixture
def narrow(edge: EdgeUnderTest) -> EdgeUnderTest:
    """The model has a small window, and both datacenters serve it."""
    edge.prefer_home()
    table = edge.holder.current
    assert table is not None
    table.models[edge.client.model] = replace(table.models[edge.client.model], context_window=WINDOW)
    return edge


LONG = [{"role": "user", "content": "word " * 60}]


async def test_a_prompt_that_is_too_long_is_refused_with_its_length(
        narrow: EdgeUnderTest, home: Datacenter, other: Datacenter) -> None:
    home.script = other.script = counts(150)
    answer = await narrow.client.ask(messages=LONG)
    assert (answer.status, answer.error["code"], answer.error["param"]) == (400, "context_length_exceeded", "messages")
    assert "150 tokens" in answer.error["message"]
    assert str(WINDOW) in answer.error["message"]
    assert answer.headers["x-should-retry"] == "false"
    assert len(other.seen) == 0
    assert (await narrow.record()).cost_usd == "0"


async def test_a_prompt_that_fits_is_tried_elsewhere(
        narrow: EdgeUnderTest, home: Datacenter, other: Datacenter) -> None:
    home.script = counts(60)
    assert (await narrow.client.ask(messages=LONG)).status == 200
    assert len(other.seen) == 1


async def test_a_prompt_that_nobody_can_count_is_tried_elsewhere(
        narrow: EdgeUnderTest, home: Datacenter, other: Datacenter) -> None:
    home.script = refuses(500)
    assert (await narrow.client.ask(messages=LONG)).status == 200


async def test_a_short_body_is_never_counted(narrow: EdgeUnderTest, home: Datacenter, other: Datacenter) -> None:
    home.script = counts(150)
    assert (await narrow.client.ask(messages=[{"role": "user", "content": "hi"}])).status == 200
    assert len(home.seen) == 1


def test_only_a_plain_500_is_worth_asking_about(narrow: EdgeUnderTest) -> None:
    table = narrow.holder.current
    assert table is not None
    model = table.models[narrow.client.model]
    prepared = Prepared(None, [], WINDOW + 1, False, None)  # type: ignore[arg-type]
    assert may_be_too_long(Failure(FailureKind.BROKEN, 500), prepared, model)
    for failure in (Failure(FailureKind.BROKEN, 502), Failure(FailureKind.OVERLOADED, 503), Failure(FailureKind.LOST)):
        assert not may_be_too_long(failure, prepared, model)

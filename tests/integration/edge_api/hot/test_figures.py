"""What the edge counts for its objectives: answers that broke, and how fast tokens came."""

import pytest

from tests.integration.edge_api.hot.conftest import EdgeUnderTest
from tests.integration.edge_api.hot.datacenter import DONE, Datacenter, chunk, refuses, streams

BEGUN = (chunk(" a", [1, 2], completion=2, prompt=50, cached=20), chunk(" b", [3], completion=3, prompt=50, cached=20))
WHOLE = streams(*BEGUN, chunk("", [], finish="stop", completion=3, prompt=50), DONE)


def value(edge: EdgeUnderTest, name: str, **labels: str) -> float:
    return edge.metrics.registry.get_sample_value(name, labels) or 0.0


async def test_a_stream_that_breaks_is_counted_beside_its_200(edge: EdgeUnderTest, home: Datacenter) -> None:
    home.script = streams(*BEGUN)
    await edge.client.ask(stream=True)
    await edge.record()
    assert value(edge, "meridian_edge_broken_answers_total") == 1
    assert value(edge, "meridian_edge_answers_total", status="200") == 1
    assert value(edge, "meridian_edge_token_gap_seconds_count") == 0


async def test_a_stream_that_ends_well_tells_the_time_between_its_tokens(
        edge: EdgeUnderTest, home: Datacenter) -> None:
    home.script = WHOLE
    await edge.client.ask(stream=True)
    await edge.record()
    assert value(edge, "meridian_edge_broken_answers_total") == 0
    assert value(edge, "meridian_edge_token_gap_seconds_count") == 1
    assert 0 <= value(edge, "meridian_edge_token_gap_seconds_sum") < 1


@pytest.mark.parametrize("status", [400, 500])
async def test_a_refusal_breaks_nothing(edge: EdgeUnderTest, home: Datacenter, other: Datacenter, status: int) -> None:
    home.script = other.script = refuses(status)
    answer = await edge.client.ask(stream=True)
    assert answer.status != 200
    await edge.record()
    assert value(edge, "meridian_edge_broken_answers_total") == 0
    assert value(edge, "meridian_edge_token_gap_seconds_count") == 0

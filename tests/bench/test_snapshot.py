"""Every edge uses a change of routing within a second; the bench measures it at a larger size."""

import pytest

from tests.bench.harness import percentile
from tests.bench.snapshot import LIMIT_S, measure

EDGES, CHANGES = 3, 24


@pytest.mark.slow
async def test_a_change_of_routing_is_used_by_every_edge_within_a_second() -> None:
    samples = sorted(await measure(EDGES, CHANGES))
    assert len(samples) == EDGES * CHANGES
    assert samples[0] > 0
    assert percentile(samples, 99) <= LIMIT_S, samples[-5:]

"""Usage under faults: a database that goes away, answers that get lost, and whole random histories against a model."""

import asyncio
import random
from decimal import Decimal
from pathlib import Path
from uuid import UUID

import msgspec
import pytest

from control_plane.contracts.enrolment import IdentityKind
from control_plane.contracts.usage import UsageRecord, Verdict
from tests.integration.control_plane.gate import gated
from tests.integration.control_plane.replica import running_replica
from tests.integration.control_plane.usage.conftest import Metered
from tests.unit.control_plane.usage.frames import Maker, batch


async def test_a_batch_during_the_databases_absence_is_refused_and_stored_once_later(
        database_url: str, tmp_path: Path) -> None:
    async with gated(database_url) as (gate, url), running_replica(url, tmp_path) as replica:
        team = await replica.team()
        key = await replica.key(team.id)
        await replica.price()
        metered = Metered(replica, await replica.enrolled(IdentityKind.EDGE), Maker(team.id, key.id))
        frames = [metered.maker.record(metered.now_s - number) for number in range(20)]
        await metered.ship(metered.maker.record(metered.now_s))
        await gate.close()
        refused = await metered.post(batch(*frames))
        await gate.open()
        assert (refused.status_code, refused.json()["code"]) == (503, "database_away")
        assert await metered.ship(*frames) == [Verdict.STORED] * 20
        assert await metered.rows("SELECT count(*) FROM usage_record") == [(21,)]


async def test_a_batch_whose_edge_gave_up_waiting_is_stored_whole_or_not_at_all(metered: Metered) -> None:
    frames = [metered.maker.record(metered.now_s - number) for number in range(200)]
    for delay_s in (0.0, 0.005, 0.02, 0.05):
        shipping = asyncio.create_task(metered.post(batch(*frames)))
        await asyncio.sleep(delay_s)
        shipping.cancel()
        await asyncio.gather(shipping, return_exceptions=True)
        ((count,),) = await metered.rows("SELECT count(*) FROM usage_record")
        assert count in (0, 200)
    assert set(await metered.ship(*frames)) <= {Verdict.STORED, Verdict.DUPLICATE}
    assert await metered.rows("SELECT count(*) FROM usage_record") == [(200,)]


class Model:
    """What the store must hold: the first content of each id, for ever."""

    def __init__(self) -> None:
        self.stored: dict[UUID, UsageRecord] = {}

    def verdict(self, record: UsageRecord) -> Verdict:
        first = self.stored.setdefault(record.request_id, record)
        if first is record:
            return Verdict.STORED
        return Verdict.DUPLICATE if first == record else Verdict.CONFLICT


def random_batch(chance: random.Random, maker: Maker, now_s: float, shipped: list[UsageRecord]) -> list[UsageRecord]:
    """New records, repeats, and records that contradict earlier ones."""
    frames = []
    for _ in range(chance.randint(1, 30)):
        kind = chance.random()
        if kind < 0.5 or not shipped:
            frames.append(maker.record(
                now_s - chance.uniform(0, 3 * 86_400), completion_tokens=chance.randint(10, 90)))
        elif kind < 0.85:
            frames.append(msgspec.structs.replace(chance.choice(shipped)))
        else:
            frames.append(msgspec.structs.replace(chance.choice(shipped), finish_reason=f"other-{chance.random()}"))
    return sorted(frames, key=lambda frame: frame.request_id)


@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_any_history_of_batches_leaves_what_the_model_says(metered: Metered, seed: int) -> None:
    chance, model, shipped = random.Random(seed), Model(), list[UsageRecord]()
    for _ in range(12):
        frames = random_batch(chance, metered.maker, metered.now_s, shipped)
        expected = [model.verdict(frame) for frame in frames]
        assert await metered.ship(*frames) == expected
        shipped += frames
    total = sum((Decimal(record.cost_usd) for record in model.stored.values()), Decimal(0))
    assert await metered.rows("SELECT count(*), sum(cost_usd) FROM usage_record") == [(len(model.stored), total)]
    reasons = [r for r, in await metered.rows("SELECT DISTINCT reason FROM usage_quarantine")]
    assert reasons in ([], ["contradiction"])

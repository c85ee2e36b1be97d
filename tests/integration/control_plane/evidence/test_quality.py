"""Minutes of quality on a real database: repeats change nothing, sums are right, figures from too few are null."""

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from control_plane.contracts.clock import utc
from control_plane.contracts.evidence import ITL_BOUNDS_S, TTFT_BOUNDS_S, QualityMinute
from control_plane.evidence import service
from control_plane.evidence.tasks import prune_minutes
from tests.integration.control_plane.evidence.voting import AMERICA, EUROPE, VotingEdge, voting_world
from tests.integration.control_plane.replica import MODEL
from tests.integration.control_plane.simulated import World

REGIONS = {AMERICA: "america", EUROPE: "europe"}


@pytest.fixture
async def world(database_url: str, tmp_path: Path) -> AsyncIterator[World]:
    async with voting_world(database_url, tmp_path, AMERICA, EUROPE, edges=2) as (made, _):
        yield made


def edges(world: World) -> list[VotingEdge]:
    return [edge for edge in world.edges if isinstance(edge, VotingEdge)]


def minute(world: World, minutes_ago: int = 0, **changes: Any) -> QualityMinute:
    at = int(world.replica.context.clock.time_s() // 60 - minutes_ago) * 60
    ttft, itl = [0] * (len(TTFT_BOUNDS_S) + 1), [0] * (len(ITL_BOUNDS_S) + 1)
    ttft[3], itl[1] = 150, 150
    return QualityMinute(**{
        "minute": at, "model_id": MODEL, "datacenter_id": AMERICA, "succeeded": 150, "failed": 50, "excluded": 7,
        "ttft": ttft, "itl": itl, "prompt_tokens": 1_000, "completion_tokens": 100} | changes)


async def tell(edge: VotingEdge, *minutes: QualityMinute) -> None:
    edge.minutes = list(minutes)
    await edge.sync()


async def since(world: World, minutes_ago: int, models: list[str] | None = None) -> dict[str, Any]:
    moment = utc(world.replica.context.clock.time_s()) - timedelta(minutes=minutes_ago)
    async with world.replica.context.db.begin() as session:
        return dict(await service.quality_since(session, models, moment))


async def stored(world: World) -> int:
    async with world.replica.context.db.begin() as session:
        return int((await session.execute(text("SELECT count(*) FROM quality_minute"))).scalar_one())


async def test_a_repeated_report_changes_nothing_and_a_later_one_replaces_it(world: World) -> None:
    edge, now = edges(world)[0], minute(world)
    await tell(edge, now)
    await tell(edge, now)
    assert (await since(world, 1))[AMERICA].succeeded == 150
    await tell(edge, now.model_copy(update={"succeeded": 160}))
    assert (await since(world, 1))[AMERICA].succeeded == 160


async def test_edges_boots_and_minutes_add_up(world: World) -> None:
    first, second = edges(world)
    await tell(first, minute(world), minute(world, 1))
    await tell(second, minute(world))
    first.boot_id = "boot-2"
    await tell(first, minute(world))
    counts = (await since(world, 5))[AMERICA]
    assert (counts.succeeded, counts.failed, sum(counts.ttft), sum(counts.itl)) == (600, 200, 600, 600)
    assert (counts.ttft[3], counts.itl[1]) == (600, 600)


async def declare_another_model(world: World, model_id: str) -> None:
    document = (await world.replica.client.get("/operator/v1/topology", headers=world.operator)).json()
    first = document["models"][0]
    document["models"].append(first | {"id": model_id, "price": first["price"] | {"version": f"pv_{model_id}"}})
    answer = await world.replica.client.put("/operator/v1/topology", json=document, headers=world.operator)
    assert answer.status_code == 200, answer.text


async def test_counts_are_of_the_models_asked_for_and_from_the_minute_asked_for(world: World) -> None:
    await declare_another_model(world, "other")
    await tell(edges(world)[0], minute(world, model_id="other"), minute(world, 10))
    assert (await since(world, 5, [MODEL])) == {}
    assert (await since(world, 10, [MODEL]))[AMERICA].succeeded == 150
    assert (await since(world, 10))[AMERICA].succeeded == 300


async def test_minutes_of_what_nobody_declared_are_not_kept(world: World) -> None:
    await tell(edges(world)[0], minute(world, model_id="other"), minute(world, datacenter_id="elsewhere"))
    assert await stored(world) == 0


@pytest.mark.parametrize("changes", [{"minute": 60}, {"minute": 2**40 * 60}, {"minute": 1_800_000_007}])
async def test_minutes_of_another_time_are_not_believed(world: World, changes: dict[str, int]) -> None:
    await tell(edges(world)[0], minute(world, **changes))
    assert await stored(world) == 0


async def test_figures_are_by_region_and_everywhere_and_null_from_too_few(world: World) -> None:
    few = minute(world, datacenter_id=EUROPE, succeeded=99, failed=0, ttft=[99], itl=[99])
    await tell(edges(world)[0], minute(world), few, minute(world, 20, datacenter_id=EUROPE, succeeded=50, failed=0))
    async with world.replica.context.db.begin() as session:
        figures = await service.quality_by_region(session, REGIONS)
    america, europe, everywhere = (figures[MODEL, place] for place in ("america", "europe", None))
    assert (america.uptime_5m, america.uptime_30m, america.uptime_1d) == (75.0, 75.0, 75.0)
    assert america.ttft_p50_s is not None
    assert TTFT_BOUNDS_S[2] < america.ttft_p50_s <= TTFT_BOUNDS_S[3]
    assert (europe.uptime_5m, europe.ttft_p50_s, europe.uptime_30m) == (None, None, 100.0)
    assert everywhere.uptime_5m == pytest.approx(100 * 249 / 299)


async def test_a_model_that_nobody_asked_for_has_no_figures(world: World) -> None:
    async with world.replica.context.db.begin() as session:
        assert await service.quality_by_region(session, REGIONS) == {}


async def test_what_is_older_than_two_days_is_forgotten(world: World) -> None:
    await tell(edges(world)[0], minute(world), minute(world, 30))
    async with world.replica.context.db.begin() as session:
        await session.execute(text("UPDATE quality_minute SET minute = minute - 172800 WHERE minute < :now"),
                              {"now": minute(world, 10).minute})
    await prune_minutes(world.replica.context.db)
    assert await stored(world) == 1


async def test_streams_and_sessions_are_kept_with_the_edge(world: World) -> None:
    edge = edges(world)[0]
    edge.streams = {AMERICA: 7}
    await edge.sync()
    async with world.replica.context.db.begin() as session:
        row = (await session.execute(text("SELECT open_streams, sessions FROM edge WHERE id = :id"),
                                     {"id": edge.peer.identity})).one()
    assert tuple(row) == ({AMERICA: 7}, {AMERICA: 7})

"""Usage that a lost database had acknowledged is shipped once more, from what the edge keeps of it."""

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from control_plane.contracts import ids
from control_plane.contracts.clock import ManualClock
from control_plane.contracts.transport import ControlPlaneAway
from control_plane.contracts.usage import UsageRecord
from edge_api.identity import ControlPlaneLink
from edge_api.metering.outbox import Outbox, segment_path
from edge_api.metering.recovery import repair
from edge_api.metering.shipped import ShippedSegments
from edge_api.metering.shipper import OPEN_AFTER_S, Shipper
from edge_api.metrics import Metrics
from tests.integration.edge_api.control_plane import ControlPlane
from tests.unit.edge_api.builders import usage_open, usage_record

SEGMENT = 20_000


class Metering:
    """An outbox that keeps what it shipped; `restart` is a new process on the same disk."""

    def __init__(self, directory: Path, link: ControlPlaneLink, clock: ManualClock) -> None:
        self.directory, self.link, self.clock = directory, link, clock
        self.told: list[UsageRecord] = []
        self.start()

    def start(self) -> None:
        self.metrics = Metrics()
        repair(self.directory, self.metrics)
        self.kept = ShippedSegments(self.directory / "shipped", 7_200, 1 << 28, self.clock)
        self.outbox = Outbox(self.directory, SEGMENT, 1 << 30, self.metrics, released=self.kept.keep)
        self.shipper = Shipper(
            self.outbox, self.link, ids.new_id("boot"), self.clock, self.metrics, self.told.append, self.kept)

    def restart(self) -> None:
        self.outbox.close()
        self.start()

    async def write(self, count: int) -> None:
        for _ in range(count):
            self.outbox.record(usage_record())
        await self.outbox.sync()

    async def ship_all(self) -> None:
        while await self.shipper.ship_once():
            pass


@pytest.fixture
async def edge(tmp_path: Path, link: ControlPlaneLink) -> AsyncIterator[Metering]:
    metering = Metering(tmp_path / "outbox", link, ManualClock(os.stat(tmp_path).st_mtime))
    yield metering
    metering.outbox.close()


async def shipped(edge: Metering, control_plane: ControlPlane, count: int) -> set[str]:
    """That many records, stored, and then lost with the database."""
    await edge.write(count)
    await edge.ship_all()
    assert len(control_plane.records) == count
    before = {str(request_id) for request_id in control_plane.records}
    control_plane.records.clear()
    return before


def stored(control_plane: ControlPlane) -> set[str]:
    return {str(request_id) for request_id in control_plane.records}


async def test_everything_is_stored_again(edge: Metering, control_plane: ControlPlane) -> None:
    before = await shipped(edge, control_plane, 1_234)
    edge.shipper.ship_again()
    await edge.ship_all()
    assert stored(control_plane) == before


async def test_new_records_go_along(edge: Metering, control_plane: ControlPlane) -> None:
    before = await shipped(edge, control_plane, 300)
    edge.shipper.ship_again()
    await edge.write(5)
    await edge.ship_all()
    assert (stored(control_plane) > before, len(control_plane.records)) == (True, 305)


async def test_nothing_is_shipped_again_unasked(edge: Metering, control_plane: ControlPlane) -> None:
    await shipped(edge, control_plane, 300)
    await edge.ship_all()
    assert control_plane.records == {}


async def test_it_is_done_once(edge: Metering, control_plane: ControlPlane) -> None:
    await shipped(edge, control_plane, 300)
    edge.shipper.ship_again()
    await edge.ship_all()
    control_plane.records.clear()
    await edge.ship_all()
    edge.restart()
    await edge.ship_all()
    assert control_plane.records == {}


async def test_an_edge_that_is_killed_meanwhile_goes_on_at_its_next_start(
        edge: Metering, control_plane: ControlPlane) -> None:
    before = await shipped(edge, control_plane, 900)
    edge.shipper.ship_again()
    await edge.shipper.ship_once()
    edge.restart()
    await edge.ship_all()
    assert stored(control_plane) == before


async def test_it_waits_for_a_control_plane_that_is_away(edge: Metering, control_plane: ControlPlane) -> None:
    before = await shipped(edge, control_plane, 300)
    edge.shipper.ship_again()
    control_plane.away = True
    with pytest.raises(ControlPlaneAway):
        await edge.shipper.ship_once()
    control_plane.away = False
    await edge.ship_all()
    assert stored(control_plane) == before


async def test_nobody_is_told_twice_of_a_record_that_was_released(edge: Metering, control_plane: ControlPlane) -> None:
    await shipped(edge, control_plane, 300)
    edge.shipper.ship_again()
    await edge.ship_all()
    assert len(edge.told) == len({record.request_id for record in edge.told}) == 300


async def test_requests_that_are_open_are_announced_again(edge: Metering, control_plane: ControlPlane) -> None:
    edge.outbox.open(usage_open(opened_at_s=edge.clock.time_s() - OPEN_AFTER_S - 1))
    await edge.outbox.sync()
    await edge.ship_all()
    control_plane.opens.clear()
    edge.shipper.ship_again()
    await edge.ship_all()
    assert len(control_plane.opens) == 1


async def test_what_is_older_than_its_time_is_forgotten(edge: Metering, control_plane: ControlPlane) -> None:
    await shipped(edge, control_plane, 300)
    kept = list((edge.directory / "shipped").glob("*.seg"))
    assert kept
    edge.clock.advance(7_300)
    segment = segment_path(edge.directory, 999)
    segment.touch()
    os.utime(segment, (edge.clock.time_s(), edge.clock.time_s()))
    edge.kept.keep(segment)
    assert [path.name for path in (edge.directory / "shipped").glob("*.seg")] == [segment.name]


def test_the_oldest_make_room(tmp_path: Path) -> None:
    kept = ShippedSegments(tmp_path / "shipped", 7_200, 250, ManualClock(os.stat(tmp_path).st_mtime))
    for number in (1, 2, 3):
        segment = segment_path(tmp_path, number)
        segment.write_bytes(bytes(100))
        kept.keep(segment)
    assert sorted(path.name for path in (tmp_path / "shipped").glob("*.seg")) == ["0000000002.seg", "0000000003.seg"]


def test_a_limit_of_nothing_keeps_nothing(tmp_path: Path) -> None:
    kept = ShippedSegments(tmp_path / "shipped", 7_200, 0, ManualClock())
    segment = segment_path(tmp_path, 1)
    segment.write_bytes(bytes(100))
    kept.keep(segment)
    assert not segment.exists()
    assert list(kept.records()) == []


def test_damage_is_passed_over(tmp_path: Path) -> None:
    kept = ShippedSegments(tmp_path / "shipped", 7_200, 1_000, ManualClock(os.stat(tmp_path).st_mtime))
    segment = segment_path(tmp_path, 1)
    segment.write_bytes(bytes(100))
    kept.keep(segment)
    assert list(kept.records()) == [[]]

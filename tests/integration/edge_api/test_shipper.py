"""Shipping: every record arrives, once as far as anybody can tell, whatever happens on the way."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from control_plane.contracts import ids
from control_plane.contracts.clock import ManualClock
from control_plane.contracts.transport import ControlPlaneAway, IdentityUnknown
from edge_api.identity import ControlPlaneLink
from edge_api.metering.frames import Position
from edge_api.metering.outbox import Outbox, segment_numbers, segment_path
from edge_api.metering.recovery import repair
from edge_api.metering.shipper import MAX_BATCH, OPEN_AFTER_S, Shipper
from edge_api.metrics import Metrics
from tests.integration.edge_api.control_plane import ControlPlane
from tests.integration.edge_api.waiting import until
from tests.unit.edge_api.builders import usage_open, usage_record

SEGMENT = 20_000


class Metering:
    """An outbox and its shipper; `restart` is a new process on the same disk."""

    def __init__(self, directory: Path, link: ControlPlaneLink, clock: ManualClock) -> None:
        self.directory, self.link, self.clock = directory, link, clock
        self.start()

    def start(self) -> None:
        self.metrics = Metrics()
        self.lost = repair(self.directory, self.metrics)
        self.outbox = Outbox(self.directory, SEGMENT, 1 << 30, self.metrics)
        self.shipper = Shipper(self.outbox, self.link, ids.new_id("boot"), self.clock, self.metrics)

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
async def edge(tmp_path: Path, link: ControlPlaneLink, clock: ManualClock) -> AsyncIterator[Metering]:
    metering = Metering(tmp_path / "outbox", link, clock)
    yield metering
    metering.outbox.close()


async def test_every_record_arrives_in_sorted_batches(edge: Metering, control_plane: ControlPlane) -> None:
    await edge.write(1_234)  # the control plane refuses batches that are unsorted or too long
    await edge.ship_all()
    assert len(control_plane.records) == 1_234
    assert max(len(batch.frames) for batch in control_plane.batches) == MAX_BATCH
    assert b'meridian_edge_shipped_frames_total{verdict="stored"} 1234.0' in edge.metrics.text()


async def test_nothing_is_shipped_before_it_is_durable(edge: Metering, control_plane: ControlPlane) -> None:
    edge.outbox.record(usage_record())
    assert not await edge.shipper.ship_once()
    await edge.outbox.sync()
    assert await edge.shipper.ship_once()
    assert len(control_plane.records) == 1


async def test_what_was_stored_is_not_sent_again_after_a_restart(edge: Metering, control_plane: ControlPlane) -> None:
    await edge.write(10)
    await edge.ship_all()
    edge.restart()
    await edge.write(3)
    await edge.ship_all()
    assert [len(batch.frames) for batch in control_plane.batches] == [10, 3]


async def test_what_was_not_stored_is_sent_after_a_restart(edge: Metering, control_plane: ControlPlane) -> None:
    await edge.write(10)
    edge.restart()
    await edge.ship_all()
    assert len(control_plane.records) == 10


@pytest.mark.parametrize("content", [None, b"", b"not json", b"{}", b'{"segment":"x","offset":[]}'])
async def test_a_lost_cursor_only_makes_duplicates(
        edge: Metering, control_plane: ControlPlane, content: bytes | None) -> None:
    await edge.write(10)
    await edge.ship_all()
    cursor = edge.directory / "cursor.json"
    cursor.unlink() if content is None else cursor.write_bytes(content)
    edge.restart()
    await edge.ship_all()
    assert len(control_plane.records) == 10
    assert b'meridian_edge_shipped_frames_total{verdict="duplicate"} 10.0' in edge.metrics.text()


async def test_a_cursor_of_segments_that_are_gone_hides_nothing_of_those_that_took_their_numbers(
        edge: Metering, control_plane: ControlPlane) -> None:
    await edge.write(10)
    await edge.ship_all()
    (edge.directory / "cursor.json").write_text('{"segment": 7, "offset": 0}')
    with capture_logs() as logs:
        edge.restart()
    await edge.write(3)
    await edge.ship_all()
    assert len(control_plane.records) == 13
    assert [line["event"] for line in logs] == ["outbox_cursor_beyond_end"]


async def test_shipped_segments_leave_the_disk(edge: Metering) -> None:
    await edge.write(1_000)
    assert len(segment_numbers(edge.directory)) > 10
    await edge.ship_all()
    await edge.ship_all()
    assert len(segment_numbers(edge.directory)) == 1
    assert edge.outbox.size_bytes <= SEGMENT


async def test_while_the_control_plane_is_away_everything_is_kept(edge: Metering, control_plane: ControlPlane) -> None:
    await edge.write(600)
    control_plane.away = True
    for _ in range(3):
        with pytest.raises(ControlPlaneAway):
            await edge.shipper.ship_once()
    control_plane.away = False
    await edge.ship_all()
    assert len(control_plane.records) == 600


async def test_a_refused_identity_keeps_everything(edge: Metering, control_plane: ControlPlane) -> None:
    await edge.write(5)
    identities = dict(control_plane.identities)
    control_plane.identities.clear()
    with pytest.raises(IdentityUnknown):
        await edge.shipper.ship_once()
    control_plane.identities = identities
    await edge.ship_all()
    assert len(control_plane.records) == 5


async def test_one_record_that_is_refused_for_ever_holds_no_other_back(
        edge: Metering, control_plane: ControlPlane) -> None:
    await edge.write(300)
    poison = usage_record()
    edge.outbox.record(poison)
    await edge.write(300)
    control_plane.poison = poison.request_id
    with capture_logs() as logs:
        await edge.ship_all()
    assert len(control_plane.records) == 600
    assert [path.name for path in (edge.directory / "quarantine").iterdir()] == [
        f"refused-{poison.request_id}-UsageRecord"]
    assert "outbox_quarantined" in [line["event"] for line in logs]
    await edge.write(MAX_BATCH)
    await edge.ship_all()
    assert len(control_plane.records) == 600 + MAX_BATCH


async def test_conflicts_are_loud_and_not_sent_again(edge: Metering, control_plane: ControlPlane) -> None:
    request_id = ids.uuid7()
    control_plane.records[request_id] = usage_record(request_id, completion_tokens=1)
    edge.outbox.record(usage_record(request_id, completion_tokens=2))
    await edge.outbox.sync()
    with capture_logs() as logs:
        await edge.ship_all()
    assert [(line["event"], line["request_id"]) for line in logs] == [("usage_conflict", str(request_id))]
    assert b'meridian_edge_shipped_frames_total{verdict="conflict"} 1.0' in edge.metrics.text()
    assert not await edge.shipper.ship_once()


async def test_a_request_that_is_open_for_long_is_announced_once(
        edge: Metering, control_plane: ControlPlane, clock: ManualClock) -> None:
    opened = usage_open(opened_at_s=clock.time_s())
    edge.outbox.open(opened)
    await edge.outbox.sync()
    assert not await edge.shipper.ship_once()
    clock.advance(OPEN_AFTER_S + 0.1)
    await edge.ship_all()
    assert list(control_plane.opens.values()) == [opened]
    assert len(control_plane.batches) == 1


async def test_a_request_that_is_done_is_not_announced(
        edge: Metering, control_plane: ControlPlane, clock: ManualClock) -> None:
    opened = usage_open(opened_at_s=clock.time_s())
    edge.outbox.open(opened)
    edge.outbox.record(usage_record(opened.request_id))
    await edge.outbox.sync()
    clock.advance(OPEN_AFTER_S + 0.1)
    await edge.ship_all()
    assert (len(control_plane.opens), len(control_plane.records)) == (0, 1)


async def test_an_announcement_that_was_not_stored_is_made_again(
        edge: Metering, control_plane: ControlPlane, clock: ManualClock) -> None:
    edge.outbox.open(usage_open(opened_at_s=clock.time_s() - 60))
    await edge.outbox.sync()
    control_plane.away = True
    with pytest.raises(ControlPlaneAway):
        await edge.shipper.ship_once()
    control_plane.away = False
    await edge.ship_all()
    assert len(control_plane.opens) == 1


async def test_damage_is_stepped_over_and_set_aside(edge: Metering, control_plane: ControlPlane) -> None:
    await edge.write(1)
    first = edge.outbox.written.offset
    await edge.write(2)
    path = segment_path(edge.directory, 1)
    content = bytearray(path.read_bytes())
    content[first + 50] ^= 1
    path.write_bytes(content)
    with capture_logs() as logs:
        await edge.ship_all()
    assert len(control_plane.records) == 2
    assert [line["event"] for line in logs] == ["outbox_quarantined"]


async def test_a_segment_that_is_gone_is_stepped_over(edge: Metering, control_plane: ControlPlane) -> None:
    await edge.write(10)
    (edge.directory / "cursor.json").write_text('{"segment": 1, "offset": 0}')
    edge.restart()
    segment_path(edge.directory, 1).unlink()
    await edge.write(4)
    await edge.ship_all()
    assert len(control_plane.records) == 4


async def test_a_record_is_shipped_soon_after_it_was_written(edge: Metering, control_plane: ControlPlane) -> None:
    tasks = [asyncio.create_task(edge.outbox.run()), asyncio.create_task(edge.shipper.run())]
    edge.outbox.record(usage_record())
    await until(lambda: control_plane.records, within_s=5)  # half a second on a quiet machine
    name = "meridian_edge_all_shipped_timestamp_seconds"
    await until(lambda: edge.metrics.registry.get_sample_value(name), within_s=5)
    for task in tasks:
        task.cancel()


async def test_shipping_goes_on_by_itself_when_the_control_plane_is_back(
        edge: Metering, control_plane: ControlPlane) -> None:
    control_plane.away = True
    await edge.write(20)
    shipping = asyncio.create_task(edge.shipper.run())
    await asyncio.sleep(0.3)
    assert control_plane.records == {}
    control_plane.away = False
    await until(lambda: len(control_plane.records) >= 20, 10)
    shipping.cancel()


async def test_the_last_try_ships_what_was_just_written(edge: Metering, control_plane: ControlPlane) -> None:
    for _ in range(700):
        edge.outbox.record(usage_record())
    assert await edge.shipper.ship_rest(10)
    assert len(control_plane.records) == 700


async def test_the_last_try_ends_in_time_and_keeps_the_rest(edge: Metering, control_plane: ControlPlane) -> None:
    control_plane.away = True
    edge.outbox.record(usage_record())
    assert not await edge.shipper.ship_rest(0.5)
    assert edge.outbox.durable == edge.outbox.written > Position(1, 0)

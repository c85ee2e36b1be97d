"""The outbox: written when it says so, bounded, durable in groups, released without losing an open request."""

import asyncio
import errno
import os
import resource
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from control_plane.contracts import ids
from edge_api.hot.services import OutboxFull
from edge_api.metering.frames import Position, Usage, decode, encode, scan
from edge_api.metering.outbox import Outbox, segment_numbers, segment_path
from edge_api.metrics import Metrics
from tests.unit.edge_api.builders import usage_open, usage_record

BIG = 1 << 30


def outbox_at(directory: Path, segment_bytes: int = BIG, max_bytes: int = BIG) -> Outbox:
    return Outbox(directory, segment_bytes, max_bytes, Metrics())


@pytest.fixture
def outbox(tmp_path: Path) -> Iterator[Outbox]:
    outbox = outbox_at(tmp_path / "outbox")
    yield outbox
    outbox.close()


def on_disk(directory: Path) -> list[Usage]:
    return [decode(stretch.payload) for number in segment_numbers(directory)
            for stretch in scan(segment_path(directory, number).read_bytes(), True) if stretch.payload is not None]


def fill(outbox: Outbox) -> None:
    """Opens requests until no more fits."""
    while outbox.size_bytes + len(encode(usage_open())) <= outbox.max_bytes:
        outbox.open(usage_open())
    with pytest.raises(OutboxFull):
        outbox.open(usage_open())


def test_a_frame_is_in_the_file_when_the_call_returns(outbox: Outbox) -> None:
    opened, record = usage_open(), usage_record()
    outbox.open(opened)
    assert on_disk(outbox.directory) == [opened]
    outbox.record(record)
    assert on_disk(outbox.directory) == [opened, record]


def test_files_are_private(outbox: Outbox) -> None:
    assert segment_path(outbox.directory, 1).stat().st_mode & 0o777 == 0o600
    assert outbox.directory.stat().st_mode & 0o777 == 0o700


def test_segments_turn_over_at_their_size(tmp_path: Path) -> None:
    outbox = outbox_at(tmp_path, segment_bytes=1_000)
    records = [usage_record() for _ in range(20)]
    for record in records:
        outbox.record(record)
    outbox.close()
    assert on_disk(tmp_path) == records
    assert len(segment_numbers(tmp_path)) >= 10
    assert all(segment_path(tmp_path, number).stat().st_size <= 1_000 for number in segment_numbers(tmp_path))


def test_every_start_begins_a_new_segment(tmp_path: Path) -> None:
    for _ in range(3):
        outbox_at(tmp_path).close()
    assert segment_numbers(tmp_path) == [1, 2, 3]


def test_a_segment_is_in_the_list_of_files_for_good_before_anything_in_it_is_called_durable(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[Path] = []
    fsync = os.fsync

    def tell(descriptor: int) -> None:
        synced.append(Path(os.readlink(f"/proc/self/fd/{descriptor}")))
        assert segment_numbers(tmp_path) == [1]
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", tell)
    outbox_at(tmp_path).close()
    assert synced == [tmp_path]


def test_new_requests_are_refused_at_the_bound(tmp_path: Path) -> None:
    outbox = outbox_at(tmp_path, max_bytes=2_000)
    fill(outbox)
    assert outbox.size_bytes <= 2_000
    outbox.close()


def test_requests_that_were_let_in_are_still_recorded_at_the_bound(tmp_path: Path) -> None:
    outbox = outbox_at(tmp_path, max_bytes=8_000)
    fill(outbox)
    request_id = next(iter(outbox.unresolved))
    outbox.record(usage_record(request_id))
    assert request_id not in outbox.unresolved
    outbox.close()


def test_even_records_have_a_bound(tmp_path: Path) -> None:
    outbox = outbox_at(tmp_path, max_bytes=4_000)
    for _ in range(4_000 // len(encode(usage_record()))):
        outbox.record(usage_record())
    outbox.record(usage_record())
    with pytest.raises(OutboxFull):
        outbox.record(usage_record())
    assert outbox.size_bytes <= 4_500
    outbox.close()


def test_what_earlier_processes_left_counts_towards_the_bound(tmp_path: Path) -> None:
    first = outbox_at(tmp_path)
    first.record(usage_record())
    first.close()
    second = outbox_at(tmp_path)
    assert second.size_bytes == first.size_bytes > 0
    second.close()


def test_a_disk_that_takes_no_more_is_an_error_and_leaves_no_half_frame(tmp_path: Path) -> None:
    """A file size limit is what a full disk looks like from here: a short write, then an error."""
    outbox = outbox_at(tmp_path)
    outbox.record(usage_record())
    before = on_disk(tmp_path)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (outbox.written.offset + 50, hard))
    try:
        for _ in range(2):
            with pytest.raises(OSError) as raised:  # noqa: PT011
                outbox.open(usage_open())
            assert raised.value.errno in (errno.ENOSPC, errno.EFBIG)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, handler)
    assert on_disk(tmp_path) == before
    assert outbox.unresolved == {}
    record = usage_record()
    outbox.record(record)
    outbox.close()
    assert on_disk(tmp_path) == [*before, record]


async def test_written_frames_become_durable_by_themselves(outbox: Outbox) -> None:
    running = asyncio.create_task(outbox.run())
    for _ in range(3):
        outbox.record(usage_record())
        assert outbox.durable < outbox.written
        async with asyncio.timeout(5):  # 50 ms on a quiet disk
            while outbox.durable < outbox.written:  # noqa: ASYNC110
                await asyncio.sleep(0.005)
    running.cancel()


async def test_sync_covers_segments_that_were_left_behind(tmp_path: Path) -> None:
    outbox = outbox_at(tmp_path, segment_bytes=500)
    for _ in range(10):
        outbox.record(usage_record())
    before = len(os.listdir("/proc/self/fd"))
    await outbox.sync()
    assert outbox.durable == outbox.written
    assert len(os.listdir("/proc/self/fd")) <= before - 8
    outbox.close()


async def test_shipped_segments_are_deleted_oldest_first(tmp_path: Path) -> None:
    outbox = outbox_at(tmp_path, segment_bytes=1_000)
    for _ in range(20):
        outbox.record(usage_record())
    await outbox.sync()
    numbers, size = segment_numbers(tmp_path), outbox.size_bytes
    outbox.release(Position(numbers[3], 0))
    assert segment_numbers(tmp_path) == numbers[3:]
    assert outbox.size_bytes == sum(segment_path(tmp_path, n).stat().st_size for n in numbers[3:]) < size
    outbox.close()


async def test_the_segment_being_written_is_never_deleted(outbox: Outbox) -> None:
    outbox.record(usage_record())
    await outbox.sync()
    outbox.release(outbox.durable)
    assert segment_numbers(outbox.directory) == [1]


async def test_an_open_request_is_carried_forward_before_its_segment_goes(tmp_path: Path) -> None:
    outbox = outbox_at(tmp_path, segment_bytes=1_000)
    opened = usage_open()
    outbox.open(opened)
    for _ in range(10):
        outbox.record(usage_record())
    await outbox.sync()
    outbox.release(outbox.durable)
    assert segment_numbers(tmp_path)[0] == 1  # the copy is not durable yet
    await outbox.sync()
    outbox.release(outbox.durable)
    assert segment_numbers(tmp_path)[0] > 1
    assert on_disk(tmp_path).count(opened) == 1
    outbox.close()


async def test_a_request_open_through_many_segments_is_always_on_disk_and_they_still_go(tmp_path: Path) -> None:
    outbox = outbox_at(tmp_path, segment_bytes=2_000)
    opened = usage_open()
    outbox.open(opened)
    for _ in range(200):
        outbox.record(usage_record())
        await outbox.sync()
        outbox.release(outbox.durable)
        assert opened in on_disk(tmp_path)
    assert len(segment_numbers(tmp_path)) <= 3
    outbox.close()


def test_a_record_resolves_its_open_frame(outbox: Outbox) -> None:
    request_id = ids.uuid7()
    outbox.open(usage_open(request_id))
    assert request_id in outbox.unresolved
    outbox.record(usage_record(request_id))
    assert request_id not in outbox.unresolved


def test_refusals_are_counted(tmp_path: Path) -> None:
    metrics = Metrics()
    outbox = Outbox(tmp_path, BIG, 100, metrics)
    with pytest.raises(OutboxFull):
        outbox.open(usage_open())
    assert b"meridian_edge_outbox_refusals_total 1.0" in metrics.text()
    outbox.close()


async def test_the_oldest_segments_are_dropped_down_to_a_size_and_never_the_newest(tmp_path: Path) -> None:
    outbox = outbox_at(tmp_path, segment_bytes=1_000)
    for _ in range(20):
        outbox.record(usage_record())
    before = outbox.size_bytes
    gone = outbox.drop_oldest(before // 2)
    assert before - gone == outbox.size_bytes <= before // 2
    assert outbox.drop_oldest(0) > 0
    assert segment_numbers(tmp_path) == [outbox.written.segment]
    outbox.close()


async def test_dropping_waits_for_what_is_still_open_to_be_durable_elsewhere(tmp_path: Path) -> None:
    outbox = outbox_at(tmp_path, segment_bytes=1_000)
    opened = usage_open()
    outbox.open(opened)
    for _ in range(5):
        outbox.record(usage_record())
    assert outbox.drop_oldest(0) == 0
    await outbox.sync()
    assert outbox.drop_oldest(0) > 0
    assert opened in on_disk(tmp_path)
    outbox.close()


def test_where_nobody_ships_the_oldest_makes_room_before_anything_is_refused(tmp_path: Path) -> None:
    metrics = Metrics()
    outbox = Outbox(tmp_path, 2_000, 20_000, metrics, keeps_newest=True)
    for _ in range(500):
        request_id = ids.uuid7()
        outbox.open(usage_open(request_id))
        outbox.record(usage_record(request_id))
        assert outbox.size_bytes <= 20_000 + 20_000 // 8
    outbox.close()
    assert on_disk(tmp_path)[-1] == usage_record(request_id)
    assert (metrics.registry.get_sample_value("meridian_edge_outbox_dropped_bytes_total") or 0) > 300_000


def test_where_nobody_ships_requests_are_still_refused_when_only_open_ones_are_left(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path, 2_000, 20_000, Metrics(), keeps_newest=True)
    fill(outbox)
    assert len(outbox.unresolved) * len(encode(usage_open())) > 15_000
    outbox.close()

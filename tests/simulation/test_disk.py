"""The simulated disk forgets what a real one may forget, and no more."""

import os
from random import Random

import pytest

from tests.simulation.disk import Disk, Os, Place

NEW = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL
LIST = os.O_RDONLY | os.O_DIRECTORY


def written(disk: Disk, content: bytes, is_synced: bool = False, is_listed: bool = False) -> Place:
    """A new file."""
    calls, place = Os(), Place(disk, "/outbox/1.seg")
    descriptor = calls.open(place, NEW)
    calls.write(descriptor, content)
    if is_synced:
        calls.fdatasync(descriptor)
    if is_listed:
        calls.fsync(calls.open(place.parent, LIST))
    return place


def test_what_is_synced_and_listed_survives_every_loss_of_power() -> None:
    for seed in range(50):
        disk = Disk()
        place = written(disk, b"whole", is_synced=True, is_listed=True)
        assert not disk.lose_power(Random(seed))
        assert place.read_bytes() == b"whole"


def test_of_what_is_not_synced_any_beginning_may_survive() -> None:
    left = set()
    for seed in range(200):
        disk = Disk()
        place = written(disk, b"abc", is_listed=True)
        assert disk.lose_power(Random(seed)) is (place.read_bytes() != b"abc")
        left.add(place.read_bytes())
    assert left == {b"", b"a", b"ab", b"abc"}


def test_a_file_whose_directory_is_not_synced_may_be_gone_though_its_bytes_are() -> None:
    survived = set()
    for seed in range(50):
        disk = Disk()
        place = written(disk, b"whole", is_synced=True)
        disk.lose_power(Random(seed))
        survived.add(place.exists())
    assert survived == {True, False}


def test_cut_bytes_are_not_synced_ones() -> None:
    disk, calls = Disk(), Os()
    place = written(disk, b"abcdef", is_synced=True)
    calls.ftruncate(calls.open(place, os.O_RDWR), 2)
    assert (place.read_bytes(), disk.files[str(place)].synced) == (b"ab", 2)


def test_a_new_file_is_not_made_twice_and_a_missing_one_is_missed() -> None:
    place = written(Disk(), b"")
    with pytest.raises(FileExistsError):
        Os().open(place, NEW)
    with pytest.raises(FileNotFoundError):
        Os().open(place / "none", os.O_RDWR)

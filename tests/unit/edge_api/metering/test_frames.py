"""Frames: what goes in comes out, and damage costs only what it hit."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_api.metering.frames import HEADER, MAGIC, MAX_PAYLOAD_BYTES, Unreadable, decode, encode, scan
from tests.unit.edge_api.builders import usage_open, usage_record

counts = st.lists(st.integers(0, 10**9), min_size=1, max_size=8)


def payloads(data: bytes, at_end: bool = True) -> list[bytes]:
    return [stretch.payload for stretch in scan(data, at_end) if stretch.payload is not None]


def damage(data: bytes) -> list[tuple[int, int]]:
    return [(stretch.start, stretch.end) for stretch in scan(data, True) if stretch.payload is None]


@given(counts)
def test_what_is_encoded_is_read_again_in_order(tokens: list[int]) -> None:
    records = [usage_record(completion_tokens=count) for count in tokens]
    assert [decode(payload) for payload in payloads(b"".join(map(encode, records)))] == records


def test_open_frames_and_records_are_told_apart() -> None:
    opened, record = usage_open(), usage_record()
    assert [decode(payload) for payload in payloads(encode(opened) + encode(record))] == [opened, record]


@given(counts, st.data())
def test_any_cut_leaves_every_whole_frame(tokens: list[int], data: st.DataObject) -> None:
    frames = [encode(usage_record(completion_tokens=count)) for count in tokens]
    whole = b"".join(frames)
    cut = data.draw(st.integers(0, len(whole)))
    kept, length = 0, 0
    for frame in frames:
        length += len(frame)
        kept += length <= cut
    assert len(payloads(whole[:cut])) == kept


@given(counts, st.data())
def test_a_cut_that_more_may_follow_is_no_damage(tokens: list[int], data: st.DataObject) -> None:
    whole = b"".join(encode(usage_record(completion_tokens=count)) for count in tokens)
    cut = data.draw(st.integers(0, len(whole)))
    seen = list(scan(whole[:cut], at_end=False))
    assert all(stretch.payload is not None for stretch in seen)
    resume = seen[-1].end if seen else 0
    assert len(seen) + len(payloads(whole[resume:])) == len(tokens)


@given(counts, st.data())
def test_one_changed_byte_costs_at_most_one_frame(tokens: list[int], data: st.DataObject) -> None:
    frames = [encode(usage_record(completion_tokens=count)) for count in tokens]
    whole = bytearray(b"".join(frames))
    at = data.draw(st.integers(0, len(whole) - 1))
    whole[at] ^= data.draw(st.integers(1, 255))
    assert len(payloads(bytes(whole))) >= len(frames) - 1
    assert set(payloads(bytes(whole))) <= {frame[HEADER.size:] for frame in frames}


@given(st.binary(max_size=2_000), st.booleans())
def test_stretches_cover_everything_without_gaps(data: bytes, at_end: bool) -> None:
    at = 0
    for stretch in scan(data, at_end):
        assert stretch.start == at < stretch.end <= len(data)
        at = stretch.end
    assert at == len(data) or not at_end


@given(st.binary(max_size=300), st.binary(max_size=300))
def test_frames_between_garbage_are_found(before: bytes, after: bytes) -> None:
    frame = encode(usage_record())
    assert frame[HEADER.size:] in payloads(before + frame + after) or MAGIC in before


def test_garbage_between_frames_is_named_exactly() -> None:
    first, second = encode(usage_record()), encode(usage_record())
    assert damage(first + b"garbage" + second) == [(len(first), len(first) + 7)]


def test_a_length_beyond_the_limit_is_damage_and_not_waited_for() -> None:
    liar = HEADER.pack(MAGIC, MAX_PAYLOAD_BYTES + 1, 0)
    assert next(iter(scan(liar + encode(usage_record()), at_end=False))).payload is None


def test_a_frame_that_is_too_long_is_never_written() -> None:
    huge = msgspec.structs.replace(usage_open(), model_id="m" * MAX_PAYLOAD_BYTES)
    with pytest.raises(ValueError, match="at most"):
        encode(huge)


@pytest.mark.parametrize("payload", [b"", b"{}", b"[]", b'{"type":"other"}', b'{"type":"record"}', b"\xff"])
def test_a_whole_frame_without_usage_in_it_is_unreadable(payload: bytes) -> None:
    with pytest.raises(Unreadable):
        decode(payload)

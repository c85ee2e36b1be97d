"""How usage lies on disk: frames of magic, length, CRC-32 and msgspec JSON, one after the other in a segment.

The magic begins with a byte that UTF-8 text never holds, so that after damage the next frame is found again. Lengths
are bytes, little-endian.
"""

import struct
import zlib
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from control_plane.contracts.usage import UsageOpen, UsageRecord

MAGIC = b"\xf5MU\x01"
HEADER = struct.Struct("<4sII")
MAX_PAYLOAD_BYTES = 64 * 1024

Usage = UsageOpen | UsageRecord

_pack, _checksum = HEADER.pack, zlib.crc32
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Usage).decode


class Position(NamedTuple):
    """A place in the outbox: the segment's number and the offset in it. Ordered as it was written."""

    segment: int
    offset: int


class Stretch(NamedTuple):
    """Bytes `start` to `end` of what was scanned: one whole frame, or damage if `payload` is None."""

    start: int
    end: int
    payload: bytes | None


class Unreadable(Exception):
    """A whole frame whose content is no usage."""


def encode(usage: Usage) -> bytes:
    """The frame.

    Raises:
        ValueError: it is longer than a frame may be.
    """
    payload = _encode(usage)
    size = len(payload)
    if size > MAX_PAYLOAD_BYTES:
        raise ValueError(f"a usage frame of {size} bytes; at most {MAX_PAYLOAD_BYTES}")
    return _pack(MAGIC, size, _checksum(payload)) + payload


def decode(payload: bytes) -> Usage:
    """The usage in a frame.

    Raises:
        Unreadable: it is no usage of this release.
    """
    try:
        return _decode(payload)
    except msgspec.MsgspecError as error:
        raise Unreadable(str(error)) from error


def scan(data: bytes, at_end: bool) -> Iterator[Stretch]:
    """The frames and the damage in `data`, in order and without gaps.

    `at_end`: nothing follows `data`, so a frame cut off at its end is damage; otherwise the scan stops before it.
    """
    at = 0
    while at < len(data):
        end = _frame_end(data, at)
        if end == _CUT and not at_end:
            return
        if end > 0:
            yield Stretch(at, end, data[at + HEADER.size:end])
        else:
            end = _next_frame(data, at + 1, at_end)
            yield Stretch(at, end, None)
        at = end


_BAD, _CUT = 0, -1


def _frame_end(data: bytes, at: int) -> int:
    """Where the frame at `at` ends; `_BAD` if there is none, `_CUT` if `data` ends before it does."""
    if len(data) - at < HEADER.size:
        return _CUT if MAGIC.startswith(data[at:at + len(MAGIC)]) else _BAD
    magic, length, checksum = HEADER.unpack_from(data, at)
    if magic != MAGIC or length > MAX_PAYLOAD_BYTES:
        return _BAD
    end: int = at + HEADER.size + length
    if end > len(data):
        return _CUT
    return end if zlib.crc32(data[at + HEADER.size:end]) == checksum else _BAD


def _next_frame(data: bytes, at: int, at_end: bool) -> int:
    """Where the next frame begins, or may begin once more of the file is read."""
    found = data.find(MAGIC, at)
    while found >= 0:
        end = _frame_end(data, found)
        if end > 0 or (end == _CUT and not at_end):
            return found
        found = data.find(MAGIC, found + 1)
    return len(data) if at_end else max(at, len(data) - len(MAGIC) + 1)

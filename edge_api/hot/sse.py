"""Server-sent events as bytes: cut at blank lines, read only where a byte search cannot say enough.

Source of the grammar: the HTML standard's "Server-sent events". Lines end in LF, CRLF or CR; an event ends at a blank
line; a line that starts with a colon is a comment. What comes out is always in LF form.
"""

import msgspec
from msgspec import json

EVENT_END = b"\n\n"
_decode_any = json.Decoder(msgspec.Raw).decode


class EventTooLong(Exception):
    """An event did not end within the bound."""


class EventSplitter:
    """Cuts a byte stream into whole events, however it was cut on the way. Holds at most `max_bytes` of an open one,
    in pieces: `held`."""

    __slots__ = ("_held_bytes", "_max_bytes", "held")

    def __init__(self, max_bytes: int) -> None:
        self.held: list[bytes] = []
        self._held_bytes = 0
        self._max_bytes = max_bytes

    def feed(self, data: bytes) -> list[bytes]:
        """The events that `data` completes, each with its blank line.

        Raises:
            EventTooLong: the open event is past the bound.
        """
        held = self.held
        if EVENT_END not in data and b"\r" not in data and not (held and _may_end(held[-1], data)):
            if data:
                self._hold(data)  # nothing can have been completed, so what is held is not read again
            return []
        if held:
            data = b"".join((*self.held, data))
            self.held.clear()
            self._held_bytes = 0
        if b"\r" in data:
            data = self._with_lf(data)
        events = data.split(EVENT_END)
        rest = events.pop()
        if rest:
            self._hold(rest)
        return [event + EVENT_END for event in map(_without_blank_lines, events) if event]

    def rest(self) -> bytes:
        """What is held of an event that never ended, as if its blank line had come."""
        data = self._with_lf(b"".join(self.held) + b"\n").strip(b"\n")
        self.held.clear()
        self._held_bytes = 0
        return data + EVENT_END if data else b""

    def _with_lf(self, data: bytes) -> bytes:
        """`data` with LF line ends; a CR at its very end may be half of a CRLF and stays."""
        if data.endswith(b"\r"):
            return data[:-1].replace(b"\r\n", b"\n").replace(b"\r", b"\n") + b"\r"
        return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def _hold(self, data: bytes) -> None:
        self.held.append(data)
        self._held_bytes += len(data)
        if self._held_bytes > self._max_bytes:
            raise EventTooLong(f"an event is longer than {self._max_bytes} bytes")


def _may_end(held: bytes, data: bytes) -> bool:
    """Whether a blank line may lie where the two meet."""
    return held.endswith(b"\r") or (held.endswith(b"\n") and data.startswith(b"\n"))


def _without_blank_lines(event: bytes) -> bytes:
    return event.lstrip(b"\n")


def payload(event: bytes) -> bytes:
    """The data of an event: its `data:` lines, joined."""
    lines = []
    for line in event.split(b"\n"):
        if line.startswith(b"data:"):
            value = line[5:]
            lines.append(value[1:] if value.startswith(b" ") else value)
    return b"\n".join(lines)


def is_whole(event: bytes) -> bool:
    """Whether an event that was cut off in front of its blank line has all its data."""
    data = payload(event)
    try:
        return data == b"[DONE]" or (data.startswith(b"{") and bool(_decode_any(data)))
    except msgspec.DecodeError:
        return False


def event_name(event: bytes) -> bytes:
    """The event's type, empty if it has none."""
    for line in event.split(b"\n"):
        if line.startswith(b"event:"):
            return line[6:].strip()
    return b""

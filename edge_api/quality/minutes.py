"""Counts of the last minutes, by model and datacenter, told to the control plane whole until it has them.

A record counts once, when the control plane has stored it, in the minute in which its request ended: so the sums are
those of the stored records. A minute is kept for `KEPT_S` after it last changed, and longer while stored records are
still on their way, for a minute that was forgotten and counted anew would take the place of the former one.
"""

from bisect import bisect_left
from collections.abc import Callable, Sequence

from control_plane.contracts.clock import Clock
from control_plane.contracts.evidence import ITL_BOUNDS_S, TTFT_BOUNDS_S, QualityMinute
from control_plane.contracts.usage import UsageRecord
from edge_api.quality.rules import first_byte_s, judged, token_gap_s

MINUTE_S = 60
KEPT_S = 300.0
MAX_KEPT = 20_000
MAX_TOLD = 1_000

_Key = tuple[int, str, str]


class _Cell:
    """One model's minute in one datacenter. `changed_s` is monotonic; `told` is how often it had changed by the report
    that was acknowledged last."""

    __slots__ = ("changed_s", "changes", "counts", "itl", "tokens", "told", "ttft")

    def __init__(self) -> None:
        self.counts = [0, 0, 0]  # succeeded, failed, excluded
        self.tokens = [0, 0, 0]  # prompt, cached, completion
        self.ttft, self.itl = [0] * (len(TTFT_BOUNDS_S) + 1), [0] * (len(ITL_BOUNDS_S) + 1)
        self.changes = self.told = 0
        self.changed_s = 0.0


class Minutes:
    """Owns the counts of one boot of one edge. `is_behind`: records wait to be stored."""

    def __init__(self, clock: Clock, is_behind: Callable[[], bool] = lambda: False) -> None:
        self._clock, self._is_behind = clock, is_behind
        self._cells: dict[_Key, _Cell] = {}
        self._told: dict[_Key, int] = {}

    def note(self, record: UsageRecord) -> None:
        """Counts each attempt of a request for the datacenter that it was sent to, and its tokens for the last."""
        minute = int(record.opened_at_s + record.duration_ms / 1_000) // MINUTE_S * MINUTE_S
        for datacenter_id, is_good in judged(record):
            cell = self._cell((minute, record.model_id, datacenter_id))
            if cell is not None:
                cell.counts[2 if is_good is None else 0 if is_good else 1] += 1
        cell = self._cell((minute, record.model_id, record.datacenter_id)) if record.datacenter_id else None
        if cell is None:
            return
        for at, tokens in enumerate((record.prompt_tokens, record.cached_tokens, record.completion_tokens)):
            cell.tokens[at] += tokens
        _count(cell.ttft, TTFT_BOUNDS_S, first_byte_s(record))
        _count(cell.itl, ITL_BOUNDS_S, token_gap_s(record))

    def report(self) -> list[QualityMinute]:
        """What the control plane has not acknowledged, the oldest first, as far as fits into one report."""
        self._forget()
        due = sorted(key for key, cell in self._cells.items() if cell.changes > cell.told)[:MAX_TOLD]
        self._told = {key: self._cells[key].changes for key in due}
        return [_told(key, self._cells[key]) for key in due]

    def acknowledged(self) -> None:
        """The last report arrived."""
        for key, changes in self._told.items():
            if key in self._cells:
                self._cells[key].told = changes
        self._told = {}

    def _cell(self, key: _Key) -> _Cell | None:
        cell = self._cells.get(key)
        if cell is None:
            if len(self._cells) >= MAX_KEPT:
                return None
            cell = self._cells[key] = _Cell()
        cell.changes += 1
        cell.changed_s = self._clock.monotonic_s()
        return cell

    def _forget(self) -> None:
        if self._is_behind():
            return
        oldest_s = self._clock.monotonic_s() - KEPT_S
        gone = [key for key, cell in self._cells.items() if cell.changed_s < oldest_s and cell.told == cell.changes]
        for key in gone:
            del self._cells[key]


def _told(key: _Key, cell: _Cell) -> QualityMinute:
    minute, model_id, datacenter_id = key
    succeeded, failed, excluded = cell.counts
    prompt, cached, completion = cell.tokens
    return QualityMinute(
        minute=minute, model_id=model_id, datacenter_id=datacenter_id, succeeded=succeeded, failed=failed,
        excluded=excluded, ttft=list(cell.ttft), itl=list(cell.itl), prompt_tokens=prompt, cached_tokens=cached,
        completion_tokens=completion)


def _count(histogram: list[int], bounds_s: Sequence[float], value_s: float | None) -> None:
    if value_s is not None:
        histogram[bisect_left(bounds_s, value_s)] += 1

"""What became of each frame of a batch. Pure: what is stored and what is new go in, verdicts come out."""

from uuid import UUID

from control_plane.contracts.usage import UsageOpen, UsageRecord, Verdict
from control_plane.usage.intake import Frame, body_sha


class Ledger:
    """Which content is stored for each id of a batch, and which ids this batch brought."""

    def __init__(self) -> None:
        self.records: dict[UUID, bytes] = {}
        self.openings: dict[UUID, bytes] = {}
        self.new_records: set[UUID] = set()
        self.new_openings: set[UUID] = set()
        self._told: set[tuple[bool, UUID]] = set()

    def verdict(self, frame: Frame) -> Verdict:
        """Other content than the stored is a conflict; the first frame of new content is stored, repeats are not.

        An opening whose record is stored is settled: nothing of it is kept, so nothing can contradict it.
        """
        is_settled = isinstance(frame, UsageOpen) and frame.request_id in self.records
        if not is_settled and self._stored(frame) != body_sha(frame):
            return Verdict.CONFLICT
        key = (isinstance(frame, UsageRecord), frame.request_id)
        is_first = key not in self._told
        self._told.add(key)
        return Verdict.STORED if is_first and self._is_new(frame, is_settled) else Verdict.DUPLICATE

    def _is_new(self, frame: Frame, is_settled: bool) -> bool:
        by_record = is_settled or isinstance(frame, UsageRecord)
        return frame.request_id in (self.new_records if by_record else self.new_openings)

    def _stored(self, frame: Frame) -> bytes | None:
        return (self.records if isinstance(frame, UsageRecord) else self.openings).get(frame.request_id)

"""Whether a stretch of the audit log is the chain that it was written as. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass

from control_plane.contracts.audit import GENESIS, ChainFault, Link, link_hash


@dataclass(frozen=True, slots=True)
class StoredLink:
    """An event as it stands in the database, with the hashes beside it."""

    link: Link
    prev_hash: bytes
    hash: bytes


@dataclass(frozen=True, slots=True)
class Tip:
    """A place in the chain: the number and the hash of its event. Number 0 is before the first."""

    seq: int = 0
    hash: bytes = GENESIS


def walk(start: Tip, events: Iterable[StoredLink]) -> tuple[Tip, ChainFault | None]:
    """Follows `events`, sorted by number, from `start`: the last sound one, and the first fault if there is one."""
    tip = start
    for event in events:
        problem = _problem(tip, event)
        if problem:
            seq = min(tip.seq + 1, event.link.seq)
            return tip, ChainFault(seq=seq, event_id=event.link.id if event.link.seq == seq else None, problem=problem)
        tip = Tip(event.link.seq, event.hash)
    return tip, None


def check_end(tip: Tip, head: Tip, newest_seq: int) -> ChainFault | None:
    """What is wrong with the end of a chain that was walked up to `tip`, if anything: the head names the last event,
    and nothing is after it."""
    if tip.seq < head.seq:
        return ChainFault(seq=tip.seq + 1, event_id=None, problem=(
            f"events {tip.seq + 1} to {head.seq} are gone: the log ends before its head"))
    if tip.hash != head.hash or newest_seq > head.seq:
        return ChainFault(seq=tip.seq, event_id=None, problem=(
            f"the head names event {head.seq} with another hash than the newest event has, number {newest_seq}"))
    return None


def _problem(tip: Tip, event: StoredLink) -> str:
    if event.link.seq > tip.seq + 1:
        last = event.link.seq - 1
        gone = f"event {last} is" if last == tip.seq + 1 else f"events {tip.seq + 1} to {last} are"
        return f"{gone} gone"
    if event.prev_hash != tip.hash:
        return "it does not follow the event before it: one of the two was put in or moved"
    if event.hash != link_hash(event.link, event.prev_hash):
        return "its content is not what was hashed when it was written"
    return ""

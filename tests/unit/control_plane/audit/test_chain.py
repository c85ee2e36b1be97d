"""Whatever is done to a chain of events, its walk finds the first event that is not as it was written."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from control_plane.audit.chain import StoredLink, Tip, check_end, walk
from control_plane.contracts.audit import GENESIS, Link, link_hash
from control_plane.contracts.clock import utc

AT = utc(1_800_000_000)


def chain(length: int) -> list[StoredLink]:
    made, prev_hash = [], GENESIS
    for seq in range(1, length + 1):
        link = Link(seq, f"audit_{seq}", AT, "operator:olga", "test.note", f"thing:{seq}", "why", None, {"n": seq})
        made.append(StoredLink(link, prev_hash, link_hash(link, prev_hash)))
        prev_hash = made[-1].hash
    return made


def tip(events: list[StoredLink]) -> Tip:
    return Tip(events[-1].link.seq, events[-1].hash)


def test_a_chain_as_it_was_written_has_no_fault() -> None:
    events = chain(5)
    assert walk(Tip(), events) == (tip(events), None)


def test_an_empty_log_has_no_fault() -> None:
    assert walk(Tip(), []) == (Tip(), None)
    assert check_end(Tip(), Tip(), 0) is None


def test_a_walk_goes_on_where_the_last_one_ended() -> None:
    events = chain(6)
    middle, _ = walk(Tip(), events[:3])
    assert walk(middle, events[3:]) == (tip(events), None)


@pytest.mark.parametrize(("column", "value"), [
    ("id", "audit_x"), ("at", AT + timedelta(microseconds=1)), ("actor", "operator:mallory"), ("action", "test.other"),
    ("target", "thing:9"), ("reason", None), ("reason", ""), ("before", {}), ("after", None), ("after", {"n": 4})])
def test_every_column_is_covered(column: str, value: Any) -> None:
    events = chain(5)
    events[2] = replace(events[2], link=replace(events[2].link, **{column: value}))
    sound, fault = walk(Tip(), events)
    assert sound.seq == 2
    assert fault is not None
    assert (fault.seq, fault.problem) == (3, "its content is not what was hashed when it was written")


def test_nothing_can_move_from_one_field_into_its_neighbour() -> None:
    whole = chain(1)[0].link
    moved = replace(whole, actor="operator:olgatest", action=".note")
    assert link_hash(whole, GENESIS) != link_hash(moved, GENESIS)


def test_whole_numbers_hash_the_same_as_the_database_gives_them_back() -> None:
    whole = chain(1)[0].link
    assert link_hash(replace(whole, after={"a": [1.0, 1e22]}), GENESIS) == link_hash(
        replace(whole, after={"a": [1, 10**22]}), GENESIS)


def rewritten(events: list[StoredLink]) -> list[StoredLink]:
    """The third event altered and its own hash made to fit."""
    link = replace(events[2].link, actor="operator:mallory")
    events[2] = replace(events[2], link=link, hash=link_hash(link, events[2].prev_hash))
    return events


def without_the_third(events: list[StoredLink]) -> list[StoredLink]:
    return events[:2] + events[3:]


def without_the_third_and_fourth(events: list[StoredLink]) -> list[StoredLink]:
    return events[:2] + events[4:]


def renumbered_without_the_third(events: list[StoredLink]) -> list[StoredLink]:
    return events[:2] + [replace(event, link=replace(event.link, seq=event.link.seq - 1)) for event in events[3:]]


def swapped(events: list[StoredLink]) -> list[StoredLink]:
    third, fourth = events[2], events[3]
    events[2] = replace(fourth, link=replace(fourth.link, seq=3))
    events[3] = replace(third, link=replace(third.link, seq=4))
    return events


def one_twice(events: list[StoredLink]) -> list[StoredLink]:
    return [*events[:3], events[2], *events[3:]]


@pytest.mark.parametrize(("tamper", "seq", "words"), [
    (rewritten, 4, "does not follow"), (without_the_third, 3, "event 3 is gone"),
    (without_the_third_and_fourth, 3, "events 3 to 4 are gone"), (renumbered_without_the_third, 3, "does not follow"),
    (swapped, 3, "does not follow"), (one_twice, 3, "does not follow")])
def test_the_first_broken_event_is_told(tamper: Callable[[list[StoredLink]], list[StoredLink]], seq: int,
                                        words: str) -> None:
    _, fault = walk(Tip(), tamper(chain(6)))
    assert fault is not None
    assert (fault.seq, words in fault.problem) == (seq, True)


def test_an_event_that_is_gone_has_no_id() -> None:
    _, fault = walk(Tip(), without_the_third(chain(6)))
    assert fault is not None
    assert fault.event_id is None


def test_a_cut_tail_is_found_by_the_head() -> None:
    events = chain(6)
    sound, _ = walk(Tip(), events[:4])
    fault = check_end(sound, tip(events), 4)
    assert fault is not None
    assert (fault.seq, "events 5 to 6 are gone" in fault.problem) == (5, True)


@pytest.mark.parametrize(("head", "newest_seq"), [(Tip(6, bytes(32)), 6), (None, 7)])
def test_a_head_that_does_not_name_the_newest_event_is_a_fault(head: Tip | None, newest_seq: int) -> None:
    sound = tip(chain(6))
    assert check_end(sound, head or sound, newest_seq) is not None

"""Which ids of a stream are committed, wherever it breaks, and what else is known of it then."""

import pytest
from msgspec import json

from control_plane.contracts.deployment import ReasoningFacts
from edge_api.resume.journal import (
    RING,
    Journal,
    Reasoning,
    Said,
    Watch,
    has_text,
    is_json_object,
    reasoning_at,
)
from edge_api.tool_calls.verdict import Called
from tests.unit.edge_api.resume.events import THINKS, call, chat, completion

ALL = Watch.CALLS | Watch.TEXT


def fed(journal: Journal, *events: bytes) -> Journal:
    """The journal after the events, as a meter feeds it."""
    for event in events:
        if journal.sought is not None and journal.sought in event:
            journal.watch(event)
        journal.recent.append(event)
        found = json.decode(event[6:]).get("nvext")
        if found and found["completion_token_ids"]:
            journal.log += ",".join(map(str, found["completion_token_ids"])).encode() + b"]"
    return journal


def seam_ids(journal: Journal, stops: tuple[str, ...] = ()) -> bytes:
    seam = journal.seam(None, stops)
    assert seam is not None
    return seam.ids


@pytest.mark.parametrize(("ids", "count"), [([[]], 0), ([[12]], 1), ([[12], [], [5, 9]], 3), ([[1], [2], [3]], 3)])
def test_ids_are_counted(ids: list[list[int]], count: int) -> None:
    journal = Journal()
    for some in ids:
        journal.note_ids(some)
    assert journal.tokens == count


def test_only_ids_that_gave_text_are_delivered() -> None:
    journal = fed(Journal(), chat([1], content="a"), chat([2]))
    assert (journal.tokens, journal.committed_tokens) == (2, 1)
    assert fed(journal, *(chat([2]) for _ in range(RING))).committed_tokens == 2 + RING


def test_the_newest_event_stays_known_over_a_break() -> None:
    journal = fed(Journal(), chat([1], content="a"))
    seam = journal.seam(None)
    assert seam is not None
    journal.go_on(seam)
    assert journal.last == chat([1], content="a")
    assert fed(journal, chat([2], content="b")).last == chat([2], content="b")
    assert Journal().last == b""


def test_ids_whose_text_was_sent_are_committed() -> None:
    seam = fed(Journal(), chat([1], content="a", role="assistant"), chat([2, 3], content=" b")).seam(None)
    assert seam is not None
    assert (seam.ids, seam.tokens, seam.had_text, seam.was_counted) == (b"1,2,3", 3, True, True)


def test_ids_of_an_unfinished_character_are_given_up() -> None:
    assert seam_ids(fed(Journal(), chat([1], content="a"), chat([2]), chat([3]), chat([4], content=""))) == b"1"


def test_a_whole_character_commits_all_its_ids() -> None:
    assert seam_ids(fed(Journal(), chat([1], content="a"), chat([2]), chat([3]), chat([4], content="é"))) == b"1,2,3,4"


def test_an_event_without_ids_gives_up_none() -> None:
    assert seam_ids(fed(Journal(), chat([1], content="a"), chat(None), chat([]), chat([2]))) == b"1"


@pytest.mark.parametrize("event", [
    chat([7], reasoning_content="hm"), chat([7], refusal="no"), chat([7], tool_calls=[call(0, "f", "{}")]),
    completion("x", [7]),
])
def test_every_kind_of_output_commits(event: bytes) -> None:
    assert seam_ids(fed(Journal(), event, chat([8]))) == b"7"


def test_nothing_is_committed_before_the_first_text() -> None:
    seam = fed(Journal(), chat(None, role="assistant"), chat([1])).seam(None)
    assert seam is not None
    assert (seam.ids, seam.tokens, seam.had_text) == (b"", 0, False)


def test_a_long_silence_of_text_leaves_nothing_certain() -> None:
    journal = fed(Journal(), chat([1], content="a"), *(chat([2]) for _ in range(RING)))
    assert journal.seam(None) is None


def test_a_long_stream_remembers_all_ids_and_few_events() -> None:
    journal = fed(Journal(), *(chat([at], content="a") for at in range(1000)))
    assert seam_ids(journal) == b",".join(b"%d" % at for at in range(1000))
    assert len(journal.recent) == RING


def test_a_stream_without_ids_is_known_to_have_none() -> None:
    seam = fed(Journal(), chat(None, content="a")).seam(None)
    assert seam is not None
    assert (seam.had_text, seam.was_counted) == (True, False)


def test_what_was_given_up_is_not_counted_again_after_the_seam() -> None:
    journal = fed(Journal(), chat([1], content="a"), chat([2]))
    seam = journal.seam(None)
    assert seam is not None
    journal.go_on(seam)
    assert journal.tokens == 1
    assert seam_ids(fed(journal, chat([2]), chat([3], content="é"))) == b"1,2,3"


def test_a_second_break_before_any_new_text_finds_the_same_seam() -> None:
    journal = fed(Journal(), chat([1], content="a"), chat([2]))
    first = journal.seam(None)
    assert first is not None
    journal.go_on(first)
    assert seam_ids(fed(journal, chat([2]))) == b"1"


# stop strings


def test_a_token_that_may_be_sent_in_part_is_repeated() -> None:
    seam = fed(Journal(), chat([1], content=" is"), chat([2], content=" the")).seam(None, ("re, x",))
    assert seam is not None
    assert (seam.ids, seam.repeat) == (b"1", Said(" the"))


def test_a_character_that_begins_a_stop_string_makes_no_certain_end() -> None:
    journal = fed(Journal(), chat([1], content="a"), chat([2], content="b"), chat([3], content="re"))
    seam = journal.seam(None, ("re, x",))
    assert seam is not None
    assert (seam.ids, seam.repeat) == (b"1", Said("bre"))


def test_the_bytes_of_a_repeated_character_are_given_up_with_it() -> None:
    seam = fed(Journal(), chat([1], content="a"), chat([2]), chat([3], content="é")).seam(None, ("x",))
    assert seam is not None
    assert (seam.ids, seam.repeat) == (b"1", Said("é"))


def test_reasoning_is_repeated_as_reasoning() -> None:
    journal = fed(Journal(), chat([1], reasoning_content="a"), chat([2], reasoning_content="b"))
    seam = journal.seam(None, ("x",))
    assert seam is not None
    assert (seam.ids, seam.repeat) == (b"1", Said("", "b"))


def test_a_short_answer_with_stops_is_repeated_whole() -> None:
    seam = fed(Journal(), chat([1], content="x")).seam(None, ("xy",))
    assert seam is not None
    assert (seam.ids, seam.repeat, seam.had_text, seam.was_counted) == (b"", Said("x"), True, True)


def test_what_is_being_repeated_stays_so_after_another_break() -> None:
    journal = fed(Journal(), chat([1], content="a"), chat([2], content="b"))
    seam = journal.seam(None, ("x",))
    assert seam is not None
    journal.go_on(seam)
    again = fed(journal, chat([2]), chat([3], content="c")).seam(None, ("x",))
    assert again is not None
    assert (again.ids, again.repeat) == (b"1", Said("bc"))


def test_a_call_ends_what_stops_could_hold_back() -> None:
    journal = fed(Journal(Watch.CALLS), chat([1], content="a"), chat([2, 3], tool_calls=[call(0, "f", "{}")]))
    seam = journal.seam(None, ("x",))
    assert seam is not None
    assert (seam.ids, seam.repeat, seam.calls) == (b"1,2,3", Said(), 1)


def test_words_that_may_all_begin_a_stop_string_are_kept_for_longer() -> None:
    words = [chat([at], content=" word") for at in range(RING)]
    journal = fed(Journal(Watch.STOPS), chat([99], content="a"), chat([98], content="b"), *words)
    seam = journal.seam(None, (" x",))
    assert seam is not None
    assert (seam.ids, seam.repeat.content) == (b"99", "b" + " word" * RING)
    assert fed(Journal(Watch.STOPS), *words * 8).seam(None, (" x",)) is None


# watched streams


def test_the_text_of_a_constrained_stream_is_known() -> None:
    journal = fed(Journal(ALL), chat([1], reasoning_content="hm"), chat([2], content='{"a": "'),
                  chat([3], content="é\n\\"), chat([4], content=""))
    seam = journal.seam(None)
    assert seam is not None
    assert seam.text == '{"a": "é\n\\'


def test_the_text_of_a_constrained_completion_is_known() -> None:
    seam = fed(Journal(Watch.TEXT), completion('{"a', [1]), completion('": 1', [2])).seam(None)
    assert seam is not None
    assert seam.text == '{"a": 1'


def test_repeated_text_is_not_part_of_the_text_before_the_seam() -> None:
    seam = fed(Journal(Watch.TEXT), chat([1], content='{"a'), chat([2], content="b")).seam(None, ("x",))
    assert seam is not None
    assert (seam.text, seam.repeat.content) == ('{"a', "b")


def test_the_text_of_other_streams_is_not_kept() -> None:
    seam = fed(Journal(Watch.CALLS), chat([1], content="secret")).seam(None)
    assert seam is not None
    assert seam.text == ""


def test_whole_calls_are_counted_and_committed() -> None:
    journal = fed(Journal(Watch.CALLS), chat([1], content="a"),
                  chat([2, 3], tool_calls=[call(0, "f", '{"x": 1}'), call(1, "g", "{}")]), chat([4]))
    seam = journal.seam(None)
    assert seam is not None
    assert (seam.ids, seam.calls, seam.half_call) == (b"1,2,3", 2, None)


def test_a_call_in_pieces_is_half_until_something_follows_it() -> None:
    journal = fed(Journal(Watch.CALLS), chat([1], content="a"), chat([2]), chat([3], tool_calls=[call(0, "f", "")]),
                  chat([4], tool_calls=[call(0, None, '{"x"')]))
    seam = journal.seam(None)
    assert seam is not None
    assert seam.half_call is not None
    assert (seam.half_call.name, seam.half_call.arguments, seam.calls) == ("f", '{"x"', 0)
    assert seam.ids == b"1"
    whole = fed(journal, chat([5], tool_calls=[call(0, None, ": 1}")]), chat([6], content="done")).seam(None)
    assert whole is not None
    assert (whole.half_call, whole.calls, whole.ids) == (None, 1, b"1,2,3,4,5,6")


def test_a_half_call_stays_half_over_a_second_break() -> None:
    journal = fed(Journal(Watch.CALLS), chat([1], content="a"), chat([2], tool_calls=[call(0, "f", '{"x"')]))
    seam = journal.seam(None)
    assert seam is not None
    journal.go_on(seam)
    again = fed(journal, chat([2])).seam(None)
    assert again is not None
    assert (again.ids, again.half_call, again.calls) == (b"1", seam.half_call, 0)


def test_calls_are_told_as_the_client_has_them() -> None:
    journal = fed(Journal(Watch.CALLS), chat([1], content="a"), chat([2], tool_calls=[call(0, "f", "{}")]),
                  chat([3], tool_calls=[call(1, "g", "")]), chat([4], tool_calls=[call(1, None, '{"x"')]))
    assert list(journal.called) == [Called("f", "{}"), Called("g", '{"x"')]
    seam = journal.seam(None)
    assert seam is not None
    journal.go_on(seam)
    fed(journal, chat([5], tool_calls=[call(1, None, ": 1}")]), chat([6], tool_calls=[call(2, "h", "{}")]))
    assert list(journal.called) == [Called("f", "{}"), Called("g", '{"x": 1}'), Called("h", "{}")]
    assert list(fed(Journal(), chat([1], tool_calls=[call(0, "f", "{}")])).called) == []


def test_a_second_call_closes_the_first() -> None:
    journal = fed(Journal(Watch.CALLS), chat([1], tool_calls=[call(0, "f", "")]),
                  chat([2], tool_calls=[call(0, None, "{}")]), chat([3], tool_calls=[call(1, "g", '{"y": 2}')]))
    seam = journal.seam(None)
    assert seam is not None
    assert (seam.calls, seam.half_call, seam.ids) == (2, None, b"1,2,3")


# reasoning


@pytest.mark.parametrize(("ids", "where"), [
    (b"", Reasoning.INSIDE), (b"1,2", Reasoning.INSIDE), (b"1,91", Reasoning.ENDED), (b"1,91,2", Reasoning.ENDED),
    (b"1,91,90,2", Reasoning.INSIDE), (b"191,910", Reasoning.INSIDE),
])
def test_ids_tell_where_the_reasoning_is(ids: bytes, where: Reasoning) -> None:
    assert reasoning_at(ids, THINKS) is where


@pytest.mark.parametrize(("ids", "where"), [
    (b"1,2", Reasoning.NONE), (b"90,1", Reasoning.OPENED), (b"90,1,91", Reasoning.ENDED),
])
def test_a_model_may_open_its_reasoning_itself(ids: bytes, where: Reasoning) -> None:
    assert reasoning_at(ids, ReasoningFacts(start_ids=[90], end_ids=[91], starts_inside=False)) is where


def test_marks_of_several_ids_are_found_whole() -> None:
    facts = ReasoningFacts(start_ids=[8, 9], end_ids=[8, 10], starts_inside=True)
    assert reasoning_at(b"1,8,2,10", facts) is Reasoning.INSIDE
    assert reasoning_at(b"1,8,10,2", facts) is Reasoning.ENDED


@pytest.mark.parametrize(("events", "tokens"), [
    ([chat([1], reasoning_content="a"), chat([2], reasoning_content="b"), chat([3])], 2),
    ([chat([1], reasoning_content="a"), chat([91]), chat([3], content="b"), chat([4], content="c")], 2),
    ([chat([1], content="a")], 0),
])
@pytest.mark.parametrize("starts_inside", [True, False])
def test_reasoning_tokens_are_counted(events: list[bytes], tokens: int, starts_inside: bool) -> None:
    facts = ReasoningFacts(start_ids=[90], end_ids=[91], starts_inside=starts_inside)
    journal = fed(Journal(), *events)
    seam = journal.seam(facts)
    assert seam is not None
    assert seam.reasoning_tokens == tokens
    journal.go_on(seam)
    again = journal.seam(facts)
    assert again is not None
    assert again.reasoning_tokens == tokens


def test_an_engine_without_reasoning_is_never_in_it() -> None:
    assert reasoning_at(b"90,1", None) is Reasoning.NONE


# reading


def test_only_output_is_text() -> None:
    assert has_text(chat([1], content="a"))
    assert not has_text(chat([1], content="", role="assistant"))
    assert not has_text(chat([1], content=None, finish="stop"))
    assert not has_text(b": keep-alive\n\n")
    assert not has_text(b"data: [DONE]\n\n")


@pytest.mark.parametrize(("text", "whole"), [
    ("{}", True), ('{"a": 1}', True), ('{"a": 1', False), ("", False), ("1", False), ("[" * 100_000, False),
])
def test_only_a_closed_object_is_whole(text: str, whole: bool) -> None:
    assert is_json_object(text) is whole

"""A turn's parts, however engines cut it up."""

import json
from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from msgspec import json as wire

from edge_api.dialects.turn import Change, Part, PartKind, Turn
from edge_api.dialects.upstream_chat import Delta
from tests.unit.edge_api.dialects.small_edge import NASTY, call

_decode = wire.Decoder(Delta).decode
Told = list[tuple[str, str, str, str]]

TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
ARGUMENTS = st.dictionaries(TEXT, TEXT | st.integers() | st.lists(TEXT, max_size=2), max_size=3).map(
    lambda value: json.dumps(value, ensure_ascii=False))


def run(deltas: list[dict[str, Any]]) -> tuple[Told, Told]:
    """The parts as a client puts them together from the steps, and as the turn holds them."""
    turn = Turn()
    steps = [step for delta in deltas for step in turn.take(_decode(json.dumps(delta)))] + turn.finish()
    heard: list[list[str]] = []
    open_part: Part | None = None
    for change, part, piece in steps:
        if change is Change.OPENED:
            assert open_part is None
            open_part = part
            heard.append([part.kind, part.call_id, part.name, ""])
        else:
            assert open_part is part
            heard[-1][3] += piece
            open_part = None if change is Change.CLOSED else part
    assert open_part is None
    return [(one[0], one[1], one[2], one[3]) for one in heard], [
        (part.kind, part.call_id, part.name, part.text) for part in turn.parts]


def heard(*deltas: dict[str, Any]) -> Told:
    return run(list(deltas))[0]


def cut(text: str, cuts: list[int]) -> list[str]:
    places = sorted({0, len(text), *(at % (len(text) + 1) for at in cuts)})
    return [text[start:end] for start, end in pairwise(places)]


@given(st.lists(st.tuples(st.sampled_from(["content", "reasoning_content"]), TEXT), max_size=4),
       st.lists(ARGUMENTS, max_size=3), st.lists(st.integers(0, 60), max_size=8), st.randoms(use_true_random=False))
def test_any_split_of_deltas_gives_the_same_parts(said: list[tuple[str, str]], calls: list[str], cuts: list[int],
                                                  random: Any) -> None:
    whole: list[dict[str, Any]] = [{kind: text} for kind, text in said]
    whole += [call(at, f"c{at}", "f", arguments) for at, arguments in enumerate(calls)]
    deltas: list[dict[str, Any]] = [{kind: piece} for kind, text in said for piece in cut(text, cuts)]
    queues = [[call(at, f"c{at}", "f", ""), *(call(at, arguments=piece) for piece in cut(arguments, cuts))]
              for at, arguments in enumerate(calls)]
    while any(queues):  # fragments of parallel calls come in any order, each call's own in theirs
        deltas.append(random.choice([queue for queue in queues if queue]).pop(0))
    told, held = run(deltas)
    assert told == held
    assert sorted(told) == sorted(run(whole)[0])
    assert [one for one in told if one[0] != PartKind.CALL] == [one for one in run(whole)[0] if one[0] != PartKind.CALL]


def test_reasoning_text_and_calls_are_parts_in_the_order_that_they_came() -> None:
    assert heard({"reasoning_content": "a"}, {"content": "b"}, {"reasoning": "c"}, call(0, "i", "f", "{}"),
                 {"content": "d"}) == [
        ("reasoning", "", "", "a"), ("text", "", "", "b"), ("reasoning", "", "", "c"), ("call", "i", "f", "{}"),
        ("text", "", "", "d")]


def test_the_second_of_two_calls_begins_when_the_first_is_whole() -> None:
    turn = Turn()
    for delta in call(0, "a", "f", '{"x":'), call(1, "b", "g", '{"y":2}'):
        turn.take(_decode(json.dumps(delta)))
    steps = turn.take(_decode(json.dumps(call(0, arguments="1}"))))
    assert [(step.change, step.part.call_id, step.piece) for step in steps] == [
        ("grew", "a", "1}"), ("closed", "a", ""), ("opened", "b", ""), ("grew", "b", '{"y":2}')]


def test_a_call_after_a_whole_one_is_told_at_once() -> None:
    turn = Turn()
    turn.take(_decode(json.dumps(call(0, "a", "f", json.dumps({"x": NASTY})))))
    assert [step.change for step in turn.take(_decode(json.dumps(call(1, "b", "g", ""))))] == ["closed", "opened"]


def test_a_call_that_was_cut_does_not_hide_the_next() -> None:
    assert heard(call(0, "a", "f", '{"x"'), call(1, "b", "g", "{}")) == [("call", "a", "f", '{"x"'),
                                                                        ("call", "b", "g", "{}")]


def test_later_names_that_are_empty_or_null_change_nothing() -> None:
    later: dict[str, Any] = {"tool_calls": [{"index": 0, "id": None, "function": {"name": "", "arguments": "}"}}]}
    assert heard(call(0, "a", "f", "{"), later, call(0, "", "f", " ")) == [("call", "a", "f", "{} ")]


def test_a_name_that_comes_late_is_waited_for() -> None:
    assert heard(call(0, "a", None, "{"), call(0, None, "f", "}")) == [("call", "a", "f", "{}")]


def test_fragments_without_an_index_belong_to_the_last_call() -> None:
    assert heard(call(None, "a", "f", "{"), call(None, None, None, "}"), call(None, "b", "g", "{}")) == [
        ("call", "a", "f", "{}"), ("call", "b", "g", "{}")]


def test_calls_that_share_an_index_are_told_apart_by_their_ids() -> None:
    assert heard(call(0, "a", "f", "{}"), call(0, "b", "f", "{}")) == [("call", "a", "f", "{}"),
                                                                      ("call", "b", "f", "{}")]


def test_an_id_in_every_fragment_is_one_call() -> None:
    assert heard(call(0, "a", "f", "{"), call(0, "a", "f", "}")) == [("call", "a", "f", "{}")]


def test_white_space_behind_a_whole_call_is_nothing() -> None:
    assert heard(call(0, "a", "f", "{}"), call(1, "b", "g", "{}"), call(0, arguments="\n")) == [
        ("call", "a", "f", "{}"), ("call", "b", "g", "{}")]


def test_white_space_alone_is_no_part() -> None:
    assert heard({"reasoning_content": "\n"}, {"content": "\n"}, call(0, "a", "f", "{}"), {"content": "\n"},
                 call(1, "b", "g", "{}"), {"content": " "}) == [("call", "a", "f", "{}"), ("call", "b", "g", "{}")]


def test_white_space_before_a_text_and_after_it_is_kept() -> None:
    assert heard({"content": "\n"}, {"content": "\t"}, {"content": "x"}, {"content": "\n"}) == [
        ("text", "", "", "\n\tx\n")]


def test_white_space_of_one_kind_is_not_told_as_another() -> None:
    assert heard({"reasoning_content": "\n"}, {"content": "x"}) == [("text", "", "", "x")]
    assert heard({"reasoning_content": "a"}, {"content": "\n"}, {"reasoning_content": "b"}, {"content": "x"}) == [
        ("reasoning", "", "", "ab"), ("text", "", "", "x")]


def test_a_long_part_is_all_there() -> None:
    pieces = [f"{at} " for at in range(1_000)]
    assert run([{"content": piece} for piece in pieces])[1] == [("text", "", "", "".join(pieces))]


def test_empty_pieces_make_no_parts() -> None:
    assert heard({"content": "", "reasoning_content": None}, {"role": "assistant"}, {"tool_calls": []}) == []

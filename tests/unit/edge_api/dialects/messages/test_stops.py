"""Which stop string ended an answer, however the text of it was cut."""

from hypothesis import given
from hypothesis import strategies as st

from edge_api.dialects.messages.stops import StopWatch
from edge_api.dialects.upstream_chat import CallFunction, CallPiece, Delta

ALPHABET = st.text("ab<é", max_size=8)
STOPS = st.lists(st.text("ab<é", min_size=1, max_size=3), min_size=1, max_size=3).map(tuple)
CALL = Delta(tool_calls=[CallPiece(0, "c", CallFunction("f", "{}"))])


def run(stops: tuple[str, ...], deltas: list[Delta], finish_reason: str) -> tuple[str, str, str | None]:
    """What is told of content and of reasoning, and the stop string that was found."""
    watch = StopWatch(stops)
    out = [told for delta in deltas for told in watch.take(delta)] + watch.finish(finish_reason)
    return ("".join(delta.content or "" for delta in out),
            "".join(delta.reasoning_content or delta.reasoning or "" for delta in out), watch.found)


def content(*pieces: str) -> list[Delta]:
    return [Delta(content=piece) for piece in pieces]


@given(STOPS, st.lists(ALPHABET, max_size=6))
def test_a_text_that_was_not_stopped_is_told_whole(stops: tuple[str, ...], pieces: list[str]) -> None:
    assert run(stops, content(*pieces), "length") == ("".join(pieces), "", None)


@given(STOPS, st.lists(ALPHABET, max_size=6), st.data())
def test_a_text_that_was_stopped_is_told_without_its_stop_string(stops: tuple[str, ...], pieces: list[str],
                                                                 data: st.DataObject) -> None:
    text = "".join(pieces)
    stop = data.draw(st.sampled_from(stops))
    cut = data.draw(st.integers(0, len(stop)))
    told, _, found = run(stops, content(*pieces, stop[:cut], stop[cut:]), "stop")
    assert found is not None
    assert told + found == text + stop


@given(STOPS, st.lists(ALPHABET, max_size=6))
def test_never_more_is_held_back_than_could_be_a_stop_string(stops: tuple[str, ...], pieces: list[str]) -> None:
    watch, said, told = StopWatch(stops), "", ""
    for piece in pieces:
        said += piece
        told += "".join(delta.content or "" for delta in watch.take(Delta(content=piece)))
        held = said.removeprefix(told)
        assert not held or any(stop.startswith(held) for stop in stops)


def test_without_stop_strings_nothing_is_touched() -> None:
    delta = Delta(content="a", reasoning_content="b")
    watch = StopWatch(())
    assert watch.take(delta)[0] is delta
    assert watch.finish("stop") == []
    assert watch.found is None


def test_an_end_of_its_own_is_no_stop_string() -> None:
    assert run(("END",), content("a EN"), "stop") == ("a EN", "", None)


def test_the_first_of_the_clients_strings_wins() -> None:
    assert run(("b", "ab"), content("xab"), "stop") == ("xa", "", "b")
    assert run(("ab", "b"), content("xab"), "stop") == ("x", "", "ab")


def test_a_beginning_that_became_something_else_is_told() -> None:
    watch = StopWatch(("END",))
    assert watch.take(Delta(content="a E")) == [Delta(content="a ")]
    assert watch.take(Delta(content="x")) == [Delta(content="Ex")]


def test_reasoning_can_be_stopped_too() -> None:
    assert run(("END",), [Delta(reasoning="a E"), Delta(reasoning_content="ND")], "stop") == ("", "a ", "END")


def test_what_is_held_of_reasoning_comes_before_what_is_said() -> None:
    watch = StopWatch(("END",))
    assert watch.take(Delta(reasoning_content="E")) == []
    assert watch.take(Delta(content="x")) == [Delta(reasoning_content="E"), Delta(content="x")]


def test_what_is_held_comes_before_a_call() -> None:
    watch = StopWatch(("END",))
    assert watch.take(Delta(content="E")) == []
    assert watch.take(CALL) == [Delta(content="E"), Delta(tool_calls=CALL.tool_calls)]

"""Free text that dispatches on triggers: what is seen, entered and excluded, character by character."""

import pytest

from engine.grammar.dispatch import Step, notable, step
from engine.grammar.nodes import Dispatch

CALLS = Dispatch((("<call>", "call"),), True, ("</call>",))
TWO = Dispatch((("<a>", "a"), ("<b>", "b")), False, ())


def seen_after(dispatch: Dispatch, text: str) -> str | None:
    seen: str | None = ""
    for character in text:
        assert seen is not None
        seen = step(dispatch, seen, character).seen
    return seen


@pytest.mark.parametrize(("text", "seen"), [
    ("", ""), ("plain", ""), ("<", "<"), ("a <ca", "<ca"), ("<c<", "<"), ("</", "</"), ("<</cal", "</cal"),
    ("<cx", "")])
def test_the_longest_end_that_may_become_something_is_seen(text: str, seen: str) -> None:
    assert seen_after(CALLS, text) == seen


def test_a_whole_trigger_enters_its_rule() -> None:
    assert step(CALLS, "<call", ">") == Step(None, ("call",))
    assert step(TWO, "<b", ">") == Step(None, ("b",))


def test_something_excluded_leads_nowhere() -> None:
    assert step(CALLS, "</call", ">") == Step(None)


@pytest.mark.parametrize("seen", ["", "<", "<c", "</cal"])
def test_every_character_that_is_not_notable_leads_back_to_plain_text(seen: str) -> None:
    for point in range(32, 127):
        found = step(CALLS, seen, chr(point))
        assert (found != Step("")) is (chr(point) in notable(CALLS, seen))

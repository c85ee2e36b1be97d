"""Holds the scripted engine to the grammar that its request names, as a real one is held: what does not fit fails."""

from collections.abc import Mapping
from typing import Any

from engine.grammar import binding
from engine.grammar.kinds import Kind, ebnf_of
from engine.grammar.matcher import Matcher
from engine.script.script import THINK, ScriptRefused, Task
from engine.sim.tokenizer import decode, special_token_ids

KINDS = {"json": Kind.JSON_SCHEMA, "regex": Kind.REGEX, "grammar": Kind.EBNF, "choice": Kind.CHOICE,
         "structural_tag": Kind.STRUCTURAL_TAG}
END_OF_THOUGHT = special_token_ids()["</think>"]


def obey(request: Mapping[str, Any], todo: Task) -> None:
    """Checks that what is left to say fits the request's grammar; without xgrammar, nothing can be checked.

    A structural tag speaks of reasoning itself; every other grammar begins after it, as engines have it.

    Raises:
        ScriptRefused: it does not fit.
        GrammarRefused: the grammar is none.
    """
    guided = (request.get("sampling_options") or {}).get("guided_decoding") or {}
    left = todo.answer_ids[todo.said:-1]
    if not binding.is_installed():
        return
    for name, kind in KINDS.items():
        value = guided.get(name)
        if value is not None:
            matcher = Matcher(ebnf_of(kind, value))
            text = decode(left if kind is Kind.STRUCTURAL_TAG else _after_thought(request["token_ids"], left))
            if not (matcher.take(text) and matcher.is_complete):
                raise ScriptRefused(f"what is left of the script does not fit the request's grammar ({kind})")


def _after_thought(prompt_ids: list[int], left: list[int]) -> list[int]:
    """What is left of the answer once its thought is over. A thought is open if it was last begun, and not ended."""
    marks = [id for id in prompt_ids if id in (THINK, END_OF_THOUGHT)]
    is_open = marks[-1:] == [THINK] or left[:1] == [THINK]
    return left[left.index(END_OF_THOUGHT) + 1:] if is_open and END_OF_THOUGHT in left else left

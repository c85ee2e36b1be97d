"""The scripted engine says nothing that its request's grammar forbids."""

import json
from typing import Any

import pytest

from engine.grammar.binding import GrammarRefused
from engine.script.obey import obey
from engine.script.script import ScriptRefused, task
from engine.sim.tokenizer import encode

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
CHAT = "<|user|>\nSCRIPT {script}<|assistant|>\n"


def check(answer: str, guided: dict[str, Any] | None, said: str = "", template: str = "") -> None:
    ids = encode(CHAT.replace("{script}", json.dumps({"answer": answer})) + template + said)
    obey({"token_ids": ids, "sampling_options": {"guided_decoding": guided}}, task(ids))


@pytest.mark.parametrize("guided", [
    {"json": SCHEMA}, {"json": SCHEMA, "regex": None}, {"grammar": 'root ::= "{\\"a\\": 1}"'}, {"choice": ['{"a": 1}']},
    {"regex": '[^x]+'}, None, {}])
def test_what_fits_is_said(guided: dict[str, Any] | None) -> None:
    check('{"a": 1}', guided)


@pytest.mark.parametrize("guided", [
    {"json": {"type": "array"}}, {"grammar": 'root ::= "{"'}, {"choice": ["{"]}, {"regex": "[a-z]+"}])
def test_what_does_not_fit_is_refused(guided: dict[str, Any]) -> None:
    with pytest.raises(ScriptRefused, match="does not fit"):
        check('{"a": 1}', guided)


def test_a_beginning_alone_does_not_fit() -> None:
    with pytest.raises(ScriptRefused):
        check('{"a": 1', {"json": SCHEMA})


def test_a_grammar_that_is_none_is_refused() -> None:
    with pytest.raises(GrammarRefused):
        check("x", {"grammar": "none"})


def test_only_what_is_left_is_held_to_what_is_left_of_the_grammar() -> None:
    check('{"a": 1}', {"grammar": 'root ::= ": 1}"'}, said='{"a"')
    with pytest.raises(ScriptRefused):
        check('{"a": 1}', {"json": SCHEMA}, said='{"a"')


@pytest.mark.parametrize(("said", "template"), [("", "<think>"), ("hm", "<think>"), ("", ""), ("<think>", "")])
def test_a_thought_is_free(said: str, template: str) -> None:
    answer = ("" if template else "<think>") + 'hm {</think>{"a": 1}'
    check(answer, {"json": SCHEMA}, said, template)


def test_after_the_thought_the_grammar_holds() -> None:
    with pytest.raises(ScriptRefused):
        check('hm</think>{"a": x}', {"json": SCHEMA}, template="<think>")
    check('hm</think>{"a": 1}', {"grammar": 'root ::= "1}"'}, said='hm</think>{"a": ', template="<think>")


def test_a_structural_tag_speaks_of_the_thought_itself() -> None:
    thought = {"type": "tag", "begin": "", "content": {"type": "any_text"}, "end": "</think>"}
    tag = {"type": "structural_tag", "format": {"type": "sequence", "elements": [
        thought, {"type": "const_string", "value": "x"}]}}
    check("hm</think>x", {"structural_tag": tag}, template="<think>")
    with pytest.raises(ScriptRefused):
        check("hm</think>y", {"structural_tag": tag}, template="<think>")

"""Reading grammars as xgrammar prints them, and writing them again so that it takes them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue

from engine.grammar import binding
from engine.grammar.ebnf import Unreadable, literal, parse, show
from engine.grammar.matcher import Matcher
from engine.grammar.nodes import Characters, Dispatch, FreeText, Grammar, Literal, Pattern, Reference, Repeat


def root_of(text: str) -> tuple[Grammar, object]:
    grammar = parse(text)
    return grammar, grammar.nodes[grammar.rules["root"]]


def again(text: str) -> str:
    """The grammar, read and written."""
    grammar = parse(text)
    return show(grammar, grammar.add(Reference("root")))


@given(text=st.text(max_size=40))
def test_every_literal_comes_back(text: str) -> None:
    grammar, found = root_of(f"root ::= {literal(text)}")
    assert found == (Literal(text) if text else grammar.nodes[grammar.empty])


@given(text=st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=20))
def test_xgrammar_reads_every_literal_as_it_is_meant(text: str) -> None:
    matcher = Matcher(f"root ::= {literal(text)}")
    assert matcher.take(text)
    assert matcher.is_complete


@pytest.mark.parametrize(("written", "meant"), [
    (r'"\n\t\r\0\\\""', "\n\t\r\0\\\""), (r'"\x41\u00e9\U0001f389"', "Aé🎉"), (r'"\-\]"', "-]"), ('"日"', "日"),
])
def test_escapes_are_read(written: str, meant: str) -> None:
    assert root_of(f"root ::= {written}")[1] == Literal(meant)


@pytest.mark.parametrize(("written", "ranges", "is_negated"), [
    ("[a-z]", ((97, 122),), False), (r"[^\]\-a]", ((93, 93), (45, 45), (97, 97)), True), ("[a-]", ((97, 97), (45, 45)),
     False), (r"[\0-\U0010ffff]", ((0, 0x10FFFF),), False), ("[]", (), False)])
def test_character_classes_are_read(written: str, ranges: tuple[tuple[int, int], ...], is_negated: bool) -> None:
    assert root_of(f"root ::= {written}")[1] == Characters(ranges, is_negated)


@pytest.mark.parametrize(("sign", "bounds"), [
    ("*", (0, -1)), ("+", (1, -1)), ("?", (0, 1)), ("{2}", (2, 2)), ("{2, 4}", (2, 4)), ("{2,}", (2, -1)),
    ("{2, -1}", (2, -1))])
def test_quantifiers_are_read(sign: str, bounds: tuple[int, int]) -> None:
    found = root_of(f"root ::= [a]{sign}")[1]
    assert isinstance(found, Repeat)
    assert (found.least, found.most) == bounds


def test_once_and_never_are_no_repetitions() -> None:
    grammar, found = root_of('root ::= "a"{1}')
    assert found == Literal("a")
    assert root_of('root ::= "a"{0, 0}')[1] == grammar.nodes[grammar.empty]


def test_free_text_and_patterns_are_read() -> None:
    dispatch = 'TagDispatch(\n  ("<a>", x),\n  loop_after_dispatch=false,\n  excludes=("<b>", "c")\n)'
    grammar, found = root_of(f'root ::= {dispatch}\nx ::= Regex("^a\\"$", json_string=true)')
    assert found == FreeText("root")
    assert grammar.dispatches == {"root": Dispatch((("<a>", "x"),), False, ("<b>", "c"))}
    assert grammar.nodes[grammar.rules["x"]] == Pattern('^a"$', True)


@pytest.mark.parametrize("text", [
    "", "root", 'root ::= "a', "root ::= [a", "root ::= (", 'root ::= "a"{', 'root ::= "a"{x}', "root ::= missing",
    'root ::= TagDispatch(("a", missing))', 'root ::= TagDispatch(speed=3)', 'root ::= "a"\nroot ::= "b"', 'x ::= "a"',
    r'root ::= "\uzzzz"', r'root ::= "\Uffffffff"', 'root ::= Token(1', "root ::= " + "(" * 200, 'root[lazy] ::= "a"',
    'root ::= "a" )', "root ::= *", "🎉 ::= x",
    'root ::= "a"{3, 2}', 'root ::= "a"{3, -2}', "root ::= [\\", 'root ::= "\\',
])
def test_what_is_no_grammar_is_refused(text: str) -> None:
    with pytest.raises(Unreadable):
        parse(text)


def test_a_refusal_holds_nothing_of_the_grammar() -> None:
    with pytest.raises(Unreadable) as caught:
        parse("root ::= SECRETPROMPT")
    assert "SECRET" not in str(caught.value)


@given(text=st.text("root:=\"'[]()|*+?{},\\ \na1-^", max_size=60))
def test_no_text_does_more_than_be_refused(text: str) -> None:
    try:
        parse("root ::= " + text)
    except Unreadable:
        return


@pytest.mark.parametrize(("schema", "texts"), [
    ({"type": "object", "properties": {"a": {"type": "string", "pattern": "^[a-z]+$"}, "b": {"enum": ["é", 1]}}},
     ['{"a": "xyz", "b": "é"}', '{"b": 1}', '{"a": "X"}', '{"b": "e"}', "{"]),
    ({"type": "array", "items": {"$ref": "#"}, "maxItems": 3}, ["[[], [[]]]", "[]", "[[],[],[],[]]", "[[]"]),
])
def test_a_grammar_written_again_says_the_same(schema: dict[str, JsonValue], texts: list[str]) -> None:
    ebnf = binding.of_json_schema(schema)
    for text in texts:
        before, after = Matcher(ebnf), Matcher(again(ebnf))
        assert before.take(text) is after.take(text)
        assert before.is_complete is after.is_complete


def test_only_the_rules_that_are_needed_are_written() -> None:
    assert again('root ::= a\na ::= "x" a | ""\nb ::= "y"').count("::=") == 3

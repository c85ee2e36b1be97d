"""Reads and writes grammars in the notation that xgrammar prints and takes."""

import re
from collections.abc import Callable, Iterable, Iterator

from engine.grammar.dispatch import notable, step
from engine.grammar.nodes import (
    UNBOUNDED,
    Characters,
    Choice,
    Dispatch,
    FreeText,
    Grammar,
    Literal,
    Opaque,
    Pattern,
    Reference,
    Repeat,
    Sequence,
)

ROOT = "root"
SPACE = re.compile(r"(?:[ \t\n\r]|#[^\n]*)*")
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
HEAD = re.compile(NAME.pattern + r"[ \t]*::=")
BOUNDS = re.compile(r"\{\s*(\d+)\s*(?:(,)\s*(-?\d+)?\s*)?\}")
STRING = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "0": "\0", "a": "\a", "b": "\b", "e": "\x1b", "f": "\f", "v": "\v"}
HEXADECIMAL = {"x": 2, "u": 4, "U": 8}
QUANTIFIERS = {"*": (0, UNBOUNDED), "+": (1, UNBOUNDED), "?": (0, 1)}
OPAQUE = ("Token", "ExcludeToken", "TokenTagDispatch")
DISPATCH, PATTERN = "TagDispatch", "Regex"
# What a JSON string cannot hold as it is.
ESCAPED_IN_STRINGS = ((0, 0x1F), (ord('"'), ord('"')), (ord("\\"), ord("\\")))
MAX_DEPTH = 100


class Unreadable(Exception):
    """The text is no grammar of this notation; the message says where, and holds none of it."""


def parse(text: str, check: Callable[[], None] = lambda: None) -> Grammar:
    """The grammar of a text. `check` is called for each rule and may raise to give up.

    Raises:
        Unreadable: it is none, refers to a rule that it lacks, or uses what only tokens or Lark grammars have.
    """
    found = Grammar()
    _Reader(text, found).read(check)
    for node in found.nodes:
        if isinstance(node, Reference) and node.rule not in found.rules:
            raise Unreadable("it refers to a rule that it lacks")
    for dispatch in found.dispatches.values():
        if any(rule not in found.rules for _, rule in dispatch.triggers):
            raise Unreadable("it dispatches to a rule that it lacks")
    if ROOT not in found.rules:
        raise Unreadable(f"it has no rule {ROOT}")
    return found


def add_pattern(grammar: Grammar, pattern: Pattern, ebnf: str) -> None:
    """Adds the rules of a regular expression's own grammar.

    Raises:
        Unreadable: see `parse`.
    """
    prefix = f"pattern{len(grammar.patterns)}_"
    _Reader(ebnf, grammar, prefix, pattern.in_string).read(lambda: None)
    grammar.patterns[pattern] = prefix + ROOT


def show(grammar: Grammar, root: int) -> str:
    """A grammar whose root is this node, with all the rules that it needs."""
    return _Writer(grammar).text(root)


def literal(text: str) -> str:
    """A text as a literal, all in printable ASCII."""
    return '"' + "".join(map(_escaped, text)) + '"'


class _Reader:
    """Walks through the text once and adds what it says to the grammar."""

    def __init__(self, text: str, grammar: Grammar, prefix: str = "", in_string: bool = False) -> None:
        self._text, self._at, self._depth = text, 0, 0
        self._grammar, self._prefix, self._in_string = grammar, prefix, in_string
        self._rule = ""

    def read(self, check: Callable[[], None]) -> None:
        self._skip()
        while self._at < len(self._text):
            check()
            head = HEAD.match(self._text, self._at)
            if head is None:
                raise self._fault("a rule")
            self._rule = self._prefix + self._take(NAME)
            if self._rule in self._grammar.rules:
                raise self._fault("a rule that is not there yet")
            self._at = head.end()
            self._grammar.rules[self._rule] = self._choice()
            if self._skips_to("(="):
                self._at += 2
                self._grammar.follows[self._rule] = self._choice()
                self._expect(")")
            self._skip()

    def _choice(self) -> int:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise self._fault("less nesting")
        options = [self._sequence()]
        while self._skips_to("|"):
            self._at += 1
            options.append(self._sequence())
        self._depth -= 1
        return self._grammar.choice(options)

    def _sequence(self) -> int:
        parts = []
        while not self._ends():
            part = self._part()
            while self._text[self._at:self._at + 1] in QUANTIFIERS or self._text.startswith("{", self._at):
                part = self._grammar.repeat(part, *self._bounds())
            parts.append(part)
        return self._grammar.sequence(parts)

    def _ends(self) -> bool:
        self._skip()
        return (self._text[self._at:self._at + 1] in ("", "|", ")") or self._text.startswith("(=", self._at)
                or HEAD.match(self._text, self._at) is not None)

    def _part(self) -> int:
        if self._text.startswith('"', self._at):
            text = self._string()
            is_out = self._in_string and any(_ranges_have(ESCAPED_IN_STRINGS, ord(character)) for character in text)
            return self._grammar.nothing if is_out else self._grammar.literal(text)
        if self._text.startswith("[", self._at):
            return self._characters()
        if self._text.startswith("(", self._at):
            self._at += 1
            inner = self._choice()
            self._expect(")")
            return inner
        name = self._take(NAME)
        if name == DISPATCH:
            return self._dispatch()
        if name == PATTERN:
            return self._pattern()
        if name in OPAQUE:
            return self._opaque(name)
        return self._grammar.add(Reference(self._prefix + name))

    def _bounds(self) -> tuple[int, int]:
        quantifier = QUANTIFIERS.get(self._text[self._at])
        if quantifier:
            self._at += 1
            return quantifier
        found = BOUNDS.match(self._text, self._at)
        if found is None:
            raise self._fault("bounds")
        self._at = found.end()
        least = int(found[1])
        most = least if found[2] is None else int(found[3] or UNBOUNDED)
        if most < least and most != UNBOUNDED:
            raise self._fault("bounds in order")
        return least, most

    def _dispatch(self) -> int:
        if self._rule in self._grammar.dispatches:
            raise self._fault("one dispatch in a rule")
        self._expect("(")
        triggers: list[tuple[str, str]] = []
        loops = True
        excludes: tuple[str, ...] = ()
        while not self._skips_to(")"):
            if self._skips_to("("):
                self._at += 1
                trigger = self._string()
                self._expect(",")
                self._skip()
                triggers.append((trigger, self._take(NAME)))
                self._expect(")")
            else:
                name = self._take(NAME)
                self._expect("=")
                if name == "loop_after_dispatch":
                    loops = self._take(NAME) == "true"
                elif name == "excludes":
                    excludes = tuple(self._strings())
                else:
                    raise self._fault("a known option")
            if self._skips_to(","):
                self._at += 1
        self._expect(")")
        self._grammar.dispatches[self._rule] = Dispatch(tuple(triggers), loops, excludes)
        return self._grammar.add(FreeText(self._rule))

    def _strings(self) -> Iterator[str]:
        self._expect("(")
        while not self._skips_to(")"):
            yield self._string()
            if self._skips_to(","):
                self._at += 1
        self._expect(")")

    def _pattern(self) -> int:
        self._expect("(")
        regex, in_string = self._string(), False
        if self._skips_to(","):
            self._at += 1
            self._expect("json_string")
            self._expect("=")
            self._skip()
            in_string = self._take(NAME) == "true"
        self._expect(")")
        return self._grammar.add(Pattern(regex, in_string))

    def _opaque(self, name: str) -> int:
        start, depth = self._at, 0
        while True:
            quoted = STRING.match(self._text, self._at)
            character = self._text[self._at:self._at + 1]
            if not character:
                raise self._fault("a closing bracket")
            self._at = quoted.end() if quoted else self._at + 1
            depth += {"(": 1, ")": -1}.get(character, 0)
            if depth == 0:
                return self._grammar.add(Opaque(name + self._text[start:self._at]))

    def _string(self) -> str:
        self._skip()
        end = STRING.match(self._text, self._at)
        if end is None:
            raise self._fault("a literal")
        self._at += 1
        text = ""
        while self._at < end.end() - 1:
            text += self._character()
        self._at = end.end()
        return text

    def _characters(self) -> int:
        self._at += 1
        is_negated = self._text.startswith("^", self._at)
        self._at += is_negated
        ranges = []
        while not self._text.startswith("]", self._at):
            first = last = ord(self._character())
            if self._text.startswith("-", self._at) and not self._text.startswith("-]", self._at):
                self._at += 1
                last = ord(self._character())
            ranges.append((first, last))
        self._at += 1
        if self._in_string:
            ranges = [*ranges, *ESCAPED_IN_STRINGS] if is_negated else list(_without_escaped(ranges))
        return self._grammar.add(Characters(tuple(ranges), is_negated))

    def _character(self) -> str:
        character = self._text[self._at:self._at + 1]
        self._at += 1
        if character != "\\":
            if not character:
                raise self._fault("a character")
            return character
        kind = self._text[self._at:self._at + 1]
        self._at += 1
        if not kind:
            raise self._fault("a character")
        if kind not in HEXADECIMAL:
            return ESCAPES.get(kind, kind)
        digits = self._text[self._at:self._at + HEXADECIMAL[kind]]
        self._at += len(digits)
        try:
            return chr(int(digits, 16))
        except (ValueError, OverflowError):
            raise self._fault("a code point") from None

    def _take(self, pattern: re.Pattern[str]) -> str:
        found = pattern.match(self._text, self._at)
        if found is None:
            raise self._fault("a name")
        self._at = found.end()
        return found[0]

    def _skip(self) -> None:
        found = SPACE.match(self._text, self._at)
        self._at = found.end() if found else self._at

    def _skips_to(self, sign: str) -> bool:
        self._skip()
        return self._text.startswith(sign, self._at)

    def _expect(self, sign: str) -> None:
        if not self._skips_to(sign):
            raise self._fault(sign)
        self._at += len(sign)

    def _fault(self, wanted: str) -> Unreadable:
        return Unreadable(f"{wanted} is missing at character {self._at}")


class _Writer:
    """Prints nodes, and notes the rules that they need. A rule here is one of the grammar's, or one of free text."""

    def __init__(self, grammar: Grammar) -> None:
        self._grammar = grammar
        self._names: dict[str | FreeText, str] = {}

    def text(self, root: int) -> str:
        lines = [f"{ROOT} ::= {self._node(root)}"]
        while len(lines) <= len(self._names):
            rule, name = list(self._names.items())[len(lines) - 1]
            lines.append(f"{name} ::= {self._free_text(rule) if isinstance(rule, FreeText) else self._rule(rule)}")
        return "\n".join(lines) + "\n"

    def _name(self, rule: str | FreeText) -> str:
        """A rule's name here: the old root is a rule like any other."""
        return self._names.setdefault(rule, f"r{len(self._names)}")

    def _rule(self, rule: str) -> str:
        body = self._node(self._grammar.rules[rule])
        follows = self._grammar.follows.get(rule)
        return body if follows is None else f"{body} (={self._node(follows)})"

    def _node(self, number: int) -> str:
        node = self._grammar.nodes[number]
        match node:
            case Literal(text):
                return literal(text)
            case Characters(ranges, is_negated):
                return _characters(ranges, is_negated)
            case Reference(rule):
                return self._name(rule)
            case Sequence(parts):
                return "(" + " ".join(map(self._node, parts)) + ")" if parts else '""'
            case Choice(options):
                return "(" + " | ".join(map(self._node, options)) + ")"
            case Repeat(part, least, most):
                return self._node(part) + _bounds(least, most)
            case Pattern(regex, in_string):
                return f"{PATTERN}({literal(regex)}{', json_string=true' if in_string else ''})"
            case Opaque(source):
                return source
            case FreeText():
                return self._name(node)

    def _free_text(self, text: FreeText) -> str:
        dispatch = self._grammar.dispatches[text.rule]
        if text.seen:
            return self._seen(text, dispatch)
        triggers = "".join(f"({literal(trigger)}, {self._name(rule)}), " for trigger, rule in dispatch.triggers)
        excludes = ", ".join(map(literal, dispatch.excludes))
        return f"{DISPATCH}({triggers}loop_after_dispatch={str(dispatch.loops).lower()}, excludes=({excludes}))"

    def _seen(self, text: FreeText, dispatch: Dispatch) -> str:
        """Free text of which something was seen already, spelled out: the notation cannot say so."""
        plain = self._name(FreeText(text.rule))
        characters = notable(dispatch, text.seen)
        options = ['""', f"({_characters(tuple((ord(c), ord(c)) for c in characters), True)} {plain})"]
        for character in characters:
            found = step(dispatch, text.seen, character)
            if found.seen is not None:
                options.append(f"({literal(character)} {self._name(FreeText(text.rule, found.seen))})")
            options += [f"({literal(character)} {self._name(rule)}{' ' + plain if dispatch.loops else ''})"
                        for rule in found.rules]
        return "(" + " | ".join(options) + ")"


def _characters(ranges: tuple[tuple[int, int], ...], is_negated: bool) -> str:
    return f"[{'^' if is_negated else ''}{''.join(_range(first, last) for first, last in ranges)}]"


def _ranges_have(ranges: Iterable[tuple[int, int]], point: int) -> bool:
    return any(first <= point <= last for first, last in ranges)


def _without_escaped(ranges: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    for first, last in ranges:
        at = first
        for hole_first, hole_last in ESCAPED_IN_STRINGS:
            if at < hole_first:
                yield at, min(last, hole_first - 1)
            at = max(at, hole_last + 1)
            if at > last:
                break
        else:
            yield at, last


def _bounds(least: int, most: int) -> str:
    for sign, bounds in QUANTIFIERS.items():
        if bounds == (least, most):
            return sign
    return f"{{{least},}}" if most == UNBOUNDED else f"{{{least}, {most}}}"


def _range(first: int, last: int) -> str:
    return _escaped(chr(first)) + ("" if first == last else "-" + _escaped(chr(last)))


def _escaped(character: str) -> str:
    if " " <= character <= "~" and character not in "\"\\[]^-":
        return character
    point = ord(character)
    return f"\\u{point:04x}" if point < 0x10000 else f"\\U{point:08x}"

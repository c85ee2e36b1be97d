"""What is left of a grammar once a text was delivered: its Brzozowski derivative by that text.

A guided answer that broke off goes on under this grammar, and so ends as the whole grammar allows. Pure: it needs the
grammar as xgrammar prints it, and nothing of xgrammar.
"""

from collections.abc import Callable

from engine.grammar.dispatch import step
from engine.grammar.ebnf import ROOT, add_pattern, parse, show
from engine.grammar.nodes import (
    UNBOUNDED,
    Characters,
    Choice,
    FreeText,
    Grammar,
    Literal,
    Opaque,
    Pattern,
    Reference,
    Repeat,
    Sequence,
)

MAX_NODES = 500_000
NOT_TOUCHED = 1 << 30


class NotInGrammar(Exception):
    """No text of the grammar begins with what was delivered."""


class Undivided(Exception):
    """The grammar cannot be cut there: it speaks of tokens, is left-recursive, or becomes too large."""


def residual(ebnf: str, delivered: str, of_regex: Callable[[str], str], check: Callable[[], None]) -> str:
    """The grammar of all that may follow `delivered`. `of_regex` makes a grammar of a regular expression; `check` is
    called again and again, and may raise to give up.

    Raises:
        Unreadable: `ebnf` is no grammar as xgrammar prints it.
        NotInGrammar: nothing may follow, not even the end.
        Undivided: see there.
    """
    grammar = parse(ebnf, check)
    for pattern in [node for node in grammar.nodes if isinstance(node, Pattern)]:
        add_pattern(grammar, pattern, of_regex(pattern.regex))
    derivation = _Derivation(grammar, check)
    left = grammar.add(Reference(ROOT))
    for character in delivered:
        left = derivation.after(left, character)
    if left == grammar.nothing:
        raise NotInGrammar("the delivered text is no beginning of a text of the grammar")
    return show(grammar, left)


class _Derivation:
    """Derives nodes by characters, each pair once.

    A node may come to itself again with nothing before it and nothing behind it (`r ::= x r | ""`, where `x` may be
    empty): that adds nothing, so it counts as no text. With something behind it, it is left recursion. `_barrier` is
    how many of the open nodes have something behind what is looked at; `_touched` the outermost open one that was come
    to again, on which a result depends until that one is done.
    """

    def __init__(self, grammar: Grammar, check: Callable[[], None]) -> None:
        self._grammar, self._check = grammar, check
        self._known: dict[tuple[int, str], int] = {}
        self._open: dict[tuple[int, str], int] = {}
        self._barrier = 0
        self._touched = NOT_TOUCHED
        self._can_be_empty = _Emptiness(grammar, check)

    def after(self, number: int, character: str) -> int:
        """What may follow `character` in the texts of a node that begin with it."""
        key = (number, character)
        known = self._known.get(key)
        if known is not None:
            return known
        opened = self._open.get(key)
        if opened is not None:
            if opened < self._barrier:
                raise Undivided("the grammar is left-recursive")
            self._touched = min(self._touched, opened)
            return self._grammar.nothing
        if len(self._grammar.nodes) > MAX_NODES:
            raise Undivided("the grammar becomes too large")
        return self._after_unknown(key)

    def _after_unknown(self, key: tuple[int, str]) -> int:
        self._check()
        depth, touched_before = len(self._open), self._touched
        self._open[key], self._touched = depth, NOT_TOUCHED
        found = self._derive(*key)
        del self._open[key]
        if self._touched >= depth:
            self._known[key] = found
            self._touched = NOT_TOUCHED
        self._touched = min(self._touched, touched_before)
        return found

    def _after_before(self, part: int, character: str, *rest: int) -> int:
        """What follows `character` in a part and the rest behind it."""
        barrier = self._barrier
        if any(part != self._grammar.empty for part in rest):
            self._barrier = len(self._open)
        left = self.after(part, character)
        self._barrier = barrier
        return self._grammar.sequence([left, *rest])

    def _derive(self, number: int, character: str) -> int:
        grammar = self._grammar
        node = grammar.nodes[number]
        match node:
            case Literal(text):
                return grammar.literal(text[1:]) if text[0] == character else grammar.nothing
            case Characters():
                return grammar.empty if node.has(character) else grammar.nothing
            case Reference(rule):
                return self.after(grammar.rules[rule], character)
            case Choice(options):
                return grammar.choice([self.after(option, character) for option in options])
            case Sequence(parts):
                return self._after_sequence(parts, character)
            case Repeat(part, least, most):
                rest = grammar.repeat(part, max(least - 1, 0), most if most == UNBOUNDED else most - 1)
                return self._after_before(part, character, rest)
            case FreeText():
                return self._after_free_text(node, character)
            case Pattern():
                return self.after(grammar.rules[grammar.patterns[node]], character)
            case Opaque():
                raise Undivided("the grammar cannot be cut within what it says of tokens")

    def _after_sequence(self, parts: tuple[int, ...], character: str) -> int:
        grammar = self._grammar
        options = []
        for at, part in enumerate(parts):
            options.append(self._after_before(part, character, *parts[at + 1:]))
            if not self._can_be_empty.of(part):
                break
        return grammar.choice(options)

    def _after_free_text(self, text: FreeText, character: str) -> int:
        grammar = self._grammar
        dispatch = grammar.dispatches[text.rule]
        found = step(dispatch, text.seen, character)
        if found.seen is not None:
            return grammar.add(FreeText(text.rule, found.seen))
        rest = [grammar.add(FreeText(text.rule))] if dispatch.loops else []
        return grammar.choice([grammar.sequence([grammar.add(Reference(rule)), *rest]) for rule in found.rules])


class _Emptiness:
    """Which nodes' texts may be empty: first of the rules, until nothing is added, then of each node once."""

    def __init__(self, grammar: Grammar, check: Callable[[], None]) -> None:
        self._grammar = grammar
        self._rules: frozenset[str] = frozenset()
        self._known: dict[int, bool] = {}
        while True:
            check()
            more = frozenset(rule for rule, body in grammar.rules.items() if self.of(body))
            self._known = {}
            if more == self._rules:
                return
            self._rules = more

    def of(self, number: int) -> bool:
        known = self._known.get(number)
        if known is None:
            known = self._known[number] = self._of(number)
        return known

    def _of(self, number: int) -> bool:
        node = self._grammar.nodes[number]
        match node:
            case Reference(rule):
                return rule in self._rules
            case Sequence(parts):
                return all(map(self.of, parts))
            case Choice(options):
                return any(map(self.of, options))
            case Repeat(part, least, _):
                return least == 0 or self.of(part)
            case Pattern():
                return self._grammar.patterns[node] in self._rules
            case FreeText():
                return True
            case _:
                return False

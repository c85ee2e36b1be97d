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


class NotInGrammar(Exception):
    """No text of the grammar begins with what was delivered."""


class Undivided(Exception):
    """The grammar cannot be cut there: it speaks of tokens, is left-recursive, or becomes too large."""


def residual(ebnf: str, delivered: str, of_regex: Callable[[str], str], check: Callable[[], None]) -> str:
    """The grammar of all that may follow `delivered`. `of_regex` makes a grammar of a regular expression; `check` is
    called for each character and may raise to give up.

    Raises:
        Unreadable: `ebnf` is no grammar as xgrammar prints it.
        NotInGrammar: nothing may follow, not even the end.
        Undivided: see there.
    """
    grammar = parse(ebnf)
    for pattern in [node for node in grammar.nodes if isinstance(node, Pattern)]:
        add_pattern(grammar, pattern, of_regex(pattern.regex))
    derivation = _Derivation(grammar)
    left = grammar.add(Reference(ROOT))
    for character in delivered:
        check()
        left = derivation.after(left, character)
    if left == grammar.nothing:
        raise NotInGrammar("the delivered text is no beginning of a text of the grammar")
    return show(grammar, left)


class _Derivation:
    """Derives nodes by characters, each pair once."""

    def __init__(self, grammar: Grammar) -> None:
        self._grammar = grammar
        self._known: dict[tuple[int, str], int] = {}
        self._open: set[tuple[int, str]] = set()
        self._can_be_empty = _can_be_empty(grammar)

    def after(self, number: int, character: str) -> int:
        """What may follow `character` in the texts of a node that begin with it."""
        key = (number, character)
        known = self._known.get(key)
        if known is not None:
            return known
        if key in self._open:
            raise Undivided("the grammar is left-recursive")
        if len(self._grammar.nodes) > MAX_NODES:
            raise Undivided("the grammar becomes too large")
        self._open.add(key)
        found = self._derive(number, character)
        self._open.discard(key)
        self._known[key] = found
        return found

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
                return grammar.sequence([self.after(part, character), rest])
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
            options.append(grammar.sequence([self.after(part, character), *parts[at + 1:]]))
            if not _is_nullable(grammar, part, self._can_be_empty):
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


def _can_be_empty(grammar: Grammar) -> frozenset[str]:
    """The rules whose texts may be empty."""
    found: frozenset[str] = frozenset()
    while True:
        more = frozenset(rule for rule, body in grammar.rules.items() if _is_nullable(grammar, body, found))
        if more == found:
            return found
        found = more


def _is_nullable(grammar: Grammar, number: int, empty_rules: frozenset[str]) -> bool:
    node = grammar.nodes[number]
    match node:
        case Reference(rule):
            return rule in empty_rules
        case Sequence(parts):
            return all(_is_nullable(grammar, part, empty_rules) for part in parts)
        case Choice(options):
            return any(_is_nullable(grammar, option, empty_rules) for option in options)
        case Repeat(part, least, _):
            return least == 0 or _is_nullable(grammar, part, empty_rules)
        case Pattern():
            return grammar.patterns[node] in empty_rules
        case FreeText():
            return True
        case _:
            return False

"""Grammars as graphs of shared nodes.

Equal nodes are one node, known by its number: so alternatives that are the same fall together, and what was worked out
for a node once holds wherever it stands. That keeps the grammars that are derived from a grammar small.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

UNBOUNDED = -1


@dataclass(frozen=True, slots=True)
class Literal:
    """A text, never empty."""

    text: str


@dataclass(frozen=True, slots=True)
class Characters:
    """One character out of ranges of code points, both ends included, or out of all others."""

    ranges: tuple[tuple[int, int], ...]
    is_negated: bool

    def has(self, character: str) -> bool:
        point = ord(character)
        return any(first <= point <= last for first, last in self.ranges) is not self.is_negated


@dataclass(frozen=True, slots=True)
class Reference:
    """What a rule says."""

    rule: str


@dataclass(frozen=True, slots=True)
class Sequence:
    """Parts, one after the other; without parts, the empty text."""

    parts: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    """One of several; without options, no text at all."""

    options: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """A part, `least` to `most` times."""

    part: int
    least: int
    most: int


@dataclass(frozen=True, slots=True)
class FreeText:
    """The free text of a rule that dispatches on triggers; `seen` is what may become a trigger."""

    rule: str
    seen: str = ""


@dataclass(frozen=True, slots=True)
class Pattern:
    """The texts that a regular expression matches as a whole. `in_string`: without what JSON strings have to escape."""

    regex: str
    in_string: bool


@dataclass(frozen=True, slots=True)
class Opaque:
    """What is printed as it came and cannot be cut: it speaks of tokens."""

    source: str


Node = Literal | Characters | Reference | Sequence | Choice | Repeat | FreeText | Pattern | Opaque


@dataclass(frozen=True, slots=True)
class Dispatch:
    """Free text in which a trigger's rule must follow the trigger; `loops`: then free text again, else the end.
    `excludes` must not occur in free text."""

    triggers: tuple[tuple[str, str], ...]
    loops: bool
    excludes: tuple[str, ...]


@dataclass(slots=True)
class Grammar:
    """Rules by name. `follows` are the rules' lookahead assertions: hints of what comes after them. `patterns` are the
    rules that say the same as regular expressions do."""

    rules: dict[str, int] = field(default_factory=dict)
    follows: dict[str, int] = field(default_factory=dict)
    dispatches: dict[str, Dispatch] = field(default_factory=dict)
    patterns: dict[Pattern, str] = field(default_factory=dict)
    nodes: list[Node] = field(default_factory=list)
    numbers: dict[Node, int] = field(default_factory=dict)

    def add(self, node: Node) -> int:
        """The node's number."""
        number = self.numbers.setdefault(node, len(self.nodes))
        if number == len(self.nodes):
            self.nodes.append(node)
        return number

    @property
    def empty(self) -> int:
        return self.add(Sequence(()))

    @property
    def nothing(self) -> int:
        return self.add(Choice(()))

    def literal(self, text: str) -> int:
        return self.add(Literal(text)) if text else self.empty

    def sequence(self, parts: Iterable[int]) -> int:
        flat: list[int] = []
        for part in parts:
            node = self.nodes[part]
            if node == Choice(()):
                return part
            flat.extend(node.parts if isinstance(node, Sequence) else (part,))
        return flat[0] if len(flat) == 1 else self.add(Sequence(tuple(flat)))

    def choice(self, options: Iterable[int]) -> int:
        flat: dict[int, None] = {}
        for option in options:
            node = self.nodes[option]
            flat.update(dict.fromkeys(node.options if isinstance(node, Choice) else (option,)))
        return next(iter(flat)) if len(flat) == 1 else self.add(Choice(tuple(flat)))

    def repeat(self, part: int, least: int, most: int) -> int:
        if most == 0:
            return self.empty
        return part if (least, most) == (1, 1) else self.add(Repeat(part, least, most))

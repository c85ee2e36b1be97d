"""The rule on states: a StrEnum of states has a transition table in which each of its members is found."""

import ast
from collections.abc import Iterable, Iterator

from tests.lint.sources import Fault, Source

ENDINGS = ("State", "Phase")
# What others report to us is observed, not moved by our code, so nobody owns a table of its moves.
OBSERVED = {"DeploymentPhase", "CommandState"}


def states_with_tables(sources: Iterable[Source]) -> Iterator[Fault]:
    """Every StrEnum of states has a table of its moves; a member that no move touches is a member too many."""
    product = [source for source in sources if source.is_product]
    tables = [table for source in product for table in _tables(source)]
    for source in product:
        for node in ast.walk(source.tree):
            if not (isinstance(node, ast.ClassDef) and _is_state(node)) or node.name in OBSERVED:
                continue
            members = {target.id for statement in node.body if isinstance(statement, ast.Assign)
                       for target in statement.targets if isinstance(target, ast.Name)}
            if not any(members <= known for name, known in tables if name == node.name):
                yield Fault(source.path, node.lineno, f"{node.name} has no transition table with all of its members")


def _is_state(node: ast.ClassDef) -> bool:
    return node.name.endswith(ENDINGS) and any(isinstance(base, ast.Name) and base.id == "StrEnum"
                                               for base in node.bases)


def _tables(source: Source) -> Iterator[tuple[str, set[str]]]:
    """Each enum and its members that a module-level dict speaks of, as keys or as where a move leads."""
    for statement in source.tree.body:
        value = statement.value if isinstance(statement, ast.Assign | ast.AnnAssign) else None
        for table in ast.walk(value) if value is not None else ():
            if not isinstance(table, ast.Dict):
                continue
            named = [source.dotted(node).split(".")[-2:] for node in ast.walk(table) if isinstance(node, ast.Attribute)]
            for enum in {name[0] for name in named if len(name) == 2}:
                yield enum, {name[1] for name in named if name[0] == enum}

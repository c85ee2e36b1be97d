"""Free text that dispatches on triggers, character by character. What was seen is the longest end of the text so far
that may become a trigger or something excluded."""

from dataclasses import dataclass

from engine.grammar.nodes import Dispatch


@dataclass(frozen=True, slots=True)
class Step:
    """After a character: the rules of a trigger that is complete, or the text `seen`, or neither: it is excluded."""

    seen: str | None
    rules: tuple[str, ...] = ()


def step(dispatch: Dispatch, seen: str, character: str) -> Step:
    """What a character makes of free text."""
    text = seen + character
    rules = tuple(rule for trigger, rule in dispatch.triggers if text.endswith(trigger))
    if rules:
        return Step(None, rules)
    if any(text.endswith(excluded) for excluded in dispatch.excludes):
        return Step(None)
    patterns = _patterns(dispatch)
    ends = (text[at:] for at in range(len(text)))
    return Step(next((end for end in ends if any(pattern.startswith(end) for pattern in patterns)), ""))


def notable(dispatch: Dispatch, seen: str) -> list[str]:
    """The characters after which something is seen, entered or excluded; all others lead back to plain text."""
    ends = [seen[at:] for at in range(len(seen) + 1)]
    patterns = _patterns(dispatch)
    return sorted({pattern[len(end)] for end in ends for pattern in patterns
                   if len(pattern) > len(end) and pattern.startswith(end)})


def _patterns(dispatch: Dispatch) -> tuple[str, ...]:
    return (*(trigger for trigger, _ in dispatch.triggers), *dispatch.excludes)

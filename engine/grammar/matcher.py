"""Whether texts fit a grammar, by xgrammar's own word."""

from typing import Any

from engine.grammar import binding

RAW_VOCABULARY = 0
ONE_THREAD = 1
NO_LIMIT = -1


class Matcher:
    """Takes a text in pieces.

    Raises:
        GrammarRefused: `ebnf` is no grammar, or xgrammar is not installed.
    """

    def __init__(self, ebnf: str) -> None:
        core = binding.core()
        vocabulary = core.TokenizerInfo([], RAW_VOCABULARY, None, None, False)
        compiler = core.GrammarCompiler(vocabulary, ONE_THREAD, False, NO_LIMIT)
        compiled = compiler.compile_grammar_ebnf(binding.grammar("from_ebnf", ebnf))
        self._matcher: Any = core.GrammarMatcher(compiled, None, True, NO_LIMIT, None)

    def take(self, text: str) -> bool:
        """Whether the text so far and this piece are the beginning of a text of the grammar."""
        return bool(self._matcher.accept_string(text.encode(), False))

    @property
    def is_complete(self) -> bool:
        """Whether the text so far is one of the grammar's."""
        return bool(self._matcher.is_completed())

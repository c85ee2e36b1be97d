"""xgrammar is entered without what it does not need here."""

import subprocess
import sys

from engine.grammar import binding

SCRIPT = """
import sys
from engine.grammar import binding, matcher
print(binding.of_regex("ab").startswith("root ::="), matcher.Matcher('root ::= "a"').take("a"))
print(sorted({"torch", "transformers", "numpy"} & set(sys.modules)))
"""


def test_neither_torch_nor_transformers_is_loaded() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=30, check=True)
    assert done.stdout.split("\n")[:2] == ["True True", "[]"]


def test_it_knows_whether_it_is_installed() -> None:
    assert binding.is_installed()

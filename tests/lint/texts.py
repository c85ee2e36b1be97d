"""Rules on every tracked text, code or not: it speaks of Meridian alone, and of no machine on which it was written."""

import re
from collections.abc import Iterator

from tests.lint.sources import Fault

# Written in pieces, so that the rules do not find themselves.
MACHINE_PATHS = re.compile(
    r"(?<![\w.])/(" + "|".join(("wo" r"rk/", "ro" r"ot/", "ho" r"me/\w\w", "Us" r"ers/\w\w", "t" r"mp/\w")) + ")")
INDEX_OPTIONS = re.compile(r"--(extra-)?ind" r"ex-url|--find-li" r"nks|--trusted-ho" r"st|UV_IND" r"EX|PIP_IND" r"EX")
REGISTRIES = re.compile(
    r"\b(pyp" r"i\.org|pythonho" r"sted\.org|artifact" r"ory|nex" r"us\.\w+\.\w+|devp" r"i)\b", re.IGNORECASE)
PRIVATE_ADDRESS = re.compile(r"\b(10\.\d{1,3}|192\.168|172\.(1[6-9]|2\d|3[01]))\.\d{1,3}\.\d{1,3}\b")
TRACES = ((MACHINE_PATHS, "a path of one machine"), (INDEX_OPTIONS, "a package index"),
          (REGISTRIES, "a registry's host"), (PRIVATE_ADDRESS, "a private address"))
ADDRESS = re.compile(r"https?://")
LOCKS = re.compile(r"(^|/)requirements\.(lock|in)$")


def no_machine(path: str, text: str) -> Iterator[Fault]:
    """No path, no package index and no private address of the machine on which something was written. Tests may hold
    private addresses, to show that they stay private."""
    for number, line in enumerate(text.splitlines(), 1):
        for pattern, what in TRACES:
            if pattern.search(line) and not (pattern is PRIVATE_ADDRESS and path.startswith("tests/")):
                yield Fault(path, number, f"names {what}: {line.strip()[:80]}")


def locks_without_addresses(path: str, text: str) -> Iterator[Fault]:
    """A lock file names packages and hashes; where they come from is the installing machine's to know."""
    if not LOCKS.search(path):
        return
    for number, line in enumerate(text.splitlines(), 1):
        if ADDRESS.search(line):
            yield Fault(path, number, "a lock file must not hold an address")


def locks_with_hashes(path: str, text: str) -> Iterator[Fault]:
    """Every requirement of a lock file is pinned and hashed."""
    if not path.endswith(".lock"):
        return
    entries = re.split(r"\n(?=[A-Za-z0-9])", "\n" + text)[1:]
    for entry in entries:
        if "==" not in entry.splitlines()[0] or "--hash=sha256:" not in entry:
            yield Fault(path, 1, f"not pinned and hashed: {entry.splitlines()[0][:80]}")

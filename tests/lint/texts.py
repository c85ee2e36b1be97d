"""Rules on every tracked text, code or not: it speaks of Meridian alone, and of no machine on which it was written."""

import posixpath
import re
from collections.abc import Iterator
from urllib.parse import unquote

from tests.lint.sources import Fault, tracked_paths

# Written in pieces, so that the rules do not find themselves.
MACHINE_PATHS = re.compile(
    r"(?<![\w.])/(" + "|".join(("wo" r"rk/", "ro" r"ot/", "ho" r"me/\w\w", "Us" r"ers/\w\w", "t" r"mp/\w")) + ")")
INDEX_OPTIONS = re.compile(r"--(extra-)?ind" r"ex-url|--find-li" r"nks|--trusted-ho" r"st|UV_IND" r"EX|PIP_IND" r"EX")
REGISTRIES = re.compile(
    r"\b(pyp" r"i\.org|pythonho" r"sted\.org|artifact" r"ory|nex" r"us\.\w+\.\w+|devp" r"i)\b", re.IGNORECASE)
PRIVATE_ADDRESS = re.compile(r"\b(10\.\d{1,3}|192\.168|172\.(1[6-9]|2\d|3[01]))\.\d{1,3}\.\d{1,3}\b")
TRACES = ((MACHINE_PATHS, "a path of one machine"), (INDEX_OPTIONS, "a package index"),
          (REGISTRIES, "a registry's host"), (PRIVATE_ADDRESS, "a private address"))
LINK = re.compile(
    r"\]\(\s*<?([^)\s>]+)>?[^)]*\)|^\s*\[[^\]]+\]:\s*<?([^\s>]+)|\b(?:src|href)=[\"']([^\"']+)[\"']")
SCHEME = re.compile(r"[a-z][a-z0-9+.-]*:|//", re.IGNORECASE)
PLACEHOLDER = re.compile(r"@@\w+@@")
FENCE = re.compile(r"\s*(```+|~~~+)")
CODE_SPAN = re.compile(r"`[^`]*`")
ADDRESS = re.compile(r"https?://")
LOCKS = re.compile(r"(^|/)requirements\.(lock|in)$")


def no_machine(path: str, text: str) -> Iterator[Fault]:
    """No path, no package index and no private address of the machine on which something was written. Tests may hold
    private addresses, to show that they stay private."""
    for number, line in enumerate(text.splitlines(), 1):
        for pattern, what in TRACES:
            if pattern.search(line) and not (pattern is PRIVATE_ADDRESS and path.startswith("tests/")):
                yield Fault(path, number, f"names {what}: {line.strip()[:80]}")


def living_links(path: str, text: str) -> Iterator[Fault]:
    """What a Markdown page links to within the repository is there, and no place is held for what was to be put in."""
    if not path.endswith(".md"):
        return
    for number, line in enumerate(_without_code(text), 1):
        for target in ("".join(found) for found in LINK.findall(line)):
            if not _leads_somewhere(path, target):
                yield Fault(path, number, f"leads nowhere: {target}")
    for number, line in enumerate(text.splitlines(), 1):
        for held in PLACEHOLDER.findall(line):
            yield Fault(path, number, f"a place is still held: {held}")


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


def _without_code(text: str) -> Iterator[str]:
    """The lines, blank where they are code: what looks like a link there is none."""
    fence = ""
    for line in text.splitlines():
        mark = FENCE.match(line)
        if mark and (not fence or mark[1].startswith(fence)):
            fence = "" if fence else mark[1]
            yield ""
        else:
            yield "" if fence else CODE_SPAN.sub("", line)


def _leads_somewhere(path: str, target: str) -> bool:
    address = unquote(target.split("#")[0])
    if SCHEME.match(target) or not address:
        return True
    folder = "" if address.startswith("/") else posixpath.dirname(path)
    place = posixpath.normpath(posixpath.join(folder, address.lstrip("/")))
    return place == "." or any(known == place or known.startswith(f"{place}/") for known in tracked_paths())

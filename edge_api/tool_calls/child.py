"""The process that judges tool calls: one case in, one letter out, until its input ends.

A case is four bytes of length and that many of JSON. A schema can hold a pattern that takes for ever, and Python's own
matcher cannot be interrupted and lets no other thread run, so this is no thread of the edge's. Past its CPU time the
kernel ends this process, and whoever waits for the letter learns that there is none.
"""

import os
import resource
import signal
import sys
from typing import BinaryIO

import msgspec

from edge_api.tool_calls.verdict import Case, Verdict, judge

CPU_S = 0.5
MEMORY_BYTES = 1 << 30
NICE = 10
LENGTH_BYTES = 4
LETTERS = {Verdict.FINE: b"f", Verdict.WRONG: b"w", Verdict.UNJUDGED: b"u"}

_decode = msgspec.json.Decoder(Case).decode


def main() -> None:
    """Judges until the edge closes the pipe, whatever signals a terminal sends to all that it runs."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.nice(NICE)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    serve(sys.stdin.buffer, sys.stdout.buffer)


def serve(cases: BinaryIO, letters: BinaryIO) -> None:
    """Judges what comes."""
    while len(head := cases.read(LENGTH_BYTES)) == LENGTH_BYTES:
        content = cases.read(int.from_bytes(head))
        signal.setitimer(signal.ITIMER_PROF, CPU_S)
        verdict = _verdict(content)
        signal.setitimer(signal.ITIMER_PROF, 0)
        letters.write(LETTERS[verdict])
        letters.flush()


def _verdict(content: bytes) -> Verdict:
    try:
        return judge(_decode(content))
    except msgspec.DecodeError:
        return Verdict.UNJUDGED


if __name__ == "__main__":
    main()

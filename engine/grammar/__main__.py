"""`python -m engine.grammar --host HOST --port PORT`: serves until SIGTERM."""

import argparse
import signal
import sys
import threading

from control_plane.contracts.clock import SystemClock
from engine.grammar import binding
from engine.grammar.service import GrammarService


def main(arguments: list[str]) -> int:
    """Serves; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m engine.grammar")
    parser.add_argument("--host", required=True)
    parser.add_argument("--port", required=True, type=int)
    given = parser.parse_args(arguments)
    if not binding.is_installed():
        sys.stderr.write("xgrammar is not installed\n")
        return 1
    binding.of_json_schema({})  # the library is loaded before the first question
    with GrammarService((given.host, given.port), SystemClock()) as service:
        signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=service.shutdown).start())
        service.serve_forever(poll_interval=0.2)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

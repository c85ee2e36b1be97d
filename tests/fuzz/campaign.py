"""`python -m tests.fuzz.campaign NAME SECONDS`: a coverage-guided fuzzer looks for bytes that break a promise.

It begins with the seeds and keeps nothing. What it finds is written to standard error, bytes and all, and makes the
exit code other than zero.
"""

import sys
import tempfile
from pathlib import Path

import atheris  # type: ignore[import-untyped]

LONGEST_RUN_S = 10
MEMORY_MIB = 2_048


def main(name: str, seconds: int) -> None:
    """Fuzzes one harness; never returns."""
    with atheris.instrument_imports(include=["edge_api"]):
        from tests.fuzz import harnesses, seeds
    place = Path(tempfile.mkdtemp(prefix="meridian-fuzz-"))
    corpus, words = place / "corpus", place / "words"
    corpus.mkdir()
    for number, seed in enumerate(seeds.SEEDS[name]):
        (corpus / f"seed-{number}").write_bytes(seed)
    words.write_text("".join('"' + "".join(map("\\x{:02x}".format, word)) + '"\n' for word in seeds.WORDS))
    atheris.Setup(
        [sys.argv[0], f"-max_total_time={seconds}", f"-timeout={LONGEST_RUN_S}", f"-rss_limit_mb={MEMORY_MIB}",
         f"-max_len={harnesses.MAX_BYTES}", f"-artifact_prefix={place}/", f"-dict={words}", "-print_final_stats=1",
         str(corpus)], harnesses.HARNESSES[name])
    atheris.Fuzz()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))

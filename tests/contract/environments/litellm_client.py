"""Runs inside litellm's environment: for each line of standard input, asks what it says, and writes a line that tells
what litellm made of the answer."""

import json
import sys
from typing import Any, TextIO


def main(told: TextIO) -> None:
    """`call` names a function of litellm's, the rest are its arguments."""
    import litellm  # type: ignore[import-not-found]  # it is there where this runs

    litellm.suppress_debug_info = True
    for line in sys.stdin:
        told.write(json.dumps(answer_to(litellm, **json.loads(line))) + "\n")
        told.flush()


def answer_to(litellm: Any, call: str, **asked: Any) -> dict[str, Any]:
    """The whole answer, or the error that litellm raised."""
    try:
        answer = getattr(litellm, call)(**asked)
        chunks = list(answer) if asked.get("stream") else []
    except Exception as error:  # of as many kinds as litellm knows providers; which one it is, is what is asked
        return {"error": type(error).__name__, "status": getattr(error, "status_code", None), "message": str(error)}
    if not chunks:
        whole = answer
    elif call == "responses":
        whole = chunks[-1].response
    else:
        whole = litellm.stream_chunk_builder(chunks)
    return {"answer": whole.model_dump(mode="json", warnings=False), "events": len(chunks)}


if __name__ == "__main__":
    stdout, sys.stdout = sys.stdout, sys.stderr  # litellm prints what it thinks of unknown models
    main(stdout)

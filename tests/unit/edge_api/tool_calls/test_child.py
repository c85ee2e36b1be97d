"""The process that judges, as the edge talks to it: bytes through pipes."""

import io
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

import pytest
from msgspec import json

from edge_api.tool_calls.child import CPU_S, MEMORY_BYTES, serve
from edge_api.tool_calls.judge import COMMAND

FOR_EVER = {"type": "string", "pattern": "^(a+)+$"}


def framed(*cases: bytes) -> bytes:
    return b"".join(len(case).to_bytes(4) + case for case in cases)


def case(schema: Any, arguments: Any) -> bytes:
    return json.encode([[{"type": "function", "function": {"name": "f", "parameters": schema}}],
                        [["f", json.encode(arguments).decode()]]])


def letters(*cases: bytes) -> bytes:
    out = io.BytesIO()
    serve(io.BytesIO(framed(*cases)), out)
    return out.getvalue()


def run(data: bytes, command: Sequence[str] = COMMAND) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(command, input=data, capture_output=True, timeout=30, env={}, check=False)


def test_each_case_gets_one_letter_in_order() -> None:
    schema = {"type": "integer"}
    assert letters(case(schema, 1), case(schema, "x"), b"no case", b"[[],[]]") == b"fwuf"


@pytest.mark.parametrize("rest", [b"", b"\0\0", b"\0\0\0"])
def test_it_ends_with_its_input(rest: bytes) -> None:
    out = io.BytesIO()
    serve(io.BytesIO(framed(b"[[],[]]") + rest), out)
    assert out.getvalue() == b"f"


def test_it_runs_without_anything_of_the_edges_environment() -> None:
    done = run(framed(case({"type": "integer"}, 1)))
    assert (done.returncode, done.stdout, done.stderr) == (0, b"f", b"")


def test_a_pattern_that_takes_for_ever_ends_it_soon_and_whatever_was_told_before_stands() -> None:
    start_s = time.monotonic()
    done = run(framed(case({"type": "integer"}, 1), case(FOR_EVER, "a" * 64 + "!"), case({"type": "integer"}, 1)))
    assert done.stdout == b"f"
    assert done.returncode < 0
    assert time.monotonic() - start_s < 20 * CPU_S


def test_combinations_that_explode_end_it_too() -> None:
    """Each definition refers to the next one twice: 2^60 checks."""
    twice = {f"d{n}": {"anyOf": [{"$ref": f"#/definitions/d{n + 1}"}] * 2} for n in range(60)}
    schema = {"definitions": {**twice, "d60": False}, "$ref": "#/definitions/d0"}
    assert run(framed(case(schema, 1))).returncode < 0


def test_its_memory_is_bounded() -> None:
    """A pattern in a pattern in a pattern would be gigabytes."""
    limit = "import resource; from edge_api.tool_calls import child; child.serve = lambda *_: print(" \
            "resource.getrlimit(resource.RLIMIT_AS)[0], resource.getrlimit(resource.RLIMIT_CORE)[0]); child.main()"
    done = run(b"", [sys.executable, "-c", limit])
    assert done.stdout.split() == [str(MEMORY_BYTES).encode(), b"0"]

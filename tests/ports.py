"""Which test has which ports. Servers bind long after a test chose their ports, and tests run side by side: a look at
what is free would give two tests the same ones. So a choice is a claim, held until the claiming process ends."""

import atexit
import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from infra.local.ports import BLOCK, is_free

# Below the ports that Linux hands out by itself.
BLOCKS = range(10_000, 32_700, BLOCK)
CLAIMS = Path(tempfile.gettempdir()) / f"meridian-test-ports.{os.getuid()}"


@contextmanager
def claimed_ports(blocks: int = 1) -> Iterator[int]:
    """The first of `blocks` x 100 neighbouring loopback ports that are free now and no other test's in the block."""
    with ExitStack() as claims:
        yield _claim_side_by_side(blocks, claims)


def claim_ports(blocks: int = 1) -> int:
    """The same, until this process ends."""
    claims = ExitStack()
    atexit.register(claims.close)
    return _claim_side_by_side(blocks, claims)


def _claim_side_by_side(blocks: int, claims: ExitStack) -> int:
    """Goes through the blocks in order; a block that cannot be had begins the row anew."""
    CLAIMS.mkdir(exist_ok=True)
    row = 0
    for base in BLOCKS:
        if not _claim(base, claims):
            claims.close()
            row = 0
            continue
        row += 1
        if row == blocks:
            return base - (blocks - 1) * BLOCK
    raise AssertionError(f"no {blocks} free blocks of {BLOCK} ports side by side")


def _claim(base: int, claims: ExitStack) -> bool:
    """Whether the block is ours now: its file is locked, and nobody listens in it."""
    claim = (CLAIMS / str(base)).open("w")
    try:
        fcntl.flock(claim, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        claim.close()
        return False
    claims.callback(claim.close)
    return all(is_free(port) for port in range(base, base + BLOCK))

"""Two tests that run side by side never have the same ports."""

import subprocess
import sys

from tests.ports import claimed_ports

CLAIM = "from tests.ports import claim_ports; print(claim_ports(2), flush=True); input()"


def test_what_one_process_claimed_another_is_not_given_though_nobody_listens() -> None:
    """CI once failed of it: two clusters were given one block, and each was asked in the other's place."""
    with subprocess.Popen([sys.executable, "-c", CLAIM], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdin is not None
        assert other.stdout is not None
        theirs = int(other.stdout.readline())
        with claimed_ports(2) as ours:
            assert not {theirs, theirs + 100} & {ours, ours + 100}
        other.stdin.close()


def test_a_claim_ends_with_its_block() -> None:
    with claimed_ports(2) as first:
        pass
    with claimed_ports(2) as again:
        assert again == first

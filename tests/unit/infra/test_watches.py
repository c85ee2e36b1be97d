"""Whether this account may watch enough files for Dynamo."""

import os
import resource
from collections.abc import Iterator

import pytest

from infra.local.errors import StackRefused
from infra.local.watches import free_instances, require_instances


@pytest.fixture
def none_left() -> Iterator[None]:
    """The system refuses every further instance.

    By the limit on open files, which the kernel answers in the same way: taking all of the account's instances would
    starve whatever runs beside this test.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest_free = os.dup(0)
    os.close(lowest_free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_what_is_free_is_counted_up_to_what_is_wanted() -> None:
    assert free_instances(0) == 0
    assert free_instances(2) == 2


def test_counting_takes_nothing() -> None:
    descriptors = len(os.listdir("/proc/self/fd"))
    free_instances(5)
    assert len(os.listdir("/proc/self/fd")) == descriptors


def test_one_datacenter_is_possible_when_nothing_else_runs() -> None:
    require_instances(1)


def test_without_a_free_instance_the_refusal_says_what_to_do(none_left: None) -> None:
    with pytest.raises(StackRefused, match=r"28 inotify instances, and this account has 0 left.*max_user_instances"):
        require_instances(2)

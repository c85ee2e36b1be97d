"""Whether the system lets this account watch enough files.

Dynamo's file discovery takes 13 inotify instances for each frontend, and Linux gives an account 128 by default, over
all its processes. With none left a datacenter never gets ready, and only its frontend's log says why.
"""

import ctypes
import os
import sys
from contextlib import ExitStack

from infra.local.errors import StackRefused

INSTANCES_PER_DATACENTER = 13
SPARE_INSTANCES = 2


def require_instances(datacenter_count: int) -> None:
    """Raises StackRefused when fewer instances are free than these datacenters will take."""
    wanted = INSTANCES_PER_DATACENTER * datacenter_count + SPARE_INSTANCES
    free = free_instances(wanted)
    if free < wanted:
        raise StackRefused(
            f"{datacenter_count} datacenters watch files with {wanted} inotify instances, and this account has {free} "
            "left; stop another stack, start fewer --datacenters, or raise the limit as root: sysctl -w "
            "fs.inotify.max_user_instances=512")


def free_instances(most: int) -> int:
    """How many instances this account could open now, counted by opening them; never more than `most`.

    Systems without inotify have nothing to run out of.
    """
    if sys.platform != "linux":
        return most
    libc = ctypes.CDLL(None, use_errno=True)
    with ExitStack() as opened:
        for count in range(most):
            descriptor = libc.inotify_init1(os.O_CLOEXEC)
            if descriptor < 0:
                return count
            opened.callback(os.close, descriptor)
    return most

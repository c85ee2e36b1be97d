"""Becomes another program after giving up rights: `python -I -S shim.py OPTIONS -- PROGRAM ARGUMENTS`.

A program of its own rather than a `preexec_fn`, which is unsafe in a process with threads. Standard library only, and
no import of ours: it runs without the site directory so that it costs a few milliseconds.

  --account UID:GID    continue as this account (needs root)
  --user-namespace     continue in a user namespace in which root is an ordinary account (Postgres refuses to be root)
  --die-with-parent    be sent SIGINT when the process that started us ends, however it ends (Linux only)
"""

import ctypes
import os
import signal
import sys

CLONE_NEWUSER = 0x1000_0000
PR_SET_PDEATHSIG = 1


def main(arguments: list[str]) -> None:
    """Applies the options in order, then becomes the program."""
    end = arguments.index("--")
    options, argv = arguments[:end], arguments[end + 1 :]
    parent = os.getppid()
    if "--account" in options:
        uid, gid = options[options.index("--account") + 1].split(":")
        become(int(uid), int(gid))
    if "--user-namespace" in options:
        enter_user_namespace()
    if "--die-with-parent" in options:
        die_with(parent)
    os.execv(argv[0], argv)  # noqa: S606  no shell is the point


def become(uid: int, gid: int) -> None:
    """Gives up root for good."""
    os.setgroups([])
    os.setgid(gid)
    os.setuid(uid)


def enter_user_namespace() -> None:
    """Keeps the rights on our own files under another number: no second account is needed, nothing changes owner."""
    uid, gid = os.geteuid(), os.getegid()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWUSER) != 0:
        raise OSError(ctypes.get_errno(), "unshare: a user namespace is not allowed here")
    for name, text in (("setgroups", "deny"), ("uid_map", f"1000 {uid} 1"), ("gid_map", f"1000 {gid} 1")):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)


def die_with(parent: int) -> None:
    """Asks the kernel for SIGINT at the parent's end; ends at once when that has already happened."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGINT, 0, 0, 0)
        if os.getppid() != parent:
            sys.exit(1)


if __name__ == "__main__":
    main(sys.argv[1:])

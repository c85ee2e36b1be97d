"""As whom Postgres runs. It refuses root, so root lends it an unprivileged account that exists already.

That account must reach the programs and the data. Where a directory on the way is closed to it (a checkout below
/root), both are placed in `/var/lib/meridian` instead; where there is no such account or place, the last resort is a
user namespace in which root is nobody special. Nobody else's directories are ever opened up, no account is created.
"""

import contextlib
import hashlib
import os
import pwd
import shutil
import stat
from dataclasses import dataclass
from pathlib import Path

ACCOUNTS = ("postgres", "nobody")
OUTSIDE = Path("/var/lib/meridian")


@dataclass(frozen=True)
class Account:
    """A system account; `groups` are not used: it keeps its primary group alone."""

    name: str
    uid: int
    gid: int


@dataclass(frozen=True)
class Placement:
    """Where programs and data are, and as whom they are used; `rights` are the shim's options."""

    bin_dir: Path
    data_dir: Path
    account: Account | None
    rights: tuple[str, ...]


def place(bin_dir: Path, data_dir: Path) -> Placement:
    """Decides the placement and makes `data_dir`'s parent; copies programs and links data when it has to."""
    data_dir.parent.mkdir(parents=True, exist_ok=True)
    if os.geteuid() != 0:
        return Placement(bin_dir, data_dir, None, ())
    account = unprivileged_account()
    if account is not None:
        rights = ("--account", f"{account.uid}:{account.gid}")
        if can_reach(bin_dir / "postgres", account) and can_reach(data_dir.parent, account):
            return Placement(bin_dir, data_dir, account, rights)
        with contextlib.suppress(OSError):
            return Placement(_outside_programs(bin_dir), _outside_data(data_dir), account, rights)
    return Placement(bin_dir, data_dir, None, ("--user-namespace",))


def unprivileged_account() -> Account | None:
    """The first account of `ACCOUNTS` that exists and is not root."""
    for name in ACCOUNTS:
        with contextlib.suppress(KeyError):
            entry = pwd.getpwnam(name)
            if entry.pw_uid != 0:
                return Account(name, entry.pw_uid, entry.pw_gid)
    return None


def can_reach(path: Path, account: Account) -> bool:
    """Whether the account may enter every directory down to `path` and enter or run `path` itself."""
    resolved = path.resolve()
    return all(_may_execute(step, account) for step in [*reversed(resolved.parents), resolved])


def own(directory: Path, account: Account | None) -> None:
    """Hands an empty directory to the account, closed to everybody else."""
    if account is not None:
        os.chown(directory, account.uid, account.gid)
    directory.chmod(0o700)


def _may_execute(path: Path, account: Account) -> bool:
    status = path.stat()
    if status.st_uid == account.uid:
        return bool(status.st_mode & stat.S_IXUSR)
    if status.st_gid == account.gid:
        return bool(status.st_mode & stat.S_IXGRP)
    return bool(status.st_mode & stat.S_IXOTH)


def _outside_programs(bin_dir: Path) -> Path:
    """A copy of the installation that everybody may read, named for where it came from and when it was made.

    A wheel keeps the libraries that its programs need in `PACKAGE.libs` beside the package and finds them by the way
    from one to the other, so both are copied.
    """
    made_ns = (bin_dir / "postgres").stat().st_mtime_ns
    installation = bin_dir.resolve().parent
    package = installation.parent
    libraries = package.with_name(f"{package.name}.libs")
    target = OUTSIDE / f"postgres-{_digest(f'{installation} {made_ns}')}"
    if not target.is_dir():
        partial = target.with_name(f"{target.name}.{os.getpid()}")
        place_in_copy = partial / package.name / installation.name
        shutil.copytree(installation, place_in_copy, ignore=shutil.ignore_patterns("include"), symlinks=True)
        if libraries.is_dir():
            shutil.copytree(libraries, partial / libraries.name, symlinks=True)
        for directory in (OUTSIDE, partial, place_in_copy.parent):
            directory.chmod(0o755)
        with contextlib.suppress(OSError):
            partial.rename(target)
        shutil.rmtree(partial, ignore_errors=True)
    return target / package.name / installation.name / "bin"


def _outside_data(data_dir: Path) -> Path:
    """The data's place outside, found through a link at `data_dir`. No link means new state: older data goes."""
    target = OUTSIDE / f"data-{_digest(str(data_dir.absolute()))}" / data_dir.name
    if not data_dir.is_symlink():
        shutil.rmtree(target.parent, ignore_errors=True)
        data_dir.symlink_to(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    for directory in (OUTSIDE, target.parent):
        directory.chmod(0o755)
    return target


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]

"""The state directory: what is where in it, its secrets, and whose it is. Everything in it survives a restart."""

import contextlib
import fcntl
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from pydantic import BaseModel, ValidationError

from control_plane.contracts.ids import new_secret
from control_plane.contracts.signing import SigningKey, write_private
from control_plane.contracts.version import RELEASE
from infra.local.errors import StackRefused

FORMAT = 1
FREE_BYTES_MIN = 1 << 30
# Postgres keeps paths in 1,024 bytes; this leaves room for what it appends.
PATH_BYTES_MAX = 900
# Others may pass through, not look: the account that Postgres runs as has to reach its data.
PASSABLE = 0o711
PRIVATE_UMASK = 0o077


class StateMark(BaseModel):
    """`state.json`: what made this directory. Another `format` cannot be read by this release."""

    format: int
    release: str
    uid: int


class Secrets(BaseModel):
    """`secrets.json`, mode 0600. `api_key` is here because the control plane keeps only its digest."""

    postgres_superuser: str
    postgres_role: str
    valkey: str
    operator_token: str = ""
    api_key: str = ""
    api_key_id: str = ""


@dataclass(frozen=True)
class Layout:
    """Paths below the state directory, which is absolute."""

    state: Path

    @property
    def postgres_data(self) -> Path:
        return self.state / "postgres" / "data"

    @property
    def valkey_data(self) -> Path:
        return self.state / "valkey"

    @property
    def signing_key(self) -> Path:
        """What every replica of the control plane signs snapshots with."""
        return self.state / "control-plane" / "snapshot.key"

    @property
    def override_key(self) -> Path:
        """What the operator of this stack signs orders to edges with; where the command line looks for it."""
        return self.state / "operator" / "override.key"

    @property
    def worker(self) -> Path:
        return self.state / "worker"

    @property
    def local_file(self) -> Path:
        """What the command line and programs read about the running stack."""
        return self.state / "local.json"

    @property
    def prometheus_file(self) -> Path:
        """What a Prometheus on this machine would scrape."""
        return self.state / "prometheus.yml"

    @property
    def process_file(self) -> Path:
        """Which processes run now, for the next start to find after a crash of this one."""
        return self.state / "processes.json"

    def edge(self, index: int) -> Path:
        return self.state / "edges" / f"edge-{index}"

    def agent(self, datacenter: str) -> Path:
        return self.state / "datacenters" / datacenter / "agent"

    def engine(self, datacenter: str) -> Path:
        return self.state / "datacenters" / datacenter / "engine"

    def log(self, name: str) -> Path:
        return self.state / "logs" / f"{name}.log"

    def read_secrets(self) -> Secrets:
        """Raises StackRefused when the file is damaged."""
        try:
            return Secrets.model_validate_json((self.state / "secrets.json").read_bytes())
        except (OSError, ValidationError) as error:
            raise StackRefused(f"{self.state / 'secrets.json'} is missing or damaged; restore it, or move "
                               f"{self.state} away to begin anew") from error

    def write_secrets(self, content: Secrets) -> None:
        write_private(self.state / "secrets.json", content.model_dump_json(indent=2).encode())


def open_layout(state: Path) -> tuple[Layout, TextIO]:
    """Makes or checks the directory and locks it; the lock lasts as long as the returned file is open.

    Raises StackRefused: in use, of another release or account, not ours, not writable, too long, disk full.
    """
    state = state.absolute()
    if len(os.fsencode(state)) > PATH_BYTES_MAX:
        raise StackRefused(f"the path of the state directory is longer than {PATH_BYTES_MAX} bytes; choose a shorter "
                           "one with --state DIR")
    try:
        state.mkdir(parents=True, exist_ok=True)
        _require_ours(state)
        with contextlib.ExitStack() as unless_kept:
            lock = unless_kept.enter_context(_lock(state))
            _require_space(state)
            layout = _prepare(Layout(state))
            unless_kept.pop_all()
        return layout, lock
    except OSError as error:
        raise StackRefused(f"the state directory {state} cannot be used: {error.strerror}; choose another one with "
                           "--state DIR") from error


def _require_ours(state: Path) -> None:
    mark_file = state / "state.json"
    if not mark_file.exists():
        if any(entry.name != "lock" for entry in state.iterdir()):
            raise StackRefused(f"{state} holds something else than Meridian's state; choose an empty directory with "
                               "--state DIR")
        return
    try:
        mark = StateMark.model_validate_json(mark_file.read_bytes())
    except ValidationError as error:
        raise StackRefused(f"{mark_file} is damaged; restore it, or move {state} away to begin anew") from error
    if mark.format != FORMAT:
        raise StackRefused(f"{state} was made by Meridian {mark.release}, whose state this release ({RELEASE}) cannot "
                           "read; run that release, or move the directory away to begin anew")
    if mark.uid != os.geteuid():
        raise StackRefused(f"{state} belongs to the account with uid {mark.uid}; run as that account, or choose "
                           "another one with --state DIR")


def _require_space(state: Path) -> None:
    free = shutil.disk_usage(state).free
    if free < FREE_BYTES_MIN:
        raise StackRefused(f"only {free >> 20} MiB are free on the disk of {state}, {FREE_BYTES_MIN >> 20} MiB are "
                           "needed; free some, or choose another disk with --state DIR")


def _lock(state: Path) -> TextIO:
    lock = (state / "lock").open("a+")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.seek(0)
        holder = lock.read().strip()
        lock.close()
        raise StackRefused(f"a stack already runs in {state} (process {holder}); stop it with Ctrl-C in its terminal, "
                           "or choose another directory with --state DIR and other ports with --port-base N") from None
    lock.truncate(0)
    lock.write(f"{os.getpid()}\n")
    lock.flush()
    return lock


def _prepare(layout: Layout) -> Layout:
    """Secrets before the mark: a directory with a mark is complete."""
    if not (layout.state / "state.json").exists():
        layout.write_secrets(Secrets(
            postgres_superuser=new_secret("local"), postgres_role=new_secret("local"), valkey=new_secret("local")))
        SigningKey.load_or_create(layout.signing_key)
        mark = StateMark(format=FORMAT, release=RELEASE, uid=os.geteuid())
        write_private(layout.state / "state.json", mark.model_dump_json().encode())
    layout.read_secrets()
    for directory in (layout.state, layout.postgres_data.parent):
        directory.mkdir(exist_ok=True)
        directory.chmod(PASSABLE)
    return layout

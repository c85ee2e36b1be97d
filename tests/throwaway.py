"""Throw-away servers for tests and benches: free ports, a directory of their own, ended with the process that asked.

Nothing here is durable, and several test sessions may run side by side on one machine.
"""

import asyncio
import contextlib
import shutil
import tempfile
import threading
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from control_plane.contracts.ids import new_secret, uuid7
from infra.local import child, postgres, valkey
from infra.local.child import ProcessSpec
from infra.local.errors import StackRefused
from infra.local.ports import free_port

ATTEMPTS = 5
RIGHTS = ("--die-with-parent",)
Result = TypeVar("Result")
Server = TypeVar("Server", postgres.Postgres, valkey.Valkey)


@contextlib.contextmanager
def postgres_server() -> Iterator[postgres.Postgres]:
    """A Postgres server with the role `meridian` and no database of ours."""

    async def ready(server: postgres.Postgres) -> None:
        await postgres.wait_ready(server)
        await postgres.ensure_role(server)

    with directory() as place:
        server = postgres.Postgres(
            data_dir=place / "data", port=0, log_path=place / "log", durable=False,
            superuser_password=new_secret("local"), role_password=new_secret("local"),
        )  # fmt: skip
        with _running(server, lambda placed: postgres.prepare(placed, RIGHTS), ready) as started:
            yield started


@contextlib.contextmanager
def valkey_server() -> Iterator[valkey.Valkey]:
    """An empty Valkey server."""
    with directory() as place:
        server = valkey.Valkey(place / "data", 0, place / "log", new_secret("local"))
        with _running(server, lambda placed: valkey.prepare(placed, RIGHTS), valkey.wait_ready) as started:
            yield started


@contextlib.contextmanager
def database(server: postgres.Postgres, template: str = "template1") -> Iterator[str]:
    """The URL of a fresh database that is a copy of `template`."""
    name = f"t_{uuid7().hex}"
    run(postgres.ensure_database(server, name, template))
    try:
        yield server.url(name)
    finally:
        run(postgres.drop_database(server, name))


@contextlib.contextmanager
def directory() -> Iterator[Path]:
    """An empty directory that every account may pass through."""
    path = Path(tempfile.mkdtemp(prefix="meridian-"))
    path.chmod(0o755)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def run(coroutine: Coroutine[Any, Any, Result]) -> Result:
    """Runs a coroutine to its end in a thread of its own: the caller's thread may belong to another event loop."""
    outcome: list[Result] = []
    failure: list[BaseException] = []

    def body() -> None:
        try:
            outcome.append(asyncio.run(coroutine))
        except BaseException as error:  # handed to the calling thread, whatever it is
            failure.append(error)

    thread = threading.Thread(target=body)
    thread.start()
    thread.join()
    if failure:
        raise failure[0]
    return outcome[0]


@contextlib.contextmanager
def _running(
    server: Server,
    prepare: Callable[[Server], ProcessSpec],
    ready: Callable[[Server], Coroutine[Any, Any, None]],
) -> Iterator[Server]:
    """Starts it on a free port, on another one when somebody was quicker, and stops it in the end."""
    for attempt in range(1, ATTEMPTS + 1):
        placed = replace(server, port=free_port())
        spec = prepare(placed)
        process = child.start(spec)
        try:
            run(ready(placed))
            yield placed
            return
        except StackRefused:
            if attempt == ATTEMPTS or process.poll() is None:
                raise
        finally:
            child.stop(process, spec)

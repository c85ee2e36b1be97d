"""Our own launcher of a Valkey server: loopback only, password on, append-only file written out every second.

`everysec` may lose up to two seconds when the machine loses power, nothing when the process is killed. That is enough:
Valkey may be wiped at any moment without lost money (rates, queues and locks of background work live here).

Edges have an account of their own, for they meet strangers: it reaches the keys of limits and nothing else, so whoever
takes an edge over can neither read nor fill the queues of background work.
"""

import asyncio
import contextlib
import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

from infra.local import binaries, child
from infra.local.child import ProcessSpec
from infra.local.errors import StackRefused

HOST = "127.0.0.1"
POLL_S = 0.02
PROBE_DEADLINE_S = 2.0
EDGE_USER = "edge"
EDGE_KEYS = "~adm:*"
EDGE_COMMANDS = ("evalsha", "script|load", "set", "ping", "client|setinfo",  # what an edge sends, and in its scripts:
                 "time", "hgetall", "hset", "hdel", "hincrby", "pexpire", "pttl")


@dataclass(frozen=True)
class Valkey:
    """A server's place and secret."""

    data_dir: Path
    port: int
    log_path: Path
    password: str

    @property
    def url(self) -> str:
        """What clients connect with."""
        return f"redis://:{self.password}@{HOST}:{self.port}/0"

    @property
    def edge_password(self) -> str:
        """Made of the other one, which it does not give away."""
        return hashlib.sha256(f"{EDGE_USER}\n{self.password}".encode()).hexdigest()

    @property
    def edge_url(self) -> str:
        """What edges connect with."""
        return f"redis://{EDGE_USER}:{self.edge_password}@{HOST}:{self.port}/0"


def prepare(server: Valkey, extra_rights: tuple[str, ...] = ()) -> ProcessSpec:
    """Writes the configuration (a file, because arguments are readable by everybody) and says how it is run."""
    server.data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    settings = {
        "port": str(server.port),
        "bind": HOST,
        "protected-mode": "yes",
        "requirepass": server.password,
        "user": " ".join([EDGE_USER, "on", f">{server.edge_password}", EDGE_KEYS, "-@all",
                          *(f"+{command}" for command in EDGE_COMMANDS)]),
        "dir": f'"{server.data_dir.absolute()}"',
        "appendonly": "yes",
        "appendfsync": "everysec",
        "save": '""',
        "maxmemory-policy": "noeviction",
        "daemonize": "no",
    }
    config = server.data_dir / "valkey.conf"
    with open(os.open(config, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600), "w") as file:
        file.writelines(f"{name} {value}\n" for name, value in settings.items())
    return ProcessSpec(
        name="valkey",
        argv=(str(binaries.valkey_server()), str(config.absolute())),
        env={"PATH": "/usr/local/bin:/usr/bin:/bin", "LC_ALL": "C"},
        log_path=server.log_path,
        rights=extra_rights,
    )


async def wait_ready(server: Valkey, deadline_s: float = 30.0) -> None:
    """Returns once it answers PING with our password. Raises StackRefused at the deadline."""
    now_s = asyncio.get_running_loop().time
    until_s = now_s() + deadline_s
    while True:
        answer = b""
        try:
            async with asyncio.timeout(PROBE_DEADLINE_S):
                answer = await _ping(server)
        except (OSError, TimeoutError, asyncio.IncompleteReadError):
            pass
        if answer == b"+PONG":
            return
        if answer.startswith(b"-WRONGPASS"):
            raise StackRefused(f"port {server.port} is held by another Valkey; stop it or choose another --port-base")
        if now_s() > until_s:
            tail = child.log_tail(server.log_path)
            raise StackRefused(f"Valkey did not become ready in {deadline_s:.0f} s: {tail}")
        await asyncio.sleep(POLL_S)


async def _ping(server: Valkey) -> bytes:
    """The last line of the answer to AUTH and PING."""
    reader, writer = await asyncio.open_connection(HOST, server.port)
    try:
        writer.write(f"AUTH {server.password}\r\nPING\r\n".encode())
        first = (await reader.readuntil(b"\r\n")).strip()
        return first if first.startswith(b"-WRONGPASS") else (await reader.readuntil(b"\r\n")).strip()
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()

"""The bench that lies beside the checkout, in `../shared/bench`: its cost meter as a library, its mock upstream and its
bare relays as processes. It measures any gateway alike, so figures of different gateways can be compared.
"""

import argparse
import contextlib
import importlib.util
import io
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from tests.bench.prepared_edge import await_port, free_port

PLACE = Path(__file__).resolve().parents[2].parent / "shared" / "bench"
MODEL = "mock-model"
PACE_MS = 20  # at 0 events coalesce, and every relay looks cheaper than it is
TOKEN_IDS = " [[mock: tokids=1]]"


class SharedBench:
    """Its module, and where its scripts are."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self._module: Any = _module(place / "bench.py")
        self._messages: list[dict[str, str]] = self._module.MSG

    async def run(self, url: str, pid: int, key: str, upstream_port: int, out: Path, ids: bool,
                  **sizes: int) -> dict[str, Any]:
        """One run of its meter on one gateway. `ids` has the mock send token ids, as an engine does that is asked."""
        last = self._messages[-1]
        self._module.MSG = [*self._messages[:-1], last | {"content": last["content"] + TOKEN_IDS * ids}]
        asked = {"n": 1_000, "conc": 8, "rounds": 3, "lat_n": 150, "warm": 200, "streams": 50, "chunks": 200,
                 "stream_rounds": 1} | sizes
        with contextlib.redirect_stdout(io.StringIO()):
            await self._module.run(argparse.Namespace(
                name="", url=url, direct=f"http://127.0.0.1:{upstream_port}/v1", pid=[pid], key=key, header=[],
                model=MODEL, note="", out=str(out), **asked))
        return _last_line(out)


def shared_bench(place: Path = PLACE) -> SharedBench:
    """The bench beside the checkout.

    Raises:
        SystemExit: it is not there; the message says where it was looked for.
    """
    if not (place / "bench.py").is_file():
        raise SystemExit(f"this bench needs bench.py, mock_upstream.py and ref_proxies.py in {place}, "
                         "beside the checkout")
    return SharedBench(place)


@contextmanager
def mock_upstream(place: Path) -> Iterator[int]:
    """Its mock upstream, in a process of its own: the port."""
    port = free_port()
    script = str(place / "mock_upstream.py")
    with process([sys.executable, script, "--port", str(port), "--itl-ms", str(PACE_MS)], port):
        yield port


@contextmanager
def process(command: list[str], port: int, environment: dict[str, str] | None = None) -> Iterator[int]:
    """A server until the block ends: its process id, once it listens."""
    started = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)
    try:
        await_port(port, started)
        yield started.pid
    finally:
        started.terminate()
        try:
            started.wait(15)
        except subprocess.TimeoutExpired:
            started.kill()
            started.wait()


def _last_line(path: Path) -> dict[str, Any]:
    figures: dict[str, Any] = json.loads(path.read_text().splitlines()[-1])
    return figures


def _module(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("shared_bench_meter", path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} cannot be imported")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module

"""A real edge process with nothing above it: identity, signed snapshot and key cache lie ready on its disk."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

from control_plane.contracts import ids
from control_plane.contracts.deployment import EngineFacts
from control_plane.contracts.enrolment import ControlPlaneKey, EnrolAnswer
from control_plane.contracts.keys import Principal, Scope
from control_plane.contracts.pricing import Price
from control_plane.contracts.signing import SigningKey, write_private
from control_plane.contracts.snapshot import (
    SignedSnapshot,
    Snapshot,
    SnapshotDatacenter,
    SnapshotModel,
    SnapshotRoute,
    TrafficState,
)
from edge_api.key_store import KeyStore, StoredKeys
from edge_api.snapshot.store import SnapshotStore

MODEL = "mock-model"
PRICE = Price(version="pv_bench", input_usd=Decimal("0.0000006"), cached_input_usd=Decimal("0.00000011"),
              output_usd=Decimal("0.0000022"))


@dataclass(frozen=True, slots=True)
class PreparedEdge:
    """A running edge. `url` is without `/v1`."""

    pid: int
    port: int
    key: str
    state_dir: Path

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


def free_port() -> int:
    """A port that nothing listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def prepare(state_dir: Path, upstream_urls: list[str], model: str = MODEL,
            engine: EngineFacts | None = None, regions: Sequence[str] = ()) -> str:
    """Writes what an edge remembers of its control plane, a datacenter for each upstream; returns an API key. Without
    `regions`, one for each datacenter, all are in one."""
    state_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    signing, names = SigningKey.generate(), [f"dc-{n}" for n in range(len(upstream_urls))]
    enrolled = EnrolAnswer(identity="edge_bench", subject="local", control_plane_keys=[
        ControlPlaneKey(key_id=signing.public.key_id, public_key=signing.public.text)])
    write_private(state_dir / "identity.json", enrolled.model_dump_json().encode())
    snapshot = Snapshot(
        lineage=1, version=1, built_at_s=time.time(),
        datacenters=[SnapshotDatacenter(id=name, region=region, state=TrafficState.ACTIVE, weight=100)
                     for name, region in zip(names, regions or ["local"] * len(names), strict=True)],
        models=[SnapshotModel(
            id=model, display_name=model, created_s=0, owned_by="bench", context_window=202_752,
            max_output_tokens=131_072, price=PRICE,
            routes=[SnapshotRoute(deployment_id=f"{name}-a", fleet_id=f"{name}-a", datacenter_id=name, ingress_url=url,
                                  engine=engine or EngineFacts())
                    for name, url in zip(names, upstream_urls, strict=True)])])
    SnapshotStore(state_dir / "snapshot.json").save(SignedSnapshot.seal(snapshot, signing))
    key = ids.new_secret("sk_meridian_local")
    principal = Principal(key_id="key_bench", team_id="team_bench", key_name="bench", scopes=[Scope.INFERENCE])
    KeyStore(state_dir / "keys.json").save(StoredKeys(keys={ids.secret_digest(key): principal}))
    return key


@contextmanager
def running_edge(state_dir: Path, upstream_urls: list[str], port: int | None = None, model: str = MODEL,
                 engine: EngineFacts | None = None, regions: Sequence[str] = ()) -> Iterator[PreparedEdge]:
    """One edge process, until the block ends."""
    key, port = prepare(state_dir, upstream_urls, model, engine, regions), port or free_port()
    environment = {**os.environ, "MERIDIAN_HOST": "127.0.0.1", "MERIDIAN_PORT": str(port),
                   "MERIDIAN_CONTROL_PLANE_URLS": f"http://127.0.0.1:{free_port()}",
                   "MERIDIAN_STATE_DIR": str(state_dir), "MERIDIAN_LAST_SHIP_S": "0"}
    with (state_dir / "edge.log").open("wb") as output:
        process = subprocess.Popen([sys.executable, "-c", "from edge_api.main import main; main()"],
                                   env=environment, stdout=output, stderr=output)
        try:
            await_port(port, process)
            yield PreparedEdge(process.pid, port, key, state_dir)
        finally:
            process.terminate()
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def await_port(port: int, process: subprocess.Popen[bytes], patience_s: float = 20.0) -> None:
    """Waits until something listens.

    Raises:
        RuntimeError: the process ended, or it took too long.
    """
    deadline_s = time.monotonic() + patience_s
    while time.monotonic() < deadline_s:
        if process.poll() is not None:
            raise RuntimeError(f"the process ended with {process.returncode}")
        try:
            socket.create_connection(("127.0.0.1", port), 0.5).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    raise RuntimeError(f"nothing listens on port {port} after {patience_s} s")

"""The cold routes of real edges on sockets of their own, without a control plane, for commands that talk to edges."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import uvicorn
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from control_plane.contracts.clock import SystemClock
from control_plane.contracts.signing import SigningKey
from edge_api.app import ColdParts, build_app
from edge_api.identity import ControlPlaneLink, Identity
from edge_api.metrics import Metrics
from edge_api.open_requests import OpenRequests
from edge_api.override.board import Overrides
from edge_api.override.routes import OverrideDesk
from edge_api.override.store import OrderStore
from edge_api.snapshot.holder import TableHolder
from tests.unit.edge_api.builders import MODEL
from tests.unit.edge_api.override.orders import EAST, known_to

START_DEADLINE_S = 10.0


class RealEdge:
    """One edge; `key` is the operator's key that its snapshot knows."""

    def __init__(self, name: str, key: SigningKey, directory: Path) -> None:
        self.name, self.holder = name, TableHolder()
        self.holder.take(known_to(key))
        clock, link = SystemClock(), ControlPlaneLink(["http://127.0.0.1:1"], SystemClock())
        link.use(Identity(name, EAST, SigningKey.generate(), []))
        overrides = Overrides(
            self.holder, OrderStore(directory / f"{name}.json"), clock, CollectorRegistry(), lambda: name)
        desk = OverrideDesk(overrides, self.holder, link, clock, lambda: "control plane away")
        self._server = uvicorn.Server(uvicorn.Config(
            build_app(ColdParts(self.holder, OpenRequests(), Metrics(), lambda: "", [], override=desk)),
            host="127.0.0.1", port=0, log_config=None, ws="none", lifespan="off"))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.servers[0].sockets[0].getsockname()[1]}"

    @property
    def weights(self) -> dict[str, float]:
        table = self.holder.current
        assert table is not None
        return {route.datacenter_id: route.weight for route in table.models[MODEL].routes}

    @contextmanager
    def running(self) -> Iterator["RealEdge"]:
        """Serves until the block ends."""
        thread = threading.Thread(target=self._server.run)
        thread.start()
        ends_s = time.monotonic() + START_DEADLINE_S
        while not self._server.started and time.monotonic() < ends_s:
            time.sleep(0.01)
        try:
            with capture_logs():  # which go to standard output otherwise, where commands write their answers
                yield self
        finally:
            self._server.should_exit = True
            thread.join()

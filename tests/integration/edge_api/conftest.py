"""A control plane over real HTTP and the parts of an edge that speak to it."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from control_plane.contracts.clock import ManualClock, SystemClock
from edge_api.identity import ControlPlaneLink, enrol_until_done
from edge_api.metrics import Metrics
from tests.integration.edge_api.control_plane import TOKEN, ControlPlane, serving


@pytest.fixture
async def control_plane() -> AsyncIterator[ControlPlane]:
    async with serving(ControlPlane()) as control_plane:
        yield control_plane


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.write_text(f"{TOKEN}\n")
    return path


@pytest.fixture
async def link(control_plane: ControlPlane, tmp_path: Path, token_file: Path) -> AsyncIterator[ControlPlaneLink]:
    """An enrolled edge's way up."""
    link = ControlPlaneLink([control_plane.url], SystemClock())
    await enrol_until_done(link, tmp_path / "state", token_file, [control_plane.url])
    yield link
    await link.aclose()


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()

"""A stack's state directory that leads to servers of this test, and the command line to run against them."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from control_plane.cli.app import run
from tests.ran import Ran
from tests.unit.control_plane.cli.servers import API_KEY, TOKEN, EdgeServer, OperatorServer


class Meridian:
    """Runs commands in this process."""

    def __init__(self, state: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.state, self._capsys = state, capsys

    def __call__(self, *arguments: str) -> Ran:
        self._capsys.readouterr()
        code = run(list(arguments))
        captured = self._capsys.readouterr()
        return Ran(code, captured.out, captured.err)

    def point_at(self, urls: list[str], edge_url: str = "", token: str = TOKEN, api_key: str = API_KEY) -> None:
        """Writes the file that a local stack would have written."""
        (self.state / "local.json").write_text(json.dumps({
            "control_plane_urls": urls, "operator_token": token, "edge_url": edge_url, "api_key": api_key,
            "model": "sim/glm-5.3"}))


@pytest.fixture
def api() -> Iterator[OperatorServer]:
    with OperatorServer() as server:
        yield server


@pytest.fixture
def edge() -> Iterator[EdgeServer]:
    with EdgeServer() as server:
        yield server


@pytest.fixture
def nowhere(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Meridian:
    """The command line with an empty state directory and a quiet environment."""
    for name in ("CONTROL_PLANE_URL", "OPERATOR_TOKEN", "EDGE_URL", "API_KEY", "MODEL"):
        monkeypatch.delenv(f"MERIDIAN_{name}", raising=False)
    monkeypatch.setenv("MERIDIAN_STATE", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TZ", "UTC")
    return Meridian(tmp_path, capsys)


@pytest.fixture
def meridian(nowhere: Meridian, api: OperatorServer, edge: EdgeServer) -> Meridian:
    """The command line with a stack to talk to."""
    nowhere.point_at([api.url], edge.url + "/v1")
    return nowhere

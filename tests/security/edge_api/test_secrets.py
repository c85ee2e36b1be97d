"""No secret and no prompt leaves its place: not into a log, a metric, a file, an error or another server."""

from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from control_plane.contracts.ids import new_secret
from tests.integration.edge_api.control_plane import KEY, TOKEN, ControlPlane, serving
from tests.integration.edge_api.process import EdgeProcess, chat_body, client_of, datacenter, edge_process
from tests.integration.edge_api.waiting import until
from tests.unit.edge_api.builders import snapshot

PROMPT = "canary-prompt-7f3a"
UNKNOWN = new_secret("sk_meridian_test")
MISTYPED = KEY[:-1] + ("0" if KEY[-1] != "0" else "1")


@pytest.fixture
async def used(tmp_path: Path) -> AsyncIterator[tuple[EdgeProcess, ControlPlane]]:
    """An edge that met good, unknown and mistyped keys, good and bad requests, and a control plane that went away."""
    (tmp_path / "token").write_text(TOKEN)
    async with serving(ControlPlane()) as control_plane, datacenter() as frontend:
        control_plane.publish(snapshot(ports={"us-east-1": frontend.port, "eu-north-1": 1}))
        async with edge_process(tmp_path, control_plane.url) as edge:
            messages = [{"role": "user", "content": PROMPT}]
            for key in (KEY, UNKNOWN, MISTYPED):
                async with client_of(edge, key) as client:
                    for turn in range(5):
                        await client.post("/v1/chat/completions", json=chat_body(
                            messages=messages, prompt_cache_key=f"{turn}"))
                    await client.post("/v1/chat/completions", json=chat_body(messages=PROMPT))
                    await client.post("/v1/chat/completions", content=f'{{"messages": "{PROMPT}')
                    await client.get(f"/v1/models/{key}")
                    await client.get(f"/{key}")
            await until(lambda: len(control_plane.records) >= 5)
            control_plane.away = True
            async with client_of(edge, new_secret("sk_meridian_test")) as client:
                assert (await client.post("/v1/chat/completions", json=chat_body())).status_code == 503
            yield edge, control_plane


def every_file(directory: Path) -> bytes:
    return b"".join(path.read_bytes() for path in directory.rglob("*") if path.is_file())


async def test_logs_metrics_and_disk_hold_no_key_no_token_and_no_prompt(
        used: tuple[EdgeProcess, ControlPlane]) -> None:
    edge, _ = used
    async with httpx.AsyncClient(base_url=edge.url) as client:
        metrics = (await client.get("/metrics")).text
    await edge.stop()
    for secret in (KEY, UNKNOWN, MISTYPED, TOKEN, PROMPT):
        assert secret not in metrics
        assert secret not in edge.log()
        assert secret.encode() not in every_file(edge.state_dir)


async def test_the_private_key_is_nowhere_but_in_its_own_file(used: tuple[EdgeProcess, ControlPlane]) -> None:
    edge, _ = used
    await edge.stop()
    secret = (edge.state_dir / "identity.key").read_bytes()
    assert every_file(edge.state_dir).count(secret) == 1
    assert secret.hex() not in edge.log()


async def test_every_file_of_the_edge_is_private(used: tuple[EdgeProcess, ControlPlane]) -> None:
    edge, _ = used
    readable = [str(path) for path in [edge.state_dir, *edge.state_dir.rglob("*")] if path.stat().st_mode & 0o077]
    assert readable == []


async def test_the_control_plane_is_told_digests_and_counts_only(used: tuple[EdgeProcess, ControlPlane]) -> None:
    _, control_plane = used
    told = f"{control_plane.lookups}{control_plane.batches}{control_plane.syncs}"
    for secret in (KEY, UNKNOWN, MISTYPED, PROMPT):
        assert secret not in told


async def test_metrics_name_no_team_and_no_key(used: tuple[EdgeProcess, ControlPlane]) -> None:
    edge, _ = used
    async with httpx.AsyncClient(base_url=edge.url) as client:
        metrics = (await client.get("/metrics")).text
    assert "team_1" not in metrics
    assert "key_1" not in metrics

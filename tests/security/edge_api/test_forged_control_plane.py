"""Whoever answers in the control plane's place can withhold news, but can change nothing that the edge does."""

import base64
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from control_plane.contracts.signing import SigningKey
from control_plane.contracts.snapshot import SignedSnapshot, SnapshotRefused
from tests.integration.edge_api.control_plane import TOKEN, ControlPlane, free_port, serving
from tests.integration.edge_api.process import EdgeProcess, chat_body, client_of, datacenter
from tests.integration.edge_api.waiting import until
from tests.unit.edge_api.builders import snapshot

KEY = SigningKey.generate()
SEALED = SignedSnapshot.seal(snapshot(version=5), KEY)


@given(st.integers(0, len(SEALED.body) - 1), st.characters(codec="ascii"))
def test_no_change_of_one_character_is_accepted(at: int, character: str) -> None:
    body = SEALED.body[:at] + character + SEALED.body[at + 1:]
    if body != SEALED.body:
        with pytest.raises(SnapshotRefused):
            SEALED.model_copy(update={"body": body}).open([KEY.public])


@given(st.binary(max_size=80), st.text(max_size=40))
def test_no_made_up_signature_is_accepted(signature: bytes, key_id: str) -> None:
    for forged in (SEALED.model_copy(update={"signature": signature.hex()}),
                   SEALED.model_copy(update={"key_id": key_id, "signature": signature.hex()})):
        with pytest.raises(SnapshotRefused):
            forged.open([KEY.public])


nonsenses = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=12), inner), max_leaves=9)


@given(nonsenses)
@settings(suppress_health_check=[HealthCheck.too_slow])
def test_nonsense_with_the_right_signature_is_still_refused(nonsense: object) -> None:
    body = json.dumps(nonsense)
    signature = base64.urlsafe_b64encode(KEY.sign(body.encode())).decode()
    sealed = SEALED.model_copy(update={"body": body, "signature": signature})
    with pytest.raises(SnapshotRefused):
        sealed.open([KEY.public])


@pytest.fixture
async def edge(tmp_path: Path) -> AsyncIterator[tuple[EdgeProcess, int]]:
    """An enrolled edge whose control plane is gone, and the port on which anybody may now answer in its place."""
    (tmp_path / "token").write_text(TOKEN)
    port = free_port()
    async with datacenter() as frontend:
        edge = EdgeProcess(tmp_path, f"http://127.0.0.1:{port}")
        try:
            async with serving(ControlPlane(), port) as genuine:
                genuine.publish(snapshot(version=5, ports={"us-east-1": frontend.port, "eu-north-1": frontend.port}))
                await edge.start()
                async with client_of(edge) as client:
                    await client.post("/v1/chat/completions", json=chat_body())
                await until(lambda: genuine.records)
            yield edge, port
        finally:
            await edge.stop()


async def test_an_impostor_cannot_reroute_traffic(edge: tuple[EdgeProcess, int]) -> None:
    process, port = edge
    async with datacenter() as trap, serving(ControlPlane(), port) as impostor:
        impostor.believes_anybody = True
        impostor.publish(snapshot(version=99, ports={"us-east-1": trap.port, "eu-north-1": trap.port}))
        await until(lambda: any(sync.nack for sync in impostor.syncs))
        async with client_of(process) as client:
            for turn in range(10):
                answer = await client.post("/v1/chat/completions", json=chat_body(prompt_cache_key=str(turn)))
                assert answer.status_code == 200
        assert trap.seen == 0


async def test_an_unsigned_look_up_or_batch_is_never_sent(edge: tuple[EdgeProcess, int]) -> None:
    process, port = edge
    async with serving(ControlPlane(), port) as strict:
        async with client_of(process) as client:
            await client.post("/v1/chat/completions", json=chat_body())
        await until(lambda: strict.refused_requests)  # signed by an identity that this one never enrolled
        assert strict.records == {}
        assert strict.lookups == []


async def test_a_restart_does_not_trust_another_control_plane(edge: tuple[EdgeProcess, int]) -> None:
    process, port = edge
    await process.stop()
    async with serving(ControlPlane(), port) as impostor:
        impostor.believes_anybody = True
        impostor.publish(snapshot(version=99, models=("sim/evil",)))
        await process.start()
        await until(lambda: any(sync.nack for sync in impostor.syncs))
        async with client_of(process) as client:
            listed = (await client.get("/v1/models")).json()["data"]
    assert [model["id"] for model in listed] == ["sim/glm-5.3"]

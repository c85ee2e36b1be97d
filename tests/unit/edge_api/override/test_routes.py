"""`/edge/v1/overrides`: an order proves itself, and only operators see the list."""

from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from prometheus_client import CollectorRegistry

from control_plane.contracts.clock import ManualClock
from control_plane.contracts.override import MAX_BODY_BYTES, PATH, EdgeStanding, OverrideAnswer, OverrideOutcome
from control_plane.contracts.signing import SignedRequest, SigningKey
from edge_api.app import ColdParts, build_app
from edge_api.identity import ControlPlaneLink, Identity
from edge_api.metrics import Metrics
from edge_api.open_requests import OpenRequests
from edge_api.override.board import Overrides
from edge_api.override.routes import OverrideDesk
from edge_api.override.store import OrderStore
from edge_api.snapshot.holder import TableHolder
from tests.unit.edge_api.override.orders import EAST, EDGE, NORTH, NOW_S, known_to, sealed

KEY = SigningKey.generate()
CLOCK = ManualClock(NOW_S)


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    """An edge that knows `KEY`, with its control plane away."""
    holder, link = TableHolder(), ControlPlaneLink(["http://127.0.0.1:1"], CLOCK)
    holder.take(known_to(KEY))
    link.use(Identity(EDGE, EAST, SigningKey.generate(), []))
    overrides = Overrides(holder, OrderStore(tmp_path / "overrides.json"), CLOCK, CollectorRegistry(), lambda: EDGE)
    desk = OverrideDesk(overrides, holder, link, CLOCK, lambda: "control plane away")
    app = build_app(ColdParts(holder, OpenRequests(), Metrics(), lambda: "", [], override=desk))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://edge") as made:
        yield made
    await link.aclose()


async def give(client: httpx.AsyncClient, content: str | bytes) -> tuple[int, OverrideAnswer]:
    answer = await client.post(PATH, content=content)
    return answer.status_code, OverrideAnswer.model_validate_json(answer.content)


async def listed(client: httpx.AsyncClient, key: SigningKey = KEY) -> httpx.Response:
    return await client.get(PATH, headers=SignedRequest("GET", PATH, b"").sign(key.public.key_id, key, CLOCK))


async def test_an_order_is_taken_and_then_known(client: httpx.AsyncClient) -> None:
    status, answer = await give(client, sealed(KEY).model_dump_json())
    assert (status, answer.outcome, answer.edge) == (200, OverrideOutcome.TAKEN, EDGE)
    assert (await give(client, sealed(KEY).model_dump_json()))[1].outcome is OverrideOutcome.KNOWN


async def test_the_list_says_how_requests_are_routed_now(client: httpx.AsyncClient) -> None:
    await give(client, sealed(KEY).model_dump_json())
    standing = EdgeStanding.model_validate_json((await listed(client)).content)
    assert {place.id: place.weight for place in standing.datacenters} == {EAST: 0, NORTH: 100}
    assert (standing.edge, standing.control_plane) == (EDGE, "control plane away")
    assert [(view.id, view.key_name) for view in standing.overrides] == [("ovr_1", "olga")]


@pytest.mark.parametrize(("content", "status"), [
    ("{", 422), ("{}", 422), (b"\xff\xfe", 422), ("x" * (MAX_BODY_BYTES + 1), 413)])
async def test_what_is_no_order_is_refused(client: httpx.AsyncClient, content: str | bytes, status: int) -> None:
    refused, answer = await give(client, content)
    assert (refused, answer.outcome) == (status, OverrideOutcome.MALFORMED)


async def test_a_strangers_order_is_refused(client: httpx.AsyncClient) -> None:
    status, _ = await give(client, sealed(SigningKey.generate()).model_dump_json())
    assert status == 403


async def test_an_unsafe_order_is_a_conflict(client: httpx.AsyncClient) -> None:
    await give(client, sealed(KEY).model_dump_json())
    status, answer = await give(client, sealed(KEY, order_id="ovr_2", datacenter=NORTH).model_dump_json())
    assert (status, answer.outcome) == (409, OverrideOutcome.LEAVES_NONE)


async def test_a_stranger_sees_no_list(client: httpx.AsyncClient) -> None:
    assert (await listed(client, SigningKey.generate())).status_code == 401
    assert (await client.get(PATH)).status_code == 401


async def test_a_listing_is_not_answered_twice_for_one_signature(client: httpx.AsyncClient) -> None:
    headers = SignedRequest("GET", PATH, b"").sign(KEY.public.key_id, KEY, CLOCK)
    statuses = [(await client.get(PATH, headers=headers)).status_code for _ in range(2)]
    assert statuses == [200, 401]


async def test_an_edge_by_itself_takes_no_orders() -> None:
    holder = TableHolder()
    holder.take(known_to(KEY))
    app = build_app(ColdParts(holder, OpenRequests(), Metrics(), lambda: "", []))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://edge") as client:
        assert (await client.post(PATH, content="{}")).status_code == 404

"""What edges were told while the control plane was off becomes audit events, each once, when it is back."""

import asyncio
from typing import Any

import pytest

from control_plane.contracts.edge_sync import EdgeSyncAnswer, EdgeSyncRequest
from control_plane.contracts.enrolment import IdentityKind
from control_plane.contracts.override import (
    OverrideAction,
    OverrideReport,
    OverrideStanding,
    OverrideView,
    SignedOverride,
)
from control_plane.contracts.signing import SigningKey
from tests.integration.control_plane.replica import Peer, Replica
from tests.unit.edge_api.override.orders import EAST, order


@pytest.fixture
def key() -> SigningKey:
    return SigningKey.generate()


async def register(replica: Replica, key: SigningKey) -> dict[str, str]:
    headers = await replica.operator()
    await replica.client.post("/operator/v1/operator-keys", json={"name": "olga", "public_key": key.public.text},
                              headers=headers)
    return headers


def report(key: SigningKey, state: OverrideStanding = OverrideStanding.IN_FORCE, **changes: Any) -> OverrideReport:
    told = order(**changes)
    return OverrideReport(signed=SignedOverride.seal(told, key), view=OverrideView(
        id=told.id, action=told.action, datacenter=told.datacenter, state=state, reason=told.reason,
        key_id=key.public.key_id, key_name="olga", issued_at_s=told.issued_at_s, expires_at_s=told.expires_at_s,
        evacuate=told.evacuate, force=told.force))


async def sync(replica: Replica, peer: Peer, *reports: OverrideReport) -> EdgeSyncAnswer:
    request = EdgeSyncRequest(
        boot_id="boot-1", release="0.1.0", acked_lineage=0, acked_version=0, revocations_after=0, open_requests={},
        overrides=list(reports), override_url="http://10.0.0.1:8700", wait_s=0)
    answer = await replica.signed(peer, "/edge/v1/sync", request.model_dump_json().encode())
    assert answer.status_code == 200, answer.text
    return EdgeSyncAnswer.model_validate_json(answer.content)


async def audited(replica: Replica, headers: dict[str, str]) -> list[dict[str, Any]]:
    answer = await replica.client.get(f"/operator/v1/audit?target=datacenter:{EAST}", headers=headers)
    events: list[dict[str, Any]] = answer.json()["data"]
    return events


async def test_an_order_becomes_one_event_whichever_edge_reports_it_and_how_often(
        replica: Replica, key: SigningKey) -> None:
    headers = await register(replica, key)
    edges = [await replica.enrolled(IdentityKind.EDGE) for _ in range(3)]
    answers = await asyncio.gather(*(sync(replica, edge, report(key)) for edge in edges for _ in range(4)))
    assert all(answer.overrides_taken == ["ovr_1"] for answer in answers)
    (event,) = await audited(replica, headers)
    assert (event["actor"], event["action"], event["reason"]) == ("operator_key:olga", "override.drain", "it burns")
    assert (event["after"]["proved"], event["after"]["id"]) == (True, "ovr_1")


async def test_a_lift_is_an_event_of_its_own(replica: Replica, key: SigningKey) -> None:
    headers = await register(replica, key)
    edge = await replica.enrolled(IdentityKind.EDGE)
    await sync(replica, edge, report(key, OverrideStanding.LIFTED),
               report(key, order_id="ovr_2", action=OverrideAction.LIFT))
    assert {event["action"] for event in await audited(replica, headers)} == {"override.drain", "override.lift"}


async def test_an_order_of_a_key_that_was_revoked_since_is_still_proved(replica: Replica, key: SigningKey) -> None:
    headers = await register(replica, key)
    await replica.client.delete(f"/operator/v1/operator-keys/{key.public.key_id}", headers=headers)
    await sync(replica, await replica.enrolled(IdentityKind.EDGE), report(key, OverrideStanding.UNPROVED))
    (event,) = await audited(replica, headers)
    assert event["after"]["proved"] is True


async def test_what_cannot_be_proved_is_on_record_as_that(replica: Replica, key: SigningKey) -> None:
    headers = await register(replica, key)
    forged = report(SigningKey.generate())
    edge = await replica.enrolled(IdentityKind.EDGE)
    await sync(replica, edge, forged)
    (event,) = await audited(replica, headers)
    assert (event["actor"], event["after"]["proved"]) == (f"machine:{edge.identity}", False)


async def test_a_view_that_says_otherwise_than_the_signed_order_counts_for_nothing(
        replica: Replica, key: SigningKey) -> None:
    headers = await register(replica, key)
    true = report(key)
    false = true.model_copy(update={"view": true.view.model_copy(update={"reason": "nothing", "datacenter": "x"})})
    await sync(replica, await replica.enrolled(IdentityKind.EDGE), false)
    (event,) = await audited(replica, headers)
    assert event["reason"] == "it burns"


async def test_status_shows_where_edges_are_and_what_they_were_told(replica: Replica, key: SigningKey) -> None:
    headers = await register(replica, key)
    edge = await replica.enrolled(IdentityKind.EDGE)
    await sync(replica, edge, report(key), report(key, OverrideStanding.EXPIRED, order_id="ovr_2"))
    (status,) = (await replica.client.get("/operator/v1/status", headers=headers)).json()["edges"]
    assert status["url"] == "http://10.0.0.1:8700"
    assert [(told["id"], told["datacenter"]) for told in status["overrides"]] == [("ovr_1", EAST)]
    await sync(replica, edge)
    (status,) = (await replica.client.get("/operator/v1/status", headers=headers)).json()["edges"]
    assert status["overrides"] == []

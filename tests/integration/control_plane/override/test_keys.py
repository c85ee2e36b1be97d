"""Operators' keys: registered by admins, carried by snapshots, revoked for ever; every step in the audit log."""

from typing import Any

import httpx

from control_plane.contracts.enrolment import IdentityKind
from control_plane.contracts.operator import OperatorScope
from control_plane.contracts.signing import SigningKey
from tests.integration.control_plane.replica import Replica
from tests.integration.control_plane.simulated import SimulatedEdge, declare, document

PATH = "/operator/v1/operator-keys"


async def register(replica: Replica, key: SigningKey, headers: dict[str, str]) -> httpx.Response:
    return await replica.client.post(PATH, json={"name": "olga", "public_key": key.public.text}, headers=headers)


async def audited(replica: Replica, headers: dict[str, str], key: SigningKey) -> list[str]:
    answer = await replica.client.get(f"/operator/v1/audit?target=operator_key:{key.public.key_id}", headers=headers)
    return [event["action"] for event in answer.json()["data"]]


async def carried(replica: Replica) -> list[str]:
    """The keys that a new edge is told."""
    edge = SimulatedEdge(replica, await replica.enrolled(IdentityKind.EDGE))
    await edge.sync()
    assert edge.snapshot is not None
    return [key.key_id for key in edge.snapshot.operator_keys]


async def test_a_registered_key_is_carried_by_the_next_snapshot_until_it_is_revoked(replica: Replica) -> None:
    headers, key = await replica.operator(), SigningKey.generate()
    await declare(replica, headers, document())
    assert (await register(replica, key, headers)).status_code == 201
    assert await carried(replica) == [key.public.key_id]
    assert (await replica.client.delete(f"{PATH}/{key.public.key_id}", headers=headers)).status_code == 204
    assert await carried(replica) == []
    assert await audited(replica, headers, key) == ["operator_key.revoke", "operator_key.register"]


async def test_registering_again_changes_nothing(replica: Replica) -> None:
    headers, key = await replica.operator(), SigningKey.generate()
    first, again = [(await register(replica, key, headers)).json() for _ in range(2)]
    assert first == again
    assert await audited(replica, headers, key) == ["operator_key.register"]


async def test_a_revoked_key_stays_so(replica: Replica) -> None:
    headers, key = await replica.operator(), SigningKey.generate()
    await register(replica, key, headers)
    await replica.client.delete(f"{PATH}/{key.public.key_id}", headers=headers)
    answer = await register(replica, key, headers)
    assert (answer.status_code, answer.json()["code"]) == (409, "key_revoked")
    assert (await replica.client.delete(f"{PATH}/{key.public.key_id}", headers=headers)).status_code == 404


async def test_only_an_admin_registers_and_revokes(replica: Replica) -> None:
    headers, key = await replica.operator(OperatorScope.OPERATE), SigningKey.generate()
    assert (await register(replica, key, headers)).status_code == 403
    assert (await replica.client.delete(f"{PATH}/{key.public.key_id}", headers=headers)).status_code == 403


async def test_what_is_no_key_is_refused(replica: Replica) -> None:
    answer = await replica.client.post(PATH, json={"name": "olga", "public_key": "YWJj"},
                                       headers=await replica.operator())
    assert (answer.status_code, answer.json()["code"]) == (400, "bad_public_key")


async def test_the_list_is_paged(replica: Replica) -> None:
    headers = await replica.operator()
    made = sorted([SigningKey.generate() for _ in range(3)], key=lambda key: key.public.key_id)
    for key in made:
        await register(replica, key, headers)
    seen: list[Any] = []
    cursor: str | None = ""
    while cursor is not None:
        page = (await replica.client.get(f"{PATH}?limit=2" + (f"&cursor={cursor}" if cursor else ""),
                                         headers=headers)).json()
        seen, cursor = seen + [key["key_id"] for key in page["data"]], page["next_cursor"]
    assert seen == [key.public.key_id for key in made]

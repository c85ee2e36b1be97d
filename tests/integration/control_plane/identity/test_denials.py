"""An operator who tries what the token's scopes do not hold is denied, and the audit log says so."""

from typing import Any

from control_plane.contracts.operator import OperatorScope
from tests.integration.control_plane.replica import Replica


async def denials(replica: Replica) -> list[dict[str, Any]]:
    answer = await replica.client.get("/operator/v1/audit?limit=500", headers=await replica.operator())
    return [event for event in answer.json()["data"] if event["action"] == "access.deny"]


async def test_a_denied_operator_is_noted_with_what_was_asked_and_held(replica: Replica) -> None:
    reader = await replica.operator(OperatorScope.READ)
    assert (await replica.client.delete("/operator/v1/keys/key_1", headers=reader)).status_code == 403
    (event,) = await denials(replica)
    assert event["actor"] == "operator:olga"
    assert event["after"] == {"asked": "DELETE /operator/v1/keys/{key_id}", "needed": "operate", "held": ["read"]}


async def test_trying_often_is_noted_once(replica: Replica) -> None:
    reader = await replica.operator(OperatorScope.READ)
    for number in range(5):
        await replica.client.delete(f"/operator/v1/keys/key_{number}", headers=reader)
    assert len(await denials(replica)) == 1


async def test_who_is_nobody_is_not_noted(replica: Replica) -> None:
    await replica.client.delete("/operator/v1/keys/key_1", headers={"authorization": "Bearer oper_meridian_x"})
    assert await denials(replica) == []

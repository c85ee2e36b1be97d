"""Every change that an operator or a machine makes leaves one event that names it."""

from typing import Any

from control_plane.contracts.enrolment import IdentityKind
from tests.integration.control_plane.replica import Replica
from tests.integration.control_plane.simulated import declare, document


async def log(replica: Replica, headers: dict[str, str]) -> list[dict[str, Any]]:
    answer = await replica.client.get("/operator/v1/audit?limit=500", headers=headers)
    return [event for event in answer.json()["data"] if event["actor"] != "test"]


async def post(replica: Replica, headers: dict[str, str], path: str, body: dict[str, Any]) -> dict[str, Any]:
    answer = await replica.client.post(path, json=body, headers=headers)
    assert answer.status_code == 201, answer.text
    made: dict[str, Any] = answer.json()
    return made


async def test_teams_keys_and_tokens_are_noted_with_the_operators_name(replica: Replica) -> None:
    headers = await replica.operator()
    team = await post(replica, headers, "/operator/v1/teams", {"name": "Acme", "slug": "acme"})
    key = await post(replica, headers, f"/operator/v1/teams/{team['id']}/keys", {"name": "ci"})
    await replica.client.delete(f"/operator/v1/keys/{key['id']}", headers=headers)
    token = await post(replica, headers, "/operator/v1/tokens", {"name": "ci", "scopes": ["read"]})
    await replica.client.delete(f"/operator/v1/tokens/{token['id']}", headers=headers)
    await declare(replica, headers, document())
    await post(replica, headers, "/operator/v1/enrolment-tokens", {"kind": "agent", "subject": "us-east-1-a"})
    events = await log(replica, headers)
    assert {event["actor"] for event in events} == {"operator:olga"}
    assert [(event["action"], event["target"]) for event in reversed(events)] == [
        ("team.create", f"team:{team['id']}"), ("key.create", f"key:{key['id']}"), ("key.revoke", f"key:{key['id']}"),
        ("operator_token.create", f"operator_token:{token['id']}"),
        ("operator_token.revoke", f"operator_token:{token['id']}"),
        ("topology.apply", "topology"), ("enrolment_token.create", "agent:us-east-1-a")]


async def test_a_machine_is_noted_when_it_enrols_and_when_it_is_revoked(replica: Replica) -> None:
    peer, headers = await replica.enrolled(IdentityKind.EDGE), await replica.operator()
    await replica.client.delete(f"/operator/v1/identities/{peer.identity}", headers=headers)
    assert [(event["actor"], event["action"]) for event in reversed(await log(replica, headers))] == [
        (f"machine:{peer.identity}", "identity.enrol"), ("operator:olga", "identity.revoke")]


async def test_a_refused_change_leaves_no_event(replica: Replica) -> None:
    headers = await replica.operator()
    await replica.team("acme")
    taken = await replica.client.post("/operator/v1/teams", json={"name": "A", "slug": "acme"}, headers=headers)
    missing = await replica.client.delete("/operator/v1/keys/key_none", headers=headers)
    assert (taken.status_code, missing.status_code) == (409, 404)
    assert await log(replica, headers) == []

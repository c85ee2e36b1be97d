"""Teams and keys through the operator API, and the edge's look-up of a key."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from control_plane.contracts import ids
from control_plane.contracts.enrolment import IdentityKind
from control_plane.contracts.keys import KeyLookup, Principal, Scope
from control_plane.contracts.operator import KeyCreated
from tests.integration.control_plane.replica import Replica


async def look_up(replica: Replica, secret: str) -> tuple[int, dict[str, Any]]:
    edge = await replica.enrolled(IdentityKind.EDGE)
    body = KeyLookup(digest=ids.secret_digest(secret)).model_dump_json().encode()
    answer = await replica.signed(edge, "/edge/v1/keys/lookup", body)
    return answer.status_code, answer.json()


async def test_a_team_is_made_once_per_slug(replica: Replica) -> None:
    headers, body = await replica.operator(), {"name": "Acme", "slug": "acme"}
    made = await replica.client.post("/operator/v1/teams", json=body, headers=headers)
    again = await replica.client.post("/operator/v1/teams", json=body, headers=headers)
    assert (made.status_code, made.json()["slug"]) == (201, "acme")
    assert (again.status_code, again.json()["code"]) == (409, "slug_taken")


@pytest.mark.parametrize("slug", ["", "A", "a_b", "-a", "a b", "ä", "a" * 64])
async def test_a_slug_that_does_not_fit_an_address_is_refused(replica: Replica, slug: str) -> None:
    answer = await replica.client.post(
        "/operator/v1/teams", json={"name": "A", "slug": slug}, headers=await replica.operator())
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid")


async def test_teams_are_paged_the_oldest_first(replica: Replica) -> None:
    for slug in ("one", "two", "three"):
        await replica.team(slug)
    headers = await replica.operator()
    first = (await replica.client.get("/operator/v1/teams?limit=2", headers=headers)).json()
    second = (await replica.client.get(
        "/operator/v1/teams", params={"limit": 2, "cursor": first["next_cursor"]}, headers=headers)).json()
    assert [team["slug"] for team in first["data"] + second["data"]] == ["one", "two", "three"]
    assert second["next_cursor"] is None


@pytest.mark.parametrize("by", ["id", "slug"])
async def test_a_key_is_made_by_team_id_and_by_slug(replica: Replica, by: str) -> None:
    team = await replica.team()
    answer = await replica.client.post(
        f"/operator/v1/teams/{getattr(team, by)}/keys", json={"name": "ci"}, headers=await replica.operator())
    key = KeyCreated.model_validate_json(answer.content)
    assert ids.is_well_formed_secret(key.secret)
    assert key.secret.startswith("sk_meridian_local_")
    assert (key.team_id, key.scopes, key.hint) == (team.id, [Scope.INFERENCE], ids.secret_hint(key.secret))


async def test_a_secret_is_shown_once_and_never_stored(replica: Replica) -> None:
    team = await replica.team()
    key = await replica.key(team.id)
    listed = await replica.client.get(f"/operator/v1/teams/{team.id}/keys", headers=await replica.operator())
    async with replica.context.db.engine.connect() as connection:
        stored = [str(row) for row in await connection.exec_driver_sql("SELECT * FROM api_key")]
    assert [row["id"] for row in listed.json()["data"]] == [key.id]
    assert key.secret[-20:] not in listed.text + "".join(stored)


async def test_an_unknown_team_has_no_keys(replica: Replica) -> None:
    answer = await replica.client.get("/operator/v1/teams/nobody/keys", headers=await replica.operator())
    assert (answer.status_code, answer.json()["code"]) == (404, "not_found")


async def test_a_key_that_would_have_expired_is_refused(replica: Replica) -> None:
    team = await replica.team()
    for expires_at in ("2020-01-01T00:00:00Z", "2099-01-01T00:00:00"):
        body = {"name": "ci", "expires_at": expires_at}
        answer = await replica.client.post(
            f"/operator/v1/teams/{team.id}/keys", json=body, headers=await replica.operator())
        assert (answer.status_code, answer.json()["code"]) == (400, "bad_expiry")


async def test_an_edge_learns_whom_a_key_speaks_for(replica: Replica) -> None:
    team = await replica.team()
    expires_at = datetime.now(UTC) + timedelta(hours=1)
    key = await replica.key(team.id, Scope.INFERENCE, Scope.USAGE_READ, expires_at=expires_at)
    status, body = await look_up(replica, key.secret)
    principal = Principal.model_validate(body)
    assert status == 200
    assert (principal.key_id, principal.team_id, principal.key_name) == (key.id, team.id, "ci")
    assert set(principal.scopes) == {Scope.INFERENCE, Scope.USAGE_READ}
    assert principal.expires_at_s == pytest.approx(expires_at.timestamp())


async def test_a_key_that_nobody_issued_is_not_found(replica: Replica) -> None:
    assert (await look_up(replica, ids.new_secret("sk_meridian_local")))[0] == 404


async def test_an_expired_key_is_not_found(replica: Replica) -> None:
    key = await replica.key((await replica.team()).id)
    async with replica.context.db.engine.begin() as connection:
        await connection.exec_driver_sql("UPDATE api_key SET expires_at = now()")
    assert (await look_up(replica, key.secret))[0] == 404


async def test_a_revoked_key_is_not_found_and_stays_listed(replica: Replica) -> None:
    team = await replica.team()
    key, headers = await replica.key(team.id), await replica.operator()
    assert (await replica.client.delete(f"/operator/v1/keys/{key.id}", headers=headers)).status_code == 204
    assert (await look_up(replica, key.secret))[0] == 404
    (listed,) = (await replica.client.get(f"/operator/v1/teams/{team.id}/keys", headers=headers)).json()["data"]
    assert listed["revoked_at"] is not None


async def test_a_key_is_revoked_once(replica: Replica) -> None:
    key, headers = await replica.key((await replica.team()).id), await replica.operator()
    await replica.client.delete(f"/operator/v1/keys/{key.id}", headers=headers)
    assert (await replica.client.delete(f"/operator/v1/keys/{key.id}", headers=headers)).status_code == 404


async def test_a_name_that_cannot_be_stored_is_the_callers_fault(replica: Replica) -> None:
    answer = await replica.client.post(
        "/operator/v1/teams", json={"name": "nul \0", "slug": "nul"}, headers=await replica.operator())
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid")

"""Rotation with grace: a new secret with all that bound the old one, which ends when it was told to."""

import asyncio
from datetime import timedelta

import pytest

from control_plane.contracts import ids
from control_plane.contracts.keys import LimitScope, Scope
from control_plane.contracts.operator import KeyView
from tests.integration.control_plane.replica import MODEL
from tests.integration.control_plane.simulated import EAST
from tests.integration.control_plane.tenancy.asking import Tenants


async def listed(tenants: Tenants) -> list[KeyView]:
    return [KeyView.model_validate(key) for key in (await tenants.get("teams/acme/keys"))["data"]]


async def end_grace(tenants: Tenants) -> None:
    """Lets the time pass."""
    async with tenants.replica.context.db.engine.begin() as connection:
        await connection.exec_driver_sql("UPDATE api_key SET revoke_at = now() WHERE revoke_at IS NOT NULL")


async def test_old_and_new_work_until_the_grace_is_over(tenants: Tenants) -> None:
    successor = await tenants.rotated(grace_s=3_600)
    assert (await tenants.look_up()).status_code == 200
    assert (await tenants.look_up(successor.secret)).status_code == 200
    await end_grace(tenants)
    assert (await tenants.look_up()).status_code == 404
    assert (await tenants.look_up(successor.secret)).status_code == 200


async def test_the_successor_is_bound_as_the_key_was(tenants: Tenants) -> None:
    made = await tenants.post("teams/acme/keys", name="bot", scopes=["inference", "usage:read"], regions=[EAST],
                              allowed_models=[MODEL], expires_at="2099-01-01T00:00:00Z")
    key_id = made.json()["id"]
    await tenants.put("limits", key=key_id, requests_per_minute=5)
    await tenants.put("limits", key=key_id, model=MODEL, concurrency=2)
    await tenants.put(f"budgets/key/{key_id}/monthly", limit_usd="50")
    rotated = (await tenants.post(f"keys/{key_id}/rotate", grace_s=60)).json()
    before = await tenants.principal(made.json()["secret"])
    after = await tenants.principal(rotated["secret"])
    assert (after.key_name, set(after.scopes)) == ("bot", {Scope.INFERENCE, Scope.USAGE_READ})
    assert (after.allowed_models, after.regions, after.cache_salt) == ([MODEL], [EAST], before.cache_salt)
    assert after.money_scopes == before.money_scopes == [LimitScope.KEY]
    assert [limit.model_copy(update={"scope_id": key_id}) for limit in after.limits] == before.limits
    assert rotated["expires_at"] == made.json()["expires_at"]


async def test_an_edge_learns_when_the_old_key_ends(tenants: Tenants) -> None:
    await tenants.rotated(grace_s=3_600)
    (key, successor) = await listed(tenants)
    assert key.revoke_at is not None
    assert successor.rotated_from == key.id
    (revocation,) = (await tenants.sync()).revocations
    assert revocation.digest == ids.secret_digest(tenants.key.secret)
    assert revocation.effective_at_s == pytest.approx(key.revoke_at.timestamp())
    assert (await tenants.principal()).expires_at_s == pytest.approx(key.revoke_at.timestamp())


async def test_the_grace_is_as_long_as_asked_and_an_hour_by_default(tenants: Tenants) -> None:
    await tenants.rotated()
    (key, successor) = await listed(tenants)
    assert key.revoke_at is not None
    assert key.revoke_at - successor.created_at == timedelta(hours=1)


async def test_a_key_that_expires_earlier_still_does(tenants: Tenants) -> None:
    made = await tenants.post("teams/acme/keys", name="ci", expires_at="2098-01-01T00:00:00Z")
    await tenants.post(f"keys/{made.json()['id']}/rotate", grace_s=30 * 86_400)
    async with tenants.replica.context.db.engine.begin() as connection:
        await connection.exec_driver_sql("UPDATE api_key SET expires_at = now() + interval '1 hour'")
    ends_in_s = (await tenants.principal(made.json()["secret"])).expires_at_s
    assert ends_in_s is not None
    assert ends_in_s - tenants.replica.context.clock.time_s() < 3_700


async def test_without_grace_the_old_key_ends_at_once(tenants: Tenants) -> None:
    await tenants.rotated(grace_s=0)
    assert (await tenants.look_up()).status_code == 404
    (revocation,) = (await tenants.sync()).revocations
    assert revocation.effective_at_s is None


async def test_a_key_in_its_grace_can_be_revoked_at_once(tenants: Tenants) -> None:
    await tenants.rotated(grace_s=3_600)
    assert (await tenants.delete(f"keys/{tenants.key.id}")).status_code == 204
    assert (await tenants.look_up()).status_code == 404
    assert [one.effective_at_s is None for one in (await tenants.sync()).revocations] == [False, True]


async def test_a_key_is_rotated_once_however_many_ask(tenants: Tenants) -> None:
    answers = await asyncio.gather(*(tenants.post(f"keys/{tenants.key.id}/rotate", grace_s=60) for _ in range(5)))
    assert sorted(answer.status_code for answer in answers) == [201, 409, 409, 409, 409]
    assert len(await listed(tenants)) == 2


async def test_a_successor_can_be_rotated_in_its_turn(tenants: Tenants) -> None:
    successor = await tenants.rotated(grace_s=60)
    assert (await tenants.post(f"keys/{successor.id}/rotate", grace_s=60)).status_code == 201


@pytest.mark.parametrize("grace_s", [-1, 31 * 86_400, "soon"])
async def test_a_grace_that_makes_no_sense_is_refused(tenants: Tenants, grace_s: object) -> None:
    assert (await tenants.post(f"keys/{tenants.key.id}/rotate", grace_s=grace_s)).status_code == 422


async def test_only_a_living_key_is_rotated(tenants: Tenants) -> None:
    assert (await tenants.post("keys/key_nobody/rotate")).status_code == 404
    await tenants.delete(f"keys/{tenants.key.id}")
    assert (await tenants.post(f"keys/{tenants.key.id}/rotate")).status_code == 404


async def test_a_rotation_is_audited_without_any_secret(tenants: Tenants) -> None:
    successor = await tenants.rotated(grace_s=60)
    async with tenants.replica.context.db.engine.connect() as connection:
        (event,) = [str(row) for row in await connection.exec_driver_sql(
            "SELECT * FROM audit_event WHERE action = 'key.rotate'")]
    assert tenants.key.id in event
    assert successor.id in event
    assert successor.secret[-20:] not in event


async def test_a_key_of_usage_reads_reports_until_its_grace_is_over(tenants: Tenants) -> None:
    made = (await tenants.post("teams/acme/keys", name="ci", scopes=["usage:read"])).json()
    await tenants.post(f"keys/{made['id']}/rotate", grace_s=60)
    path, headers = f"/api/v1/teams/{tenants.team.id}/usage", {"authorization": f"Bearer {made['secret']}"}
    assert (await tenants.replica.client.get(path, headers=headers)).status_code == 200
    await end_grace(tenants)
    assert (await tenants.replica.client.get(path, headers=headers)).status_code == 401

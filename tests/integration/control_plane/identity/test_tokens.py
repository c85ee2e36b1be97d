"""Operator tokens: scoped, ending, revocable; and the first one."""

from pathlib import Path

import pytest

from control_plane.contracts.operator import OperatorScope, OperatorTokenCreated
from control_plane.identity.bootstrap import bootstrap
from control_plane.settings import Settings
from tests.integration.control_plane.replica import Replica, bearer, running_replica
from tests.integration.control_plane.simulated import declare, document


async def create(replica: Replica, headers: dict[str, str], *scopes: str) -> OperatorTokenCreated:
    answer = await replica.client.post(
        "/operator/v1/tokens", json={"name": "ci", "scopes": list(scopes), "ttl_s": 600}, headers=headers)
    assert answer.status_code == 201, answer.text
    return OperatorTokenCreated.model_validate_json(answer.content)


async def test_a_token_made_by_an_admin_works_with_its_scope(replica: Replica) -> None:
    made = await create(replica, await replica.operator(), "read")
    assert (await replica.client.get("/operator/v1/teams", headers=bearer(made.token))).status_code == 200
    body = {"name": "A", "slug": "a"}
    refused = await replica.client.post("/operator/v1/teams", json=body, headers=bearer(made.token))
    assert refused.json()["code"] == "forbidden"


async def test_a_lower_scope_cannot_make_tokens(replica: Replica) -> None:
    headers = await replica.operator(OperatorScope.OPERATE)
    answer = await replica.client.post("/operator/v1/tokens", json={"name": "x", "scopes": ["admin"]}, headers=headers)
    assert answer.status_code == 403


async def test_a_revoked_token_is_refused_at_once(replica: Replica) -> None:
    admin = await replica.operator()
    made = await create(replica, admin, "read")
    assert (await replica.client.delete(f"/operator/v1/tokens/{made.id}", headers=admin)).status_code == 204
    assert (await replica.client.get("/operator/v1/teams", headers=bearer(made.token))).status_code == 401


async def test_an_expired_token_is_refused(replica: Replica) -> None:
    admin = await replica.operator()
    made = await create(replica, admin, "read")
    async with replica.context.db.engine.begin() as connection:
        await connection.exec_driver_sql("UPDATE operator_token SET expires_at = now() WHERE name = 'ci'")
    assert (await replica.client.get("/operator/v1/teams", headers=bearer(made.token))).status_code == 401


async def test_no_secret_is_stored(replica: Replica) -> None:
    admin = await replica.operator()
    await declare(replica, admin, document())
    made = await create(replica, admin, "read")
    enrolment = await replica.client.post(
        "/operator/v1/enrolment-tokens", json={"kind": "edge", "subject": "us-east-1"}, headers=admin)
    async with replica.context.db.engine.connect() as connection:
        stored = [str(row) for table in ("operator_token", "enrolment_token", "audit_event")
                  for row in await connection.exec_driver_sql(f"SELECT * FROM {table}")]  # noqa: S608
    secrets = (made.token, enrolment.json()["token"])
    assert not [row for row in stored for secret in secrets if secret[-20:] in row]


async def test_bootstrap_migrates_and_makes_a_token_with_all_scopes(empty_database_url: str, tmp_path: Path) -> None:
    settings = Settings(database_url=empty_database_url, signing_key_file=tmp_path / "key")
    token = await bootstrap(settings)
    async with running_replica(empty_database_url, tmp_path) as replica:
        made = await create(replica, bearer(token), "admin")
        assert made.token.startswith("oper_meridian_local_")


async def test_bootstrap_again_replaces_its_earlier_token(database_url: str, tmp_path: Path) -> None:
    settings = Settings(database_url=database_url, signing_key_file=tmp_path / "key")
    first, second = await bootstrap(settings), await bootstrap(settings)
    async with running_replica(database_url, tmp_path) as replica:
        assert (await replica.client.get("/operator/v1/audit", headers=bearer(first))).status_code == 401
        assert (await replica.client.get("/operator/v1/audit", headers=bearer(second))).status_code == 200


@pytest.mark.parametrize(("kind", "subject", "code", "known"), [
    ("agent", "nowhere-a", "unknown_fleet", "eu-north-1-a, us-east-1-a"),
    ("edge", "nowhere", "unknown_region", "eu-north-1, us-east-1"),
    ("agent", "us-east-1", "unknown_fleet", "eu-north-1-a, us-east-1-a"),
])
async def test_an_enrolment_token_for_a_place_that_is_not_declared_is_refused_and_names_it(
        replica: Replica, kind: str, subject: str, code: str, known: str) -> None:
    admin = await replica.operator()
    await declare(replica, admin, document())
    answer = await replica.client.post(
        "/operator/v1/enrolment-tokens", json={"kind": kind, "subject": subject}, headers=admin)
    assert (answer.status_code, answer.json()["code"]) == (404, code)
    assert f"{subject!r}; there are: {known}" in answer.json()["message"]


@pytest.mark.parametrize(("kind", "subject"), [("agent", "us-east-1-a"), ("edge", "us-east-1")])
async def test_an_enrolment_token_for_a_declared_place_is_made(replica: Replica, kind: str, subject: str) -> None:
    admin = await replica.operator()
    await declare(replica, admin, document())
    answer = await replica.client.post(
        "/operator/v1/enrolment-tokens", json={"kind": kind, "subject": subject}, headers=admin)
    assert answer.status_code == 201

"""Enrolment: a token makes one identity, once."""

from pathlib import Path

import pytest

from control_plane.contracts.clock import ManualClock
from control_plane.contracts.enrolment import EnrolAnswer, EnrolRequest, IdentityKind
from control_plane.contracts.signing import SigningKey
from tests.integration.control_plane.replica import Replica, running_replica


async def enrol(replica: Replica, token: str, key: SigningKey,
                kind: IdentityKind = IdentityKind.EDGE) -> tuple[int, str]:
    asked = EnrolRequest(token=token, kind=kind, public_key=key.public.text)
    answer = await replica.client.post("/enrol/v1", content=asked.model_dump_json())
    body = answer.json()
    return answer.status_code, body.get("identity") or body["code"]


async def test_a_token_turns_a_key_into_an_identity_for_its_subject(replica: Replica) -> None:
    token = await replica.enrolment_token(IdentityKind.AGENT, "us-east-1-a")
    asked = EnrolRequest(token=token, kind=IdentityKind.AGENT, public_key=SigningKey.generate().public.text)
    answer = EnrolAnswer.model_validate_json(
        (await replica.client.post("/enrol/v1", content=asked.model_dump_json())).content)
    assert answer.subject == "us-east-1-a"
    assert answer.identity.startswith("agent_")
    assert [key.key_id for key in answer.control_plane_keys] == [replica.context.signing_key.public.key_id]


async def test_the_same_token_and_key_answer_the_same_identity_again(replica: Replica) -> None:
    token, key = await replica.enrolment_token(IdentityKind.EDGE, "us-east-1"), SigningKey.generate()
    assert await enrol(replica, token, key) == await enrol(replica, token, key)


async def test_a_spent_token_is_refused_to_another_key(replica: Replica) -> None:
    token = await replica.enrolment_token(IdentityKind.EDGE, "us-east-1")
    await enrol(replica, token, SigningKey.generate())
    assert await enrol(replica, token, SigningKey.generate()) == (401, "unauthenticated")


async def test_a_token_for_an_edge_does_not_enrol_an_agent(replica: Replica) -> None:
    token = await replica.enrolment_token(IdentityKind.EDGE, "us-east-1")
    assert await enrol(replica, token, SigningKey.generate(), IdentityKind.AGENT) == (401, "unauthenticated")


async def test_an_invented_token_is_refused(replica: Replica) -> None:
    assert await enrol(replica, "enrol_meridian_local_invented", SigningKey.generate()) == (401, "unauthenticated")


async def test_an_expired_token_is_refused(replica: Replica) -> None:
    token = await replica.enrolment_token(IdentityKind.EDGE, "us-east-1", ttl_s=60)
    async with replica.context.db.engine.begin() as connection:
        await connection.exec_driver_sql("UPDATE enrolment_token SET expires_at = now() - interval '1 second'")
    assert await enrol(replica, token, SigningKey.generate()) == (401, "unauthenticated")


async def test_a_machine_that_kept_its_key_keeps_its_identity_under_a_new_token(replica: Replica) -> None:
    key = SigningKey.generate()
    first = await enrol(replica, await replica.enrolment_token(IdentityKind.EDGE, "us-east-1"), key)
    assert await enrol(replica, await replica.enrolment_token(IdentityKind.EDGE, "us-east-1"), key) == first


async def test_a_key_cannot_become_an_identity_of_another_region(replica: Replica) -> None:
    key = SigningKey.generate()
    await enrol(replica, await replica.enrolment_token(IdentityKind.EDGE, "us-east-1"), key)
    moved = await enrol(replica, await replica.enrolment_token(IdentityKind.EDGE, "eu-north-1"), key)
    assert moved == (409, "key_in_use")


async def test_a_revoked_identity_cannot_enrol_again_with_its_old_token(replica: Replica) -> None:
    token, key = await replica.enrolment_token(IdentityKind.EDGE, "us-east-1"), SigningKey.generate()
    _, identity = await enrol(replica, token, key)
    admin = await replica.operator()
    assert (await replica.client.delete(f"/operator/v1/identities/{identity}", headers=admin)).status_code == 204
    assert await enrol(replica, token, key) == (401, "unauthenticated")


@pytest.mark.parametrize("public_key", ["", "AAAA", "not base64 at all", "é"])
async def test_what_is_no_public_key_is_refused_and_spends_nothing(replica: Replica, public_key: str) -> None:
    token = await replica.enrolment_token(IdentityKind.EDGE, "us-east-1")
    asked = EnrolRequest(token=token, kind=IdentityKind.EDGE, public_key=public_key)
    answer = await replica.client.post("/enrol/v1", content=asked.model_dump_json())
    assert (answer.status_code, answer.json()["code"]) == (400, "bad_public_key")
    assert (await enrol(replica, token, SigningKey.generate()))[0] == 200


async def test_a_revoked_identity_is_refused_once_the_cached_key_is_too_old(database_url: str, tmp_path: Path) -> None:
    clock = ManualClock()
    async with running_replica(database_url, tmp_path, clock) as replica:
        edge = await replica.enrolled(IdentityKind.EDGE)
        body = b'{"digest":"00"}'
        assert (await replica.signed(edge, "/edge/v1/keys/lookup", body)).status_code == 404
        await replica.client.delete(f"/operator/v1/identities/{edge.identity}", headers=await replica.operator())
        clock.advance(5)
        assert (await replica.signed(edge, "/edge/v1/keys/lookup", body)).status_code == 401

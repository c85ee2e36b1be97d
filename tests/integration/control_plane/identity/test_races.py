"""Enrolment and identities under races and absences."""

import asyncio
from pathlib import Path

import pytest

from control_plane.contracts.clock import ManualClock
from control_plane.contracts.enrolment import EnrolRequest, IdentityKind
from control_plane.contracts.signing import SignedRequest, SigningKey
from control_plane.errors import Unauthenticated
from control_plane.identity import cache
from control_plane.identity.cache import Identities
from tests.integration.control_plane.gate import gated
from tests.integration.control_plane.replica import Peer, Replica, running_replica


async def enrol(replica: Replica, token: str, key: SigningKey) -> tuple[int, str | None]:
    asked = EnrolRequest(token=token, kind=IdentityKind.EDGE, public_key=key.public.text)
    answer = await replica.client.post("/enrol/v1", content=asked.model_dump_json())
    return answer.status_code, answer.json().get("identity")


def signed(peer: Peer, clock: ManualClock) -> tuple[SignedRequest, dict[str, str]]:
    request = SignedRequest("POST", "/edge/v1/usage", b"")
    return request, request.sign(peer.identity, peer.key, clock)


async def test_of_two_machines_with_one_token_exactly_one_enrols(replica: Replica) -> None:
    token = await replica.enrolment_token(IdentityKind.EDGE, "us-east-1")
    answers = await asyncio.gather(*(enrol(replica, token, SigningKey.generate()) for _ in range(5)))
    assert sorted(status for status, _ in answers) == [200, 401, 401, 401, 401]


async def test_a_machine_that_asks_twice_at_once_gets_one_identity(replica: Replica) -> None:
    token, key = await replica.enrolment_token(IdentityKind.EDGE, "us-east-1"), SigningKey.generate()
    answers = await asyncio.gather(*(enrol(replica, token, key) for _ in range(5)))
    assert len(set(answers)) == 1
    assert answers[0][0] == 200


async def test_one_key_with_two_tokens_at_once_gets_one_identity(replica: Replica) -> None:
    key = SigningKey.generate()
    tokens = [await replica.enrolment_token(IdentityKind.EDGE, "us-east-1") for _ in range(4)]
    answers = await asyncio.gather(*(enrol(replica, token, key) for token in tokens))
    assert len({identity for _, identity in answers}) == 1


async def test_a_known_machine_is_believed_while_the_database_is_away_but_not_for_long(
        database_url: str, tmp_path: Path) -> None:
    clock = ManualClock()
    async with gated(database_url) as (gate, url), running_replica(url, tmp_path, clock) as replica:
        peer = await replica.enrolled(IdentityKind.EDGE)
        await replica.context.identities.verify(*signed(peer, clock))
        await gate.close()
        machine = await replica.context.identities.verify(*signed(peer, clock))
        assert machine.id == peer.identity
        clock.advance(replica.context.settings.identity_cache_s)
        with pytest.raises(ConnectionError):
            await replica.context.identities.verify(*signed(peer, clock))


async def test_the_cache_is_bounded(replica: Replica, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "MAX_CACHED", 3)
    clock = ManualClock()
    identities = Identities(replica.context.db, clock, 5)
    for _ in range(5):
        await identities.verify(*signed(await replica.enrolled(IdentityKind.EDGE), clock))
    assert len(identities._known) == 3


async def test_another_replica_refuses_a_machine_that_was_never_enrolled(replica: Replica) -> None:
    clock = ManualClock()
    with pytest.raises(Unauthenticated, match="unknown or revoked"):
        await Identities(replica.context.db, clock, 5).verify(*signed(Peer("edge_x", SigningKey.generate()), clock))

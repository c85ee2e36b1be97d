"""Every machine route against every forgery: unsigned, foreign, changed, moved, replayed, early, late, revoked."""

import base64
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from control_plane.contracts.clock import ManualClock
from control_plane.contracts.enrolment import UNKNOWN_IDENTITY, IdentityKind
from control_plane.contracts.problem import Problem
from control_plane.contracts.signing import (
    IDENTITY_HEADER,
    NONCE_HEADER,
    SIGNATURE_HEADER,
    TIME_HEADER,
    SignedRequest,
    SigningKey,
)
from tests.integration.control_plane.replica import Peer, Replica, running_replica
from tests.security.control_plane.doors import MACHINES, Door, doors

MACHINE_DOORS = doors(*MACHINES)
BODY = b"{}"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def replica(database_url: str, tmp_path: Path, clock: ManualClock) -> AsyncIterator[Replica]:
    async with running_replica(database_url, tmp_path, clock) as started:
        yield started


async def rightful(replica: Replica, door: Door) -> Peer:
    """A machine of the kind that the door is for."""
    return await replica.enrolled(IdentityKind(door.guards[0]))


def signature(peer: Peer, door: Door, clock: ManualClock, body: bytes = BODY) -> dict[str, str]:
    return SignedRequest(door.method, door.address, body).sign(peer.identity, peer.key, clock)


async def send(replica: Replica, door: Door, headers: dict[str, str], body: bytes = BODY) -> httpx.Response:
    return await replica.client.request(door.method, door.address, content=body, headers=headers)


def assert_unauthenticated(answer: httpx.Response) -> None:
    assert answer.status_code == 401
    assert Problem.model_validate_json(answer.content).code in {"unauthenticated", UNKNOWN_IDENTITY}


def test_there_are_machine_routes_to_attack() -> None:
    assert {"POST /edge/v1/usage", "POST /edge/v1/sync", "POST /edge/v1/keys/lookup", "POST /agent/v1/sync"} <= {
        str(door) for door in MACHINE_DOORS}


async def test_the_rightful_machine_gets_past_the_door(replica: Replica, clock: ManualClock) -> None:
    for door in MACHINE_DOORS:
        peer = await rightful(replica, door)
        assert (await send(replica, door, signature(peer, door, clock))).status_code not in (401, 403, 500)


async def test_an_unsigned_request_is_refused(replica: Replica) -> None:
    for door in MACHINE_DOORS:
        assert_unauthenticated(await send(replica, door, {}))


@pytest.mark.parametrize("missing", [IDENTITY_HEADER, TIME_HEADER, NONCE_HEADER, SIGNATURE_HEADER])
async def test_a_half_signed_request_is_refused(replica: Replica, clock: ManualClock, missing: str) -> None:
    for door in MACHINE_DOORS:
        headers = signature(await rightful(replica, door), door, clock)
        del headers[missing]
        assert_unauthenticated(await send(replica, door, headers))


async def test_an_identity_that_was_never_enrolled_is_refused(replica: Replica, clock: ManualClock) -> None:
    for door in MACHINE_DOORS:
        stranger = Peer(f"{door.guards[0]}_invented", SigningKey.generate())
        assert_unauthenticated(await send(replica, door, signature(stranger, door, clock)))


async def test_a_signature_by_another_key_is_refused(replica: Replica, clock: ManualClock) -> None:
    for door in MACHINE_DOORS:
        thief = Peer((await rightful(replica, door)).identity, SigningKey.generate())
        assert_unauthenticated(await send(replica, door, signature(thief, door, clock)))


async def test_anothers_valid_signature_does_not_lend_its_identity(replica: Replica, clock: ManualClock) -> None:
    for door in MACHINE_DOORS:
        one, other = await rightful(replica, door), await rightful(replica, door)
        headers = signature(one, door, clock) | {IDENTITY_HEADER: other.identity}
        assert_unauthenticated(await send(replica, door, headers))


async def test_a_changed_body_is_refused(replica: Replica, clock: ManualClock) -> None:
    for door in MACHINE_DOORS:
        headers = signature(await rightful(replica, door), door, clock)
        assert_unauthenticated(await send(replica, door, headers, b'{"changed":true}'))


async def test_an_added_query_is_refused(replica: Replica, clock: ManualClock) -> None:
    for door in MACHINE_DOORS:
        headers = signature(await rightful(replica, door), door, clock)
        answer = await replica.client.request(door.method, f"{door.address}?all=1", content=BODY, headers=headers)
        assert_unauthenticated(answer)


async def test_a_signature_for_another_route_is_refused(replica: Replica, clock: ManualClock) -> None:
    for door in MACHINE_DOORS:
        peer = await rightful(replica, door)
        elsewhere = Door(door.method, f"{door.path}/other", door.guards)
        assert_unauthenticated(await send(replica, door, signature(peer, elsewhere, clock)))


async def test_a_replayed_request_is_refused(replica: Replica, clock: ManualClock) -> None:
    for door in MACHINE_DOORS:
        headers = signature(await rightful(replica, door), door, clock)
        assert (await send(replica, door, headers)).status_code != 401
        assert_unauthenticated(await send(replica, door, headers))


@pytest.mark.parametrize("offset_s", [-61.0, 61.0])
async def test_a_request_from_another_time_is_refused(replica: Replica, clock: ManualClock, offset_s: float) -> None:
    for door in MACHINE_DOORS:
        peer = await rightful(replica, door)
        headers = signature(peer, door, ManualClock(clock.time_s() + offset_s))
        assert_unauthenticated(await send(replica, door, headers))


async def test_a_time_that_is_no_number_does_not_make_a_signature_last_for_ever(replica: Replica) -> None:
    for door in MACHINE_DOORS:
        peer = await rightful(replica, door)
        assert_unauthenticated(await send(replica, door, signature(peer, door, ManualClock(float("nan")))))


@pytest.mark.parametrize(("header", "value"), [
    (TIME_HEADER, "soon"), (TIME_HEADER, "nan"), (TIME_HEADER, "inf"), (SIGNATURE_HEADER, "%%%"),
    (SIGNATURE_HEADER, base64.urlsafe_b64encode(b"\0" * 64).decode()), (NONCE_HEADER, "other"),
    (IDENTITY_HEADER, "x" * 4_000)])
async def test_a_malformed_signature_is_refused(replica: Replica, clock: ManualClock, header: str, value: str) -> None:
    for door in MACHINE_DOORS:
        headers = signature(await rightful(replica, door), door, clock) | {header: value}
        assert_unauthenticated(await send(replica, door, headers))


async def test_the_other_kind_of_machine_is_forbidden(replica: Replica, clock: ManualClock) -> None:
    for door in MACHINE_DOORS:
        (kind,) = {"agent", "edge"} - set(door.guards)
        intruder = await replica.enrolled(IdentityKind(kind))
        answer = await send(replica, door, signature(intruder, door, clock))
        assert (answer.status_code, Problem.model_validate_json(answer.content).code) == (403, "forbidden")


async def test_a_revoked_machine_is_refused_within_5_seconds(replica: Replica, clock: ManualClock) -> None:
    for door in MACHINE_DOORS:
        peer = await rightful(replica, door)
        await send(replica, door, signature(peer, door, clock))
        revoked = await replica.client.delete(
            f"/operator/v1/identities/{peer.identity}", headers=await replica.operator())
        assert revoked.status_code == 204
        clock.advance(5)
        assert_unauthenticated(await send(replica, door, signature(peer, door, clock)))


async def test_an_operators_token_is_no_signature(replica: Replica) -> None:
    for door in MACHINE_DOORS:
        assert_unauthenticated(await send(replica, door, await replica.operator()))

"""The keyring against a real directory: one question a key, none when it is known, an honest answer when it is away."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from control_plane.contracts.clock import ManualClock
from control_plane.contracts.ids import secret_digest
from control_plane.contracts.keys import Principal, Revocation, TeamChange
from edge_api.auth import MAX_REFRESHES, UNKNOWN_S, Keyring
from edge_api.client_address import UNKNOWN_BURST
from edge_api.hot.services import KeyDirectoryAway, TooManyUnknownKeys
from edge_api.identity import ControlPlaneLink
from edge_api.key_store import KeyStore
from edge_api.metrics import Metrics
from tests.integration.edge_api.control_plane import KEY, ControlPlane, principal
from tests.integration.edge_api.waiting import until

DIGEST = secret_digest(KEY)
CLIENT = "203.0.113.7"
REFRESH_S = 60.0


def keyring_at(path: Path, link: ControlPlaneLink, clock: ManualClock, size: int = 100) -> Keyring:
    keyring = Keyring(link, KeyStore(path), clock, Metrics(), size, REFRESH_S)
    keyring.restore()
    return keyring


@pytest.fixture
async def keyring(link: ControlPlaneLink, clock: ManualClock, tmp_path: Path) -> AsyncIterator[Keyring]:
    keyring = keyring_at(tmp_path / "keys.json", link, clock)
    refreshing = asyncio.create_task(keyring.run_refresh())
    yield keyring
    refreshing.cancel()


async def until_asked(control_plane: ControlPlane, times: int) -> None:
    await until(lambda: len(control_plane.lookups) >= times)


async def test_a_key_is_asked_for_once_and_then_known(keyring: Keyring, control_plane: ControlPlane) -> None:
    assert keyring.cached(DIGEST) is None
    assert await keyring.find(DIGEST, CLIENT) == principal()
    assert await keyring.find(DIGEST, CLIENT) == keyring.cached(DIGEST) == principal()
    assert control_plane.lookups == [DIGEST]


async def test_only_digests_are_sent(keyring: Keyring, control_plane: ControlPlane) -> None:
    await keyring.find(DIGEST, CLIENT)
    assert KEY not in str(control_plane.lookups)


async def test_many_requests_at_once_ask_once(keyring: Keyring, control_plane: ControlPlane) -> None:
    control_plane.delay_s = 0.1
    found = await asyncio.gather(*(keyring.find(DIGEST, CLIENT) for _ in range(50)))
    assert found == 50 * [principal()]
    assert control_plane.lookups == [DIGEST]


async def test_a_client_that_leaves_does_not_take_the_answer_from_others(
        keyring: Keyring, control_plane: ControlPlane) -> None:
    control_plane.delay_s = 0.2
    first = asyncio.create_task(keyring.find(DIGEST, CLIENT))
    second = asyncio.create_task(keyring.find(DIGEST, CLIENT))
    await until_asked(control_plane, 1)
    first.cancel()
    assert await second == principal()


async def test_an_unknown_key_is_nobody_and_not_asked_for_again_for_two_seconds(
        keyring: Keyring, control_plane: ControlPlane, clock: ManualClock) -> None:
    assert await keyring.find("nobody", CLIENT) is None
    clock.advance(UNKNOWN_S - 0.1)
    assert await keyring.find("nobody", CLIENT) is None
    assert control_plane.lookups == ["nobody"]
    clock.advance(0.2)
    await keyring.find("nobody", CLIENT)
    assert control_plane.lookups == ["nobody", "nobody"]


async def test_a_key_that_was_just_made_works_after_two_seconds(
        keyring: Keyring, control_plane: ControlPlane, clock: ManualClock) -> None:
    assert await keyring.find("fresh", CLIENT) is None
    control_plane.principals["fresh"] = principal("team_2")
    clock.advance(UNKNOWN_S)
    assert await keyring.find("fresh", CLIENT) == principal("team_2")


async def test_guessing_is_limited_by_client_address(keyring: Keyring, control_plane: ControlPlane) -> None:
    for guess in range(int(UNKNOWN_BURST)):
        assert await keyring.find(f"guess {guess}", CLIENT) is None
    with pytest.raises(TooManyUnknownKeys):
        await keyring.find("one more", CLIENT)
    assert len(control_plane.lookups) == int(UNKNOWN_BURST)
    assert await keyring.find(DIGEST, "203.0.113.8") == principal()


async def test_a_limited_client_may_ask_again_later(keyring: Keyring, clock: ManualClock) -> None:
    for guess in range(int(UNKNOWN_BURST)):
        await keyring.find(f"guess {guess}", CLIENT)
    clock.advance(1.0)
    assert await keyring.find("one more", CLIENT) is None


async def test_known_keys_cost_no_guesses(keyring: Keyring, control_plane: ControlPlane) -> None:
    digests = [f"key {n}" for n in range(3 * int(UNKNOWN_BURST))]
    control_plane.principals.update(dict.fromkeys(digests, principal()))
    for digest in digests:
        assert await keyring.find(digest, CLIENT) == principal()


async def test_a_limited_client_can_still_use_known_keys(keyring: Keyring) -> None:
    await keyring.find(DIGEST, CLIENT)
    for guess in range(int(UNKNOWN_BURST)):
        await keyring.find(f"guess {guess}", CLIENT)
    assert await keyring.find(DIGEST, CLIENT) == principal()


async def test_while_the_directory_is_away_known_keys_work_and_others_cannot_be_judged(
        keyring: Keyring, control_plane: ControlPlane) -> None:
    await keyring.find(DIGEST, CLIENT)
    control_plane.away = True
    assert await keyring.find(DIGEST, CLIENT) == principal()
    for _ in range(2 * int(UNKNOWN_BURST)):  # being away costs the client nothing
        with pytest.raises(KeyDirectoryAway):
            await keyring.find("stranger", CLIENT)
    control_plane.away = False
    assert await keyring.find("stranger", CLIENT) is None


async def test_a_revoked_key_is_refused_at_once_and_for_ever(
        keyring: Keyring, control_plane: ControlPlane, clock: ManualClock) -> None:
    await keyring.find(DIGEST, CLIENT)
    keyring.revoke([Revocation(seq=5, digest=DIGEST)])
    assert keyring.cached(DIGEST) is None
    assert keyring.revocations_after == 5
    control_plane.away = True
    clock.advance(3_600)
    assert await keyring.find(DIGEST, CLIENT) is None


async def test_a_revocation_beats_an_answer_that_is_under_way(keyring: Keyring, control_plane: ControlPlane) -> None:
    control_plane.delay_s = 0.2
    asking = asyncio.create_task(keyring.find(DIGEST, CLIENT))
    await until_asked(control_plane, 1)
    keyring.revoke([Revocation(seq=1, digest=DIGEST)])
    assert await asking is None
    assert keyring.cached(DIGEST) is None


async def test_a_rotated_key_works_until_its_grace_is_over_and_then_ends_whoever_is_away(
        keyring: Keyring, control_plane: ControlPlane, clock: ManualClock) -> None:
    await keyring.find(DIGEST, CLIENT)
    keyring.revoke([Revocation(seq=1, digest=DIGEST, effective_at_s=clock.time_s() + 60)])
    control_plane.away = True
    clock.advance(59.9)
    assert keyring.cached(DIGEST) is not None
    clock.advance(0.2)
    assert keyring.cached(DIGEST) is None
    assert await keyring.find(DIGEST, CLIENT) is None


async def test_a_key_first_seen_in_its_grace_ends_with_it(
        keyring: Keyring, control_plane: ControlPlane, clock: ManualClock) -> None:
    keyring.revoke([Revocation(seq=1, digest=DIGEST, effective_at_s=clock.time_s() + 60)])
    assert await keyring.find(DIGEST, CLIENT) is not None
    control_plane.away = True
    clock.advance(60)
    assert await keyring.find(DIGEST, CLIENT) is None


async def test_a_key_in_its_grace_can_still_be_revoked_at_once(keyring: Keyring, clock: ManualClock) -> None:
    await keyring.find(DIGEST, CLIENT)
    keyring.revoke([Revocation(seq=1, digest=DIGEST, effective_at_s=clock.time_s() + 60)])
    keyring.revoke([Revocation(seq=2, digest=DIGEST)])
    assert await keyring.find(DIGEST, CLIENT) is None


async def test_a_grace_survives_a_restart(
        keyring: Keyring, link: ControlPlaneLink, clock: ManualClock, tmp_path: Path) -> None:
    await keyring.find(DIGEST, CLIENT)
    keyring.revoke([Revocation(seq=1, digest=DIGEST, effective_at_s=clock.time_s() + 60)])
    await keyring.save()
    restarted = keyring_at(tmp_path / "keys.json", link, clock)
    assert restarted.cached(DIGEST) is not None
    clock.advance(60)
    assert restarted.cached(DIGEST) is None
    assert await restarted.find(DIGEST, CLIENT) is None


async def test_a_revocation_never_lengthens_a_key(
        keyring: Keyring, control_plane: ControlPlane, clock: ManualClock) -> None:
    control_plane.principals[DIGEST] = principal(expires_at_s=clock.time_s() + 10)
    await keyring.find(DIGEST, CLIENT)
    keyring.revoke([Revocation(seq=1, digest=DIGEST, effective_at_s=clock.time_s() + 60)])
    clock.advance(10)
    assert keyring.cached(DIGEST) is None


async def test_a_key_of_a_changed_team_is_looked_up_at_once_and_serves_meanwhile(
        keyring: Keyring, control_plane: ControlPlane) -> None:
    await keyring.find(DIGEST, CLIENT)
    control_plane.principals[DIGEST] = principal(regions=["eu-north-1"])
    keyring.change([TeamChange(seq=4, team_id="team_1")])
    assert keyring.cached(DIGEST) == principal()
    await until(lambda: keyring.cached(DIGEST) == principal(regions=["eu-north-1"]))
    assert keyring.changes_after == 4


async def test_many_keys_of_a_changed_team_are_looked_up(keyring: Keyring, control_plane: ControlPlane) -> None:
    digests = [f"key {n}" for n in range(3 * MAX_REFRESHES)]
    control_plane.principals.update(dict.fromkeys(digests, principal()))
    for digest in digests:
        await keyring.find(digest, CLIENT)
    control_plane.principals.update(dict.fromkeys(digests, principal(allowed_models=["a"])))
    keyring.change([TeamChange(seq=1, team_id="team_1")])
    await until(lambda: all(keyring.cached(digest) == principal(allowed_models=["a"]) for digest in digests))


async def test_keys_of_other_teams_are_not_asked_for(keyring: Keyring, control_plane: ControlPlane) -> None:
    await keyring.find(DIGEST, CLIENT)
    keyring.change([TeamChange(seq=1, team_id="team_2")])
    await asyncio.sleep(0.1)
    assert len(control_plane.lookups) == 1


async def test_a_changed_key_is_served_as_it_was_known_while_the_directory_is_away(
        keyring: Keyring, control_plane: ControlPlane) -> None:
    await keyring.find(DIGEST, CLIENT)
    control_plane.away = True
    keyring.change([TeamChange(seq=1, team_id="team_1")])
    await asyncio.sleep(0.2)
    assert await keyring.find(DIGEST, CLIENT) == principal()


async def test_an_answer_from_before_a_change_is_asked_for_again(
        keyring: Keyring, control_plane: ControlPlane, clock: ManualClock) -> None:
    control_plane.delay_s = 0.2  # it reads, then waits
    asking = asyncio.create_task(keyring.find(DIGEST, CLIENT))
    await until_asked(control_plane, 1)
    control_plane.principals[DIGEST] = principal(always_usage=True)
    clock.advance(0.1)
    keyring.change([TeamChange(seq=1, team_id="team_1")])
    assert await asking == principal()

    def used() -> Principal | None:
        return keyring.cached(DIGEST)

    await until(lambda: used() == principal(always_usage=True))


async def test_a_restarted_edge_goes_on_where_the_changes_stood(
        keyring: Keyring, link: ControlPlaneLink, clock: ManualClock, tmp_path: Path) -> None:
    keyring.change([TeamChange(seq=9, team_id="team_1")])
    await keyring.save()
    assert keyring_at(tmp_path / "keys.json", link, clock).changes_after == 9


async def test_an_expired_key_is_refused_for_certain_while_the_directory_is_away(
        keyring: Keyring, control_plane: ControlPlane, clock: ManualClock) -> None:
    control_plane.principals[DIGEST] = principal(expires_at_s=clock.time_s() + 10)
    await keyring.find(DIGEST, CLIENT)
    control_plane.away = True
    clock.advance(10)
    assert await keyring.find(DIGEST, CLIENT) is None


async def test_an_expired_key_is_not_served(keyring: Keyring, control_plane: ControlPlane, clock: ManualClock) -> None:
    control_plane.principals[DIGEST] = principal(expires_at_s=clock.time_s() + 10)
    assert await keyring.find(DIGEST, CLIENT) is not None
    clock.advance(10)
    del control_plane.principals[DIGEST]
    assert keyring.cached(DIGEST) is None
    assert await keyring.find(DIGEST, CLIENT) is None


async def test_a_directory_that_answers_an_expired_key_is_not_believed(
        keyring: Keyring, control_plane: ControlPlane, clock: ManualClock) -> None:
    control_plane.principals[DIGEST] = principal(expires_at_s=clock.time_s() - 1)
    assert await keyring.find(DIGEST, CLIENT) is None


async def test_a_key_in_use_is_confirmed_in_the_background(
        keyring: Keyring, control_plane: ControlPlane, clock: ManualClock) -> None:
    await keyring.find(DIGEST, CLIENT)
    control_plane.principals[DIGEST] = principal(always_usage=True)
    clock.advance(REFRESH_S)
    assert keyring.cached(DIGEST) == principal()
    await until_asked(control_plane, 2)
    await until(lambda: keyring.cached(DIGEST) == principal(always_usage=True))


async def test_a_key_whose_revocation_was_missed_is_dropped_when_it_is_confirmed(
        keyring: Keyring, control_plane: ControlPlane, clock: ManualClock) -> None:
    await keyring.find(DIGEST, CLIENT)
    del control_plane.principals[DIGEST]
    clock.advance(REFRESH_S)
    await until(lambda: keyring.cached(DIGEST) is None)


async def test_a_key_that_cannot_be_confirmed_stays(
        keyring: Keyring, control_plane: ControlPlane, clock: ManualClock) -> None:
    await keyring.find(DIGEST, CLIENT)
    control_plane.away = True
    clock.advance(100 * REFRESH_S)
    assert keyring.cached(DIGEST) == principal()
    await asyncio.sleep(0.1)
    assert keyring.cached(DIGEST) == principal()


async def test_a_restarted_edge_knows_its_keys_without_asking(
        keyring: Keyring, control_plane: ControlPlane, link: ControlPlaneLink, clock: ManualClock, tmp_path: Path,
) -> None:
    await keyring.find(DIGEST, CLIENT)
    keyring.revoke([Revocation(seq=3, digest="gone")])
    await keyring.save()
    control_plane.away = True
    restarted = keyring_at(tmp_path / "keys.json", link, clock)
    assert restarted.cached(DIGEST) == principal()
    assert restarted.revocations_after == 3
    assert await restarted.find("gone", CLIENT) is None


async def test_changes_are_stored_in_the_background(keyring: Keyring, tmp_path: Path) -> None:
    saving = asyncio.create_task(keyring.run_save())
    await keyring.find(DIGEST, CLIENT)
    await until(lambda: (tmp_path / "keys.json").exists())
    assert KeyStore(tmp_path / "keys.json").load().keys == {DIGEST: principal()}
    saving.cancel()


async def test_the_cache_forgets_what_was_used_longest_ago(
        link: ControlPlaneLink, control_plane: ControlPlane, clock: ManualClock, tmp_path: Path) -> None:
    keyring = keyring_at(tmp_path / "keys.json", link, clock, size=2)
    control_plane.principals.update(dict.fromkeys("abc", principal()))
    await keyring.find("a", CLIENT)
    await keyring.find("b", CLIENT)
    keyring.cached("a")
    await keyring.find("c", CLIENT)
    assert [digest for digest in "abc" if keyring.cached(digest)] == ["a", "c"]

"""Identifiers, secrets and digests."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from control_plane.contracts import ids


def test_a_uuid7_carries_its_time_version_and_variant() -> None:
    value = ids.uuid7(1_764_500_000.123)
    assert (value.version, value.variant) == (7, "specified in RFC 4122")
    assert ids.uuid7_time_s(value) == 1_764_500_000.123


@given(st.integers(0, 2**41), st.integers(1, 2**20))
def test_uuid7s_sort_by_time(earlier_ms: int, later_by_ms: int) -> None:
    assert ids.uuid7(earlier_ms / 1000) < ids.uuid7((earlier_ms + later_by_ms) / 1000)


def test_the_day_of_a_uuid7_is_that_of_its_own_time_whenever_it_is_read() -> None:
    before_midnight, after = 1_764_547_199.999, 1_764_547_200.0
    assert str(ids.uuid7_day(ids.uuid7(before_midnight))) == "2025-11-30"
    assert str(ids.uuid7_day(ids.uuid7(after))) == "2025-12-01"


def test_no_two_ids_or_nonces_are_equal() -> None:
    assert len({ids.new_id("team") for _ in range(1000)} | {ids.nonce() for _ in range(1000)}) == 2000


def test_a_new_secret_is_well_formed_and_unlike_any_other() -> None:
    secrets = {ids.new_secret("sk_meridian_local") for _ in range(200)}
    assert len(secrets) == 200
    assert all(ids.is_well_formed_secret(secret) for secret in secrets)


@given(st.data())
def test_one_wrong_character_is_told_by_the_checksum(data: st.DataObject) -> None:
    secret = ids.new_secret("sk_meridian_local")
    position = data.draw(st.integers(len("sk_meridian_local_"), len(secret) - 1))
    wrong = data.draw(st.sampled_from([c for c in ids.BASE62 if c != secret[position]]))
    assert not ids.is_well_formed_secret(secret[:position] + wrong + secret[position + 1:])


@pytest.mark.parametrize("text", ["", "sk", "sk_meridian_local_", "sk_meridian_local_" + "a" * 38, "_" * 50, "é" * 40])
def test_strangers_are_not_well_formed(text: str) -> None:
    assert not ids.is_well_formed_secret(text)


def test_a_secret_of_another_prefix_has_another_checksum() -> None:
    secret = ids.new_secret("sk_meridian_local")
    assert not ids.is_well_formed_secret(secret.replace("sk_meridian_local", "oper_meridian_local"))


def test_a_hint_shows_four_characters_of_the_secret_and_no_more() -> None:
    secret = ids.new_secret("sk_meridian_local")
    assert ids.secret_hint(secret) == f"sk_meridian_local_…{secret[-4:]}"


def test_the_digest_is_sha256_of_text_or_bytes() -> None:
    expected = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"
    assert ids.secret_digest("hello") == ids.secret_digest(b"hello") == expected


def test_text_that_is_no_unicode_has_a_digest_of_its_own() -> None:
    assert ids.secret_digest("\ud800") != ids.secret_digest("\udfff")


def test_jitter_stays_within_its_share() -> None:
    drawn = [ids.jitter(10.0, 0.2) for _ in range(500)]
    assert 8.0 <= min(drawn) < max(drawn) <= 12.0

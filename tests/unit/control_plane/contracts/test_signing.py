"""Who signed a request, and whether it is whole."""

import stat
from pathlib import Path

import pytest

from control_plane.contracts.clock import ManualClock
from control_plane.contracts.signing import (
    NONCE_HEADER,
    SIGNATURE_HEADER,
    TIME_HEADER,
    BadSignature,
    Nonces,
    NotSigned,
    SignedRequest,
    SigningKey,
    VerifyKey,
    claimed_identity,
    write_private,
)

REQUEST = SignedRequest("POST", "/edge/v1/usage?x=1", b'{"frames":[]}')


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def key() -> SigningKey:
    return SigningKey.generate()


def test_a_signed_request_is_accepted_once(key: SigningKey, clock: ManualClock) -> None:
    headers, nonces = REQUEST.sign("edge_1", key, clock), Nonces()
    REQUEST.check(headers, key.public, clock, nonces)
    assert claimed_identity(headers) == "edge_1"
    with pytest.raises(BadSignature, match="nonce"):
        REQUEST.check(headers, key.public, clock, nonces)


@pytest.mark.parametrize("changed", [
    SignedRequest("GET", REQUEST.target, REQUEST.body),
    SignedRequest(REQUEST.method, "/edge/v1/usage?x=2", REQUEST.body),
    SignedRequest(REQUEST.method, REQUEST.target, REQUEST.body + b" "),
])
def test_a_changed_request_is_refused(changed: SignedRequest, key: SigningKey, clock: ManualClock) -> None:
    headers = REQUEST.sign("edge_1", key, clock)
    with pytest.raises(BadSignature, match="does not fit"):
        changed.check(headers, key.public, clock, Nonces())


def test_another_key_and_another_claimed_identity_are_refused(key: SigningKey, clock: ManualClock) -> None:
    headers = REQUEST.sign("edge_1", key, clock)
    with pytest.raises(BadSignature):
        REQUEST.check(headers, SigningKey.generate().public, clock, Nonces())
    with pytest.raises(BadSignature):
        REQUEST.check(headers | {"x-meridian-identity": "edge_2"}, key.public, clock, Nonces())


@pytest.mark.parametrize("away_s", [61, -61])
def test_a_time_too_far_away_is_refused(away_s: float, key: SigningKey, clock: ManualClock) -> None:
    headers = REQUEST.sign("edge_1", key, clock)
    clock.advance(away_s)
    with pytest.raises(BadSignature, match="61 s away"):
        REQUEST.check(headers, key.public, clock, Nonces())


def test_a_time_within_a_minute_is_accepted(key: SigningKey, clock: ManualClock) -> None:
    headers = REQUEST.sign("edge_1", key, clock)
    clock.advance(59)
    REQUEST.check(headers, key.public, clock, Nonces())


@pytest.mark.parametrize("time_s", ["nan", "inf", "-inf"])
def test_no_signer_can_make_a_signature_that_never_ends(time_s: str, key: SigningKey, clock: ManualClock) -> None:
    class Never(ManualClock):
        def time_s(self) -> float:
            return float(time_s)

    headers = REQUEST.sign("edge_1", key, Never())
    with pytest.raises(BadSignature):
        REQUEST.check(headers, key.public, clock, Nonces())


@pytest.mark.parametrize(("header", "value"), [
    (TIME_HEADER, "yesterday"), (TIME_HEADER, "nan"), (TIME_HEADER, "inf"), (NONCE_HEADER, "other"),
    (SIGNATURE_HEADER, "!"), (SIGNATURE_HEADER, "AAAA"),
])
def test_a_malformed_header_is_refused(header: str, value: str, key: SigningKey, clock: ManualClock) -> None:
    headers = REQUEST.sign("edge_1", key, clock) | {header: value}
    with pytest.raises(BadSignature):
        REQUEST.check(headers, key.public, clock, Nonces())


@pytest.mark.parametrize("missing", [TIME_HEADER, NONCE_HEADER, SIGNATURE_HEADER, "x-meridian-identity"])
def test_a_missing_header_means_not_signed(missing: str, key: SigningKey, clock: ManualClock) -> None:
    headers = REQUEST.sign("edge_1", key, clock)
    del headers[missing]
    with pytest.raises(NotSigned):
        claimed_identity(headers)


def test_nonces_are_bounded_and_forget_the_oldest_first() -> None:
    nonces = Nonces(limit=2)
    assert [nonces.is_first(nonce) for nonce in "aabc"] == [True, False, True, True]
    assert nonces.is_first("a")
    assert not nonces.is_first("c")


def test_a_key_file_is_made_once_and_only_its_owner_may_read_it(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "key"
    first, second = SigningKey.load_or_create(path), SigningKey.load_or_create(path)
    assert first.public.raw == second.public.raw
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [entry.name for entry in path.parent.iterdir()] == ["key"]


def test_write_private_replaces_the_whole_content(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    write_private(path, b"long content")
    write_private(path, b"short")
    assert path.read_bytes() == b"short"


def test_a_public_key_survives_its_text(key: SigningKey) -> None:
    again = VerifyKey.from_text(key.public.text)
    assert (again.key_id, again.raw) == (key.public.key_id, key.public.raw)
    assert again.verify(b"m", key.sign(b"m"))
    assert not again.verify(b"n", key.sign(b"m"))


@pytest.mark.parametrize("text", ["", "AAAA", "no key at all", "é"])
def test_text_that_is_no_key_is_refused(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        VerifyKey.from_text(text)

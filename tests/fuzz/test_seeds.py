"""Every seed of every fuzzer, and mutations of them that need no luck: a sample of what a campaign does for long."""

from contextlib import closing

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from control_plane.contracts.usage import Outcome
from tests.fuzz.harnesses import HARNESSES, MAX_BYTES, NEXT, upstream
from tests.fuzz.requests_read import hot_requests
from tests.fuzz.seeds import ASK, CLIENT, SEEDS, STREAMED, WORDS, chunks, post
from tests.fuzz.small_edge import STREAM, FuzzedEdge, chunked

OFTEN = settings(max_examples=150, deadline=2_000, suppress_health_check=[HealthCheck.too_slow])


@pytest.mark.parametrize("name", HARNESSES)
def test_no_seed_breaks_a_promise(name: str) -> None:
    for seed in SEEDS[name]:
        HARNESSES[name](seed)


@pytest.mark.parametrize("name", HARNESSES)
def test_every_seed_fits_into_what_a_campaign_tries(name: str) -> None:
    assert max(map(len, SEEDS[name])) <= MAX_BYTES


@pytest.mark.parametrize("name", HARNESSES)
@OFTEN
@given(data=st.data())
def test_no_mutation_of_a_seed_breaks_a_promise(name: str, data: st.DataObject) -> None:
    mutated = bytearray(data.draw(st.sampled_from(SEEDS[name])))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(mutated)))
        taken = data.draw(st.integers(0, 3))
        mutated[at:at + taken] = data.draw(st.one_of(st.binary(max_size=4), st.sampled_from(WORDS)))
    HARNESSES[name](bytes(mutated))


@pytest.mark.parametrize("name", HARNESSES)
@OFTEN
@given(noise=st.binary(max_size=400))
def test_no_noise_breaks_a_promise(name: str, noise: bytes) -> None:
    HARNESSES[name](noise)


@OFTEN
@given(st.lists(st.sampled_from(CLIENT), min_size=1, max_size=4), st.integers(0, 255), st.integers(0, 8))
def test_no_order_of_requests_breaks_a_promise(sent: list[bytes], cut: int, fault: int) -> None:
    HARNESSES["client"](bytes([fault, cut, 0]) + b"".join(sent))


@pytest.mark.parametrize(("sent", "count"), [
    (b"", 0), (ASK, 1), (ASK + STREAMED, 2), (ASK[:-1], 0), (b"\r\n" + ASK, 1),
    (chunks("/v1/chat/completions", {}, b";a=b", b"x: y\r\n") + ASK, 2),
    (post("/v1/chat/completions", {}, b"transfer-encoding: chunked\r\n") + ASK, 0),
    (post("/v1/chat/completions", {}, b"content-length: 2\r\n") + ASK, 0), (post("/v1/nothing", {}) + ASK, 1),
    (post("/v1/chat/completions", {}, b"x: a\r\n b\r\n") + ASK, 0), (ASK.replace(b"\r\n", b"\n") + ASK, 0),
    (chunks("/v1/chat/completions", {}, version=b"1.0") + ASK, 0), (ASK.replace(b"POST", b"GET") + ASK, 1),
])
def test_the_strict_reader_counts_what_is_beyond_doubt(sent: bytes, count: int) -> None:
    assert hot_requests(sent) == count


def test_the_seeds_reach_streams_that_go_on_elsewhere() -> None:
    cut = b"\x41\0" + chunked(STREAM)[:420] + NEXT + chunked(STREAM)
    assert cut in SEEDS["upstream"]
    with closing(FuzzedEdge()) as edge:
        upstream(cut, edge)
    [record] = edge.ledger.records
    assert (record.outcome, record.resumes, record.completion_tokens) == (Outcome.COMPLETED, 1, 3)

"""What an unsuccessful answer of a datacenter means."""

import pytest

from edge_api import errors
from edge_api.dialects.base import Upstream
from edge_api.errors import Refusal
from edge_api.hot.exchange import TRANSITIONS, Phase
from edge_api.hot.failure import Failure, FailureKind, give_up, judge, judge_stream_error, may_go_elsewhere


@pytest.mark.parametrize(("status", "kind"), [
    (429, FailureKind.OVERLOADED), (503, FailureKind.OVERLOADED), (529, FailureKind.OVERLOADED),
    (500, FailureKind.BROKEN), (502, FailureKind.BROKEN), (404, FailureKind.NOT_SERVED), (401, FailureKind.BROKEN),
    (302, FailureKind.BROKEN),
])
def test_what_is_the_datacenters_fault_may_go_elsewhere(status: int, kind: FailureKind) -> None:
    judged = judge(status, {}, b"")
    assert isinstance(judged, Failure)
    assert (judged.kind, may_go_elsewhere([judged])) == (kind, True)


@pytest.mark.parametrize(("failure", "counts"), [
    (Failure(FailureKind.LOST), True), (Failure(FailureKind.NOT_SERVED, 404), True),
    (Failure(FailureKind.BROKEN, 502), True), (Failure(FailureKind.BROKEN, 500), False),
    (Failure(FailureKind.OVERLOADED, 503), False), (Failure(FailureKind.SLOW), False),
    (Failure(FailureKind.CROWDED), False), (Failure(FailureKind.BROKEN, 500, is_shared=True), True),
])
def test_only_a_dead_datacenter_counts_against_itself(failure: Failure, counts: bool) -> None:
    assert failure.counts_against_datacenter is counts


REFUSALS = {
    "flat": (b'{"message":"bad","type":"Bad Request","code":400}', errors.INVALID_VALUE, "bad", None),
    "openai": (b'{"error":{"message":"bad","param":"tools","code":400}}', errors.INVALID_VALUE, "bad", "tools"),
    "unsupported": (b'{"message":"Validation: Unsupported parameter(s): `bogus`"}', errors.UNSUPPORTED_PARAMETER,
                    "Validation: Unsupported parameter(s): `bogus`", "bogus"),
    "too long": (b'{"message":"This model\'s maximum context length is 8192 tokens"}',
                 errors.CONTEXT_LENGTH_EXCEEDED, "This model's maximum context length is 8192 tokens", None),
    "no JSON": (b"<html>", errors.INVALID_VALUE, "the engine refused the request", None),
    "odd JSON": (b'{"message":5}', errors.INVALID_VALUE, "the engine refused the request", None),
}


@pytest.mark.parametrize("kind", REFUSALS)
def test_a_request_shaped_refusal_is_told_in_our_shape(kind: str) -> None:
    body, fault, message, param = REFUSALS[kind]
    judged = judge(400, {}, body)
    assert isinstance(judged, Refusal)
    assert (judged.fault, judged.message, judged.param) == (fault, message, param)


def test_a_refusal_keeps_its_status() -> None:
    judged = judge(422, {}, b'{"message":"schema"}')
    assert isinstance(judged, Refusal)
    assert judged.status == 422


def test_a_long_message_is_cut() -> None:
    judged = judge(400, {}, b'{"message":"' + b"x" * 50_000 + b'"}')
    assert isinstance(judged, Refusal)
    assert len(judged.message) == 2000


def test_overload_everywhere_is_429_with_the_shortest_wait() -> None:
    refused = give_up([Failure(FailureKind.OVERLOADED, 503, 9.0), Failure(FailureKind.OVERLOADED, 529, 4.0)])
    assert refused.status == 429
    assert refused.retry_after_s is not None
    assert 4.0 <= refused.retry_after_s <= 6.0


def test_overload_and_something_worse_is_502() -> None:
    assert give_up([Failure(FailureKind.LOST), Failure(FailureKind.OVERLOADED, 503)]).status == 502


def test_a_full_edge_is_503_with_a_wait() -> None:
    refused = give_up([Failure(FailureKind.CROWDED), Failure(FailureKind.CROWDED)])
    assert (refused.status, refused.fault.code) == (503, "edge_at_capacity")
    assert {name for name, _ in refused.headers()} == {b"x-should-retry", b"retry-after", b"retry-after-ms"}


def test_a_full_edge_and_overload_are_429() -> None:
    assert give_up([Failure(FailureKind.CROWDED), Failure(FailureKind.OVERLOADED, 503)]).status == 429


@pytest.mark.parametrize(("failures", "retry"), [
    ([Failure(FailureKind.BROKEN, 500)], b"false"), ([Failure(FailureKind.BROKEN, 500)] * 2, b"false"),
    ([Failure(FailureKind.LOST), Failure(FailureKind.BROKEN, 500)], b"true"),
    ([Failure(FailureKind.BROKEN, 502), Failure(FailureKind.BROKEN, 500)], b"true"),
    ([Failure(FailureKind.OVERLOADED, 503), Failure(FailureKind.BROKEN, 500)], b"true"),
    ([Failure(FailureKind.BROKEN, 504)], b"true"), ([Failure(FailureKind.BROKEN, 200)] * 2, b"true"),
    ([Failure(FailureKind.CROWDED), Failure(FailureKind.BROKEN, 500)], b"true"),
    ([Failure(FailureKind.BROKEN, 500, is_shared=True), Failure(FailureKind.BROKEN, 500)], b"true")])
def test_only_a_request_that_broke_whatever_answered_is_not_to_be_repeated(
        failures: list[Failure], retry: bytes) -> None:
    refused = give_up(failures)
    assert (refused.status, dict(refused.headers())[b"x-should-retry"]) == (502, retry)


def test_a_500_that_others_met_as_well_does_not_end_the_search() -> None:
    shared = Failure(FailureKind.BROKEN, 500, is_shared=True)
    assert may_go_elsewhere([shared, Failure(FailureKind.BROKEN, 500)])
    assert not may_go_elsewhere([Failure(FailureKind.BROKEN, 500)] * 2)


def failure(code: int | str | None) -> Failure:
    """What an error event with that code means, which is no refusal."""
    judged = judge_stream_error(code)
    assert isinstance(judged, Failure)
    return judged


def test_an_error_event_without_a_code_is_no_plain_500() -> None:
    assert not failure(None).is_plain_500


@pytest.mark.parametrize(("message", "fault"), [
    ("the schema is none", errors.INVALID_VALUE),
    ("This model's maximum context length is 8192 tokens.", errors.CONTEXT_LENGTH_EXCEEDED)])
def test_an_error_event_may_refuse_the_request(message: str, fault: errors.Fault) -> None:
    judged = judge_stream_error(400, message)
    assert isinstance(judged, Refusal)
    assert (judged.fault, judged.message, judged.fault.retry) == (fault, message, False)


def test_slowness_is_504() -> None:
    assert give_up([Failure(FailureKind.LOST), Failure(FailureKind.SLOW)]).status == 504


@pytest.mark.parametrize(("code", "kind"), [
    (503, FailureKind.OVERLOADED), ("503", FailureKind.OVERLOADED), (500, FailureKind.BROKEN),
    ("bad", FailureKind.BROKEN), (None, FailureKind.BROKEN),
])
def test_an_error_as_first_event_is_judged_by_its_code(code: int | str | None, kind: FailureKind) -> None:
    assert failure(code).kind is kind


def test_a_wait_that_is_no_number_is_ignored() -> None:
    judged = judge(503, {b"retry-after": b"Wed, 21 Oct 2026 07:28:00 GMT"}, b"")
    assert isinstance(judged, Failure)
    assert judged.retry_after_s is None


def test_every_phase_of_a_request_leads_to_its_end() -> None:
    for phase in Phase:
        assert phase is Phase.DONE or Phase.DONE in TRANSITIONS[phase]
    assert not TRANSITIONS[Phase.DONE]


@pytest.mark.parametrize(("statuses", "may"), [
    ([500], True), ([500, 500], False), ([503, 500], True), ([502, 502], True), ([500, 503], True),
    ([500, 503, 500], False)])
def test_a_request_that_may_be_what_breaks_datacenters_is_tried_in_one_more(statuses: list[int], may: bool) -> None:
    judged = [judge(status, {}, b"") for status in statuses]
    assert may_go_elsewhere([failure for failure in judged if isinstance(failure, Failure)]) is may


def test_a_prompt_that_was_accepted_is_never_sent_again() -> None:
    assert not may_go_elsewhere([Failure(FailureKind.SLOW)])


def test_what_an_engine_does_not_implement_is_the_requests_own_fault() -> None:
    refused = judge(501, {}, b'{"message":"Validation: `functions` is deprecated.","type":"x","code":501}')
    assert isinstance(refused, Refusal)
    assert (refused.status, refused.fault, refused.param) == (400, errors.UNSUPPORTED_PARAMETER, "functions")


def test_a_model_that_no_datacenter_serves_for_embeddings_makes_none() -> None:
    refused = give_up([Failure(FailureKind.NOT_SERVED, 404)] * 2, Upstream.EMBEDDINGS)
    assert (refused.fault, refused.param) == (errors.MODEL_NOT_FOUND, "model")


def test_a_model_that_no_datacenter_serves_for_chat_may_come_back() -> None:
    assert give_up([Failure(FailureKind.NOT_SERVED, 404)] * 2).fault is errors.UPSTREAM_UNAVAILABLE

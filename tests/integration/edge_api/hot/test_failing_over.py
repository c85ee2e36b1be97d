"""A datacenter that fails before anything of it was answered: who is asked next, and what the client sees."""

import asyncio
import time
from dataclasses import replace

import pytest

from control_plane.contracts.usage import Attempt, Outcome
from edge_api.hot.services import Limits
from tests.integration.edge_api.hot.conftest import HOME, LIMITS, OTHER, EdgeUnderTest, ejections
from tests.integration.edge_api.hot.datacenter import (
    DONE,
    Datacenter,
    Script,
    Upcall,
    chunk,
    refuses,
    streams,
    whole_answer,
)

ERROR_EVENT = b'data: {"error":{"message":"no instances","type":"x","code":503}}\n\n'


async def reset(call: Upcall) -> None:
    call.reset()


async def truncated(call: Upcall) -> None:
    await call.answer(200, b'{"id":"chatcmpl-1","choices":[')


async def garbage(call: Upcall) -> None:
    call.writer.write(b"SSH-2.0-nothing\r\n\r\n")


async def head_then_reset(call: Upcall) -> None:
    await call.begin_stream()
    call.reset()


FAILING = {
    "reset": (reset, 0),
    "an answer that is no HTTP": (garbage, 0),
    "500": (refuses(500), 500),
    "503": (refuses(503), 503),
    "529": (refuses(529), 529),
    "429": (refuses(429), 429),
    "404, for its workers are dead": (
        refuses(404, {"message": "Model not found", "type": "Not Found", "code": 404}), 404),
}


@pytest.mark.parametrize("kind", FAILING)
async def test_another_datacenter_answers_when_home_fails(edge: EdgeUnderTest, home: Datacenter, kind: str) -> None:
    home.script, status = FAILING[kind]
    edge.prefer_home()
    answer = await edge.client.ask()
    assert answer.status == 200
    record = await edge.record()
    assert record.attempts == [Attempt(HOME, status, failed=True), Attempt(OTHER, 200)]
    assert record.datacenter_id == OTHER


@pytest.mark.parametrize("script", [
    reset, head_then_reset, refuses(503), streams(ERROR_EVENT, DONE), streams(DONE), streams(),
    streams(b": keep-alive\n\n", ERROR_EVENT)])
async def test_a_stream_that_fails_before_its_first_event_goes_elsewhere(
        edge: EdgeUnderTest, home: Datacenter, script: object) -> None:
    home.script = script  # type: ignore[assignment]
    edge.prefer_home()
    answer = await edge.client.ask(stream=True)
    assert answer.text == " the quick fox"
    assert [attempt.datacenter_id for attempt in (await edge.record()).attempts] == [HOME, OTHER]


async def test_a_refused_connection_goes_elsewhere(edge: EdgeUnderTest, home: Datacenter) -> None:
    edge.prefer_home()
    await home.close()
    assert (await edge.client.ask(stream=True)).text == " the quick fox"


async def test_a_truncated_json_answer_goes_elsewhere(edge: EdgeUnderTest, home: Datacenter) -> None:
    home.script = truncated
    edge.prefer_home()
    assert (await edge.client.ask()).json["choices"]


async def test_a_retry_has_the_same_request_and_the_next_number(
        edge: EdgeUnderTest, home: Datacenter, other: Datacenter) -> None:
    home.script = refuses(503)
    edge.prefer_home()
    await edge.client.ask()
    first, second = home.seen[0].headers["x-request-id"], other.seen[0].headers["x-request-id"]
    assert (first.split(".")[0], first.split(".")[1]) == (second.split(".")[0], "1")
    assert second.endswith(".2")


async def test_a_drained_datacenter_is_no_refuge(edge: EdgeUnderTest, home: Datacenter, other: Datacenter) -> None:
    home.script = refuses(500)
    edge.route_to(us_east_1=1, eu_north_1=0)
    assert (await edge.client.ask()).status == 502
    assert not other.seen


async def test_overload_everywhere_is_429_and_says_when_to_come_back(
        edge: EdgeUnderTest, home: Datacenter, other: Datacenter) -> None:
    home.script, other.script = refuses(503, headers="retry-after: 9\r\n"), refuses(529, headers="retry-after: 4\r\n")
    edge.prefer_home()
    answer = await edge.client.ask()
    assert (answer.status, answer.error["code"]) == (429, "capacity_exhausted")
    assert 4000 <= int(answer.headers["retry-after-ms"]) <= 6000
    assert 4 <= int(answer.headers["retry-after"]) <= 6
    assert answer.headers["x-should-retry"] == "true"


async def test_retry_after_is_never_beyond_what_the_sdks_obey(edge: EdgeUnderTest, home: Datacenter) -> None:
    home.script = refuses(429, headers="retry-after: 86400\r\n")
    assert (await edge.client.ask()).headers["retry-after"] == "120"


@pytest.mark.parametrize("status", [500, 502, 504, 301, 401, 403, 404])
async def test_failure_everywhere_is_502_without_the_datacenters_words(
        edge: EdgeUnderTest, home: Datacenter, other: Datacenter, status: int) -> None:
    home.script = other.script = refuses(status, {"message": "secret inside", "code": status})
    edge.prefer_home()
    answer = await edge.client.ask()
    assert (answer.status, answer.error["code"]) == (502, "upstream_unavailable")
    assert b"secret" not in answer.body


async def test_failure_everywhere_is_one_record_that_costs_nothing(
        edge: EdgeUnderTest, home: Datacenter, other: Datacenter) -> None:
    home.script = other.script = refuses(500)
    edge.prefer_home()
    await edge.client.ask()
    record = await edge.record()
    assert (record.outcome, record.http_status, record.cost_usd) == (Outcome.UPSTREAM_LOST, 502, "0")
    assert len(record.attempts) == 2


async def test_a_request_shaped_refusal_is_passed_on_and_not_repeated(
        edge: EdgeUnderTest, home: Datacenter, other: Datacenter) -> None:
    home.script = refuses(400, {"message": "Validation: Unsupported parameter(s): `bogus`", "type": "Bad Request",
                                "code": 400})
    edge.prefer_home()
    answer = await edge.client.ask(stream=True)
    assert (answer.status, answer.error["code"], answer.error["param"]) == (400, "unsupported_parameter", "bogus")
    assert (len(home.seen), len(other.seen)) == (1, 0)
    assert (await edge.record()).cost_usd == "0"


async def test_one_tenants_500_does_not_eject_the_datacenter(edge: EdgeUnderTest, home: Datacenter) -> None:
    home.script = refuses(500)
    edge.prefer_home()
    for _ in range(6):
        await edge.client.ask()
    seen = len(home.seen)
    await edge.client.ask()
    assert len(home.seen) == seen + 1


async def test_datacenters_that_fail_everybody_are_no_requests_fault(
        edge: EdgeUnderTest, home: Datacenter, other: Datacenter) -> None:
    """An engine without a worker answers plain 500s to whatever it is asked."""
    home.script = other.script = refuses(503)
    edge.route_to(us_east_1=100, eu_north_1=100)
    await edge.client.ask()
    home.script = other.script = refuses(500)
    answer = await edge.client.ask()
    assert (answer.status, answer.headers["x-should-retry"]) == (502, "true")


async def test_a_request_that_breaks_every_datacenter_is_tried_in_two(
        edge: EdgeUnderTest, home: Datacenter, other: Datacenter) -> None:
    home.script = other.script = refuses(500)
    edge.route_to(us_east_1=10_000, eu_north_1=100, ap_south_1=1)
    answer = await edge.client.ask(stream=True)
    assert (answer.status, answer.error["code"]) == (502, "upstream_unavailable")
    assert len((await edge.record()).attempts) == 2


async def test_a_request_that_breaks_every_datacenter_after_it_was_accepted_is_told_so_in_its_stream(
        edge: EdgeUnderTest, home: Datacenter, other: Datacenter) -> None:
    home.script = other.script = streams(b'data: {"error":{"message":"x","code":500}}\n\n')
    edge.route_to(us_east_1=10_000, eu_north_1=100, ap_south_1=1)
    answer = await edge.client.ask(stream=True)
    [error] = answer.events
    assert error["error"]["code"] == "upstream_unavailable"
    assert error["error"]["metadata"]["retryable"] is False
    record = await edge.record()
    assert (len(record.attempts), record.cost_usd) == (2, "0")


async def test_the_first_byte_deadline_is_504_and_the_prompt_is_not_sent_again(
        edge: EdgeUnderTest, home: Datacenter, other: Datacenter) -> None:
    abandoned = asyncio.Event()

    async def silent(call: Upcall) -> None:
        await call.until_abandoned()
        abandoned.set()

    home.script = silent
    edge.prefer_home()
    answer = await edge.client.ask(stream=True)
    assert (answer.status, answer.error["code"]) == (504, "timeout")
    await asyncio.wait_for(abandoned.wait(), 2)
    assert not other.seen


async def test_a_dead_pooled_connection_is_replaced_without_a_failure(edge: EdgeUnderTest, home: Datacenter) -> None:
    calls = 0

    async def dies_when_reused(call: Upcall) -> None:
        nonlocal calls
        calls += 1
        if calls == 2:
            call.reset()
        else:
            await call.answer(200, whole_answer("x"))

    home.script = dies_when_reused
    assert [(await edge.client.ask()).status for _ in range(2)] == [200, 200]
    assert edge.records()[1].attempts == [Attempt(HOME, 200)]
    assert home.connections == 2


async def test_a_connection_that_the_datacenter_closed_is_not_used_again(edge: EdgeUnderTest, home: Datacenter) -> None:
    async def closes(call: Upcall) -> None:
        await call.answer(200, whole_answer("x"), "connection: close\r\n")

    home.script = closes
    for _ in range(3):
        assert (await edge.client.ask()).status == 200
    assert home.connections == 3


async def test_an_answer_that_ends_with_the_connection_is_whole(edge: EdgeUnderTest, home: Datacenter) -> None:
    async def unframed(call: Upcall) -> None:
        call.writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"
                          + chunk(" a", [1], completion=1) + chunk("", [], finish="stop", completion=1) + DONE)
        await call.writer.drain()
        call.writer.close()

    home.script = unframed
    assert (await edge.client.ask(stream=True)).events[-1] == "[DONE]"


async def test_retries_are_bounded_when_everything_fails(
        edge: EdgeUnderTest, home: Datacenter, other: Datacenter) -> None:
    home.script = other.script = refuses(500)
    edge.prefer_home()
    for _ in range(100):
        await edge.client.ask()
    assert len(home.seen) + len(other.seen) <= 120


async def test_an_unreachable_datacenter_is_given_up_in_time(edge: EdgeUnderTest) -> None:
    edge.ports[HOME] = 9  # discard: nothing listens
    edge.route_to(us_east_1=1)
    begun_s = time.monotonic()
    assert (await edge.client.ask()).status == 502
    assert time.monotonic() - begun_s < 2


async def test_nothing_stays_open_after_failures(edge: EdgeUnderTest, home: Datacenter) -> None:
    home.script = refuses(503)
    edge.prefer_home()
    for streamed in (True, False):
        await edge.client.ask(stream=streamed)
    assert edge.open_requests.counts() == {HOME: 0, OTHER: 0}


@pytest.mark.parametrize("streamed", [True, False])
async def test_a_request_that_breaks_every_datacenter_is_not_to_be_repeated(
        edge: EdgeUnderTest, home: Datacenter, other: Datacenter, streamed: bool) -> None:
    home.script = other.script = refuses(500)
    edge.prefer_home()
    answer = await edge.client.ask(stream=streamed)
    assert (answer.status, answer.headers["x-should-retry"], answer.headers.get("retry-after")) == (502, "false", None)


@pytest.mark.parametrize("script", [head_then_reset, streams()])
async def test_a_stream_that_met_a_dead_datacenter_after_its_head_may_be_repeated(
        edge: EdgeUnderTest, home: Datacenter, other: Datacenter, script: Script) -> None:
    home.script, other.script = script, refuses(500)
    edge.prefer_home()
    [error] = (await edge.client.ask(stream=True)).events
    assert (error["choices"][0]["finish_reason"], error["error"]["metadata"]["retryable"]) == ("error", True)


@pytest.mark.parametrize("script", [reset, refuses(503), refuses(502)])
async def test_a_request_that_met_a_dead_datacenter_may_be_repeated(
        edge: EdgeUnderTest, home: Datacenter, other: Datacenter, script: Script) -> None:
    home.script, other.script = script, refuses(500)
    edge.prefer_home()
    answer = await edge.client.ask(stream=True)
    assert (answer.status, answer.headers["x-should-retry"]) == (502, "true")


async def test_a_lost_datacenter_is_ejected(edge: EdgeUnderTest, home: Datacenter) -> None:
    home.script = reset
    await edge.client.ask()
    assert ejections(edge, HOME) == 1


class TestFullEdge:
    @pytest.fixture
    def limits(self) -> Limits:
        return replace(LIMITS, pool_max_open=0)

    async def test_an_edge_without_a_connection_left_says_503(self, edge: EdgeUnderTest, home: Datacenter) -> None:
        answer = await edge.client.ask()
        assert (answer.status, answer.error["code"]) == (503, "edge_at_capacity")
        assert "retry-after" in answer.headers
        assert not home.seen

    async def test_an_edge_without_a_connection_left_ejects_nobody(self, edge: EdgeUnderTest, home: Datacenter) -> None:
        for _ in range(20):
            await edge.client.ask()
        assert ejections(edge, HOME) == 0

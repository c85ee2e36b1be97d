"""What a client gets of a healthy datacenter, and what is metered of it."""

import asyncio
from typing import Any

import pytest

from control_plane.contracts.pricing import rate, usd_text
from control_plane.contracts.usage import MeterSource, Outcome, UsageOpen
from edge_api.dialects.plain import KEEP_ALIVE
from tests.integration.edge_api.hot.conftest import HOME, OTHER, EdgeUnderTest
from tests.integration.edge_api.hot.datacenter import (
    DONE,
    Datacenter,
    Upcall,
    chunk,
    final_usage,
    refuses,
    stream_of,
    streams,
    whole_answer,
)
from tests.unit.edge_api.builders import PRICE


async def test_a_unary_answer_arrives_with_its_cost(edge: EdgeUnderTest) -> None:
    answer = await edge.client.ask()
    assert answer.status == 200
    assert answer.json["choices"][0]["message"]["content"] == " the quick fox"
    assert answer.json["usage"]["cost"] == 0.0000162
    assert b'"cost":0.0000162,' in answer.body, "digits are exact, not a float's"


async def test_the_record_of_a_unary_answer_has_the_same_cost(edge: EdgeUnderTest) -> None:
    await edge.client.ask()
    record = await edge.record()
    assert record.cost_usd == usd_text(rate(PRICE, 16, 0, 3).total_usd) == "0.0000162"
    assert (record.outcome, record.meter, record.streamed) == (Outcome.COMPLETED, MeterSource.ENGINE, False)
    assert (record.prompt_tokens, record.completion_tokens, record.finish_reason) == (16, 3, "stop")


async def test_an_open_frame_precedes_the_record(edge: EdgeUnderTest) -> None:
    await edge.client.ask()
    opened, record = edge.frames()
    assert isinstance(opened, UsageOpen)
    assert opened.request_id == record.request_id


async def test_the_open_frame_is_on_disk_before_the_request_is_sent(edge: EdgeUnderTest, home: Datacenter) -> None:
    seen: list[int] = []

    async def script(call: Upcall) -> None:
        seen.append(len(edge.frames()))
        await call.answer(200, whole_answer("x"))

    home.script = script
    await edge.client.ask()
    assert seen == [1]


async def test_a_stream_arrives_whole_and_without_the_engines_extras(edge: EdgeUnderTest) -> None:
    answer = await edge.client.ask(stream=True)
    assert answer.text == " the quick fox"
    assert answer.events[-1] == "[DONE]"
    assert answer.is_whole
    assert all("nvext" not in event and "usage" not in event for event in answer.events[:-1])


async def test_the_usage_event_goes_only_to_who_asked(edge: EdgeUnderTest) -> None:
    silent = await edge.client.ask(stream=True)
    asked = await edge.client.ask(stream=True, stream_options={"include_usage": True})
    assert not [event for event in silent.events[:-1] if not event["choices"]]
    [usage] = [event["usage"] for event in asked.events[:-1] if not event["choices"]]
    assert usage["completion_tokens"] == 3
    assert usage["cost"] == 0.0000162
    assert usage["cost_details"]["price_version"] == "pv_1"


async def test_a_key_may_ask_for_usage_on_every_stream(edge: EdgeUnderTest) -> None:
    for digest, principal in edge.directory.known.items():
        edge.directory.known[digest] = principal.model_copy(update={"always_usage": True})
    answer = await edge.client.ask(stream=True)
    assert answer.events[-2]["usage"]["completion_tokens"] == 3


async def test_continuous_usage_is_kept_for_who_asked_for_it(edge: EdgeUnderTest) -> None:
    answer = await edge.client.ask(stream=True, stream_options={"include_usage": True, "continuous_usage_stats": True})
    assert [event["usage"]["completion_tokens"] for event in answer.events[:-1]] == [1, 2, 3, 3, 3]
    assert all("nvext" not in event for event in answer.events[:-1])


async def test_a_streams_record_counts_what_the_engine_counted(edge: EdgeUnderTest, home: Datacenter) -> None:
    home.script = streams(*stream_of([" a", " b"], prompt=1000, cached=900))
    await edge.client.ask(stream=True)
    record = await edge.record()
    assert (record.prompt_tokens, record.cached_tokens, record.completion_tokens) == (1000, 900, 2)
    assert (record.meter, record.streamed, record.datacenter_id) == (MeterSource.ENGINE, True, HOME)
    assert record.cost_usd == usd_text(rate(PRICE, 1000, 900, 2).total_usd)
    assert record.ttft_ms is not None


async def test_the_head_comes_when_the_request_is_accepted(edge: EdgeUnderTest, home: Datacenter) -> None:
    first = asyncio.Event()

    async def script(call: Upcall) -> None:
        await call.begin_stream()
        await first.wait()
        await call.send(*stream_of([" a"]))
        await call.end_stream()

    home.script = script
    async with edge.client.connection() as connection:
        await connection.send(edge.client.request(stream=True))
        assert (await connection.read_head()).status == 200
        assert await connection.read_chunk() == KEEP_ALIVE
        first.set()
        assert (await connection.read_chunk()).endswith(DONE)


async def test_a_silent_engine_is_bridged_by_keep_alives(edge: EdgeUnderTest, home: Datacenter) -> None:
    home.script = streams(chunk(" a"), *stream_of([" b"]), pause_s=0.55)
    body = (await edge.client.ask(stream=True)).body
    assert body.count(KEEP_ALIVE) >= 2
    assert KEEP_ALIVE in body[body.index(b" a"):body.index(b" b")]


async def test_the_record_is_on_disk_before_done_is_sent(edge: EdgeUnderTest, home: Datacenter) -> None:
    home.script = streams(*stream_of([" a", " b"]), pause_s=0.05)
    async with edge.client.connection() as connection:
        await connection.send(edge.client.request(stream=True))
        await connection.read_head()
        while DONE not in await connection.read_chunk():
            assert not edge.records()
        assert len(edge.records()) == 1


async def test_several_events_in_one_read_are_one_write(edge: EdgeUnderTest, home: Datacenter) -> None:
    async def script(call: Upcall) -> None:
        await call.begin_stream()
        await call.send(*stream_of([" a", " b", " c"]))
        await call.end_stream()

    home.script = script
    async with edge.client.connection() as connection:
        await connection.send(edge.client.request(stream=True))
        await connection.read_head()
        assert await connection.read_chunk() == KEEP_ALIVE
        everything = await connection.read_chunk()
        assert everything.endswith(DONE)
        assert await connection.read_chunk() == b""


async def test_usage_on_the_last_chunk_is_metered_and_becomes_the_usage_event(
        edge: EdgeUnderTest, home: Datacenter) -> None:
    home.script = streams(chunk(" a"), chunk("", finish="stop", completion=1), DONE)
    answer = await edge.client.ask(stream=True, stream_options={"include_usage": True})
    assert answer.events[-2]["choices"] == []
    assert answer.events[-2]["usage"]["completion_tokens"] == 1
    assert [bool(event.get("usage")) for event in answer.events[:-1]] == [False, False, True]
    assert (await edge.record()).completion_tokens == 1


async def test_unknown_cached_tokens_are_billed_in_full(edge: EdgeUnderTest, home: Datacenter) -> None:
    async def script(call: Upcall) -> None:
        answer = whole_answer("x", prompt=10, completion=1)
        answer["usage"]["prompt_tokens_details"] = None
        await call.answer(200, answer)

    home.script = script
    await edge.client.ask()
    assert (await edge.record()).cost_usd == usd_text(rate(PRICE, 10, 0, 1).total_usd)


async def test_an_answer_without_usage_is_delivered_and_left_to_the_witness(
        edge: EdgeUnderTest, home: Datacenter) -> None:
    async def script(call: Upcall) -> None:
        answer = whole_answer("x")
        del answer["usage"]
        await call.answer(200, answer)

    home.script = script
    assert (await edge.client.ask()).status == 200
    assert (await edge.record()).meter is MeterSource.PROVISIONAL


async def test_every_answer_names_itself_and_who_is_billed(edge: EdgeUnderTest) -> None:
    answer = await edge.client.ask(stream=True)
    record = await edge.record()
    assert answer.headers["x-request-id"] == f"req_{record.request_id.hex}"
    assert answer.headers["x-generation-id"] == f"gen_{record.request_id.hex}"
    assert answer.headers["x-billed-team"] == "team_1"


@pytest.mark.parametrize("fields", [{}, {"stream": True}])
async def test_an_answer_names_its_datacenter(edge: EdgeUnderTest, home: Datacenter, fields: dict[str, Any]) -> None:
    home.script = refuses(503)
    edge.prefer_home()
    assert (await edge.client.ask(**fields)).headers["x-meridian-datacenter"] == OTHER
    home.script = refuses(400)
    assert (await edge.client.ask(**fields)).headers["x-meridian-datacenter"] == HOME


async def test_an_error_of_the_edges_own_names_no_datacenter(edge: EdgeUnderTest, home: Datacenter) -> None:
    home.script = refuses(500)
    assert "x-meridian-datacenter" not in (await edge.client.ask()).headers


@pytest.mark.parametrize("fields", [{}, {"stream": True}, {"max_tokens": None}])
async def test_a_request_without_a_limit_asks_for_the_models_default(
        edge: EdgeUnderTest, home: Datacenter, fields: dict[str, Any]) -> None:
    given = edge.holder.snapshot
    assert given is not None
    models = [model.model_copy(update={"default_max_tokens": 77}) for model in given.models]
    edge.holder.take(given.model_copy(update={"version": given.version + 1, "models": models}))
    assert (await edge.client.ask(**fields)).status == 200
    assert home.seen[0].body["max_tokens"] == 77


async def test_a_stream_forbids_buffering_on_the_way(edge: EdgeUnderTest) -> None:
    answer = await edge.client.ask(stream=True)
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert answer.headers["cache-control"] == "no-cache"
    assert answer.headers["x-accel-buffering"] == "no"


async def test_nothing_of_the_datacenters_headers_comes_back(edge: EdgeUnderTest, home: Datacenter) -> None:
    async def script(call: Upcall) -> None:
        await call.answer(200, whole_answer("x"), "server: dynamo\r\nset-cookie: a=b\r\nx-worker: 10.0.0.1\r\n")

    home.script = script
    answer = await edge.client.ask()
    assert not {"server", "set-cookie", "x-worker"} & answer.headers.keys()


async def test_only_named_headers_go_upstream(edge: EdgeUnderTest, home: Datacenter) -> None:
    await edge.client.ask("cookie: a=b\r\nx-tenant-id: t\r\nx-forwarded-for: 1.2.3.4\r\nx-client-request-id: c\r\n")
    headers = home.seen[0].headers
    assert set(headers) == {"host", "content-type", "accept", "x-request-id", "x-dynamo-session-id", "traceparent",
                            "content-length"}


async def test_a_clients_trace_goes_upstream(edge: EdgeUnderTest, home: Datacenter) -> None:
    parent = f"00-{'4bf92f3577b34da6' * 2}-00f067aa0ba902b7-01"
    await edge.client.ask(f"TraceParent: {parent}\r\nTraceState: vendor=1\r\n", stream=True)
    headers = home.seen[0].headers
    assert (headers["traceparent"], headers["tracestate"]) == (parent, "vendor=1")


async def test_a_request_without_a_trace_has_its_own_id_for_one(edge: EdgeUnderTest, home: Datacenter) -> None:
    answer = await edge.client.ask("traceparent: 00-1\r\ntracestate: vendor=1\r\n")
    headers = home.seen[0].headers
    assert headers["traceparent"].split("-")[1] == answer.headers["x-request-id"].removeprefix("req_")
    assert "tracestate" not in headers


async def test_the_attempt_is_named_upstream_by_request_and_number(edge: EdgeUnderTest, home: Datacenter) -> None:
    await edge.client.ask()
    assert home.seen[0].headers["x-request-id"] == f"{(await edge.record()).request_id}.1"


async def test_the_metering_switches_are_put_into_a_stream(edge: EdgeUnderTest, home: Datacenter) -> None:
    await edge.client.ask(stream=True)
    body = home.seen[0].body
    assert body["stream_options"] == {"include_usage": True, "continuous_usage_stats": True}
    assert body["nvext"] == {"extra_fields": ["completion_token_ids"]}


async def test_a_clients_engine_switches_never_reach_the_engine(edge: EdgeUnderTest, home: Datacenter) -> None:
    await edge.client.ask(nvext={"annotations": ["formatted_prompt"]}, cache_salt="theirs", temperature=0.5)
    body = home.seen[0].body
    assert "nvext" not in body
    assert "cache_salt" not in body
    assert body["temperature"] == 0.5


async def test_unknown_fields_go_upstream_untouched(edge: EdgeUnderTest, home: Datacenter) -> None:
    await edge.client.ask(stream=True, stream_options={"include_usage": True, "future": [1]}, logit_bias={"5": 1})
    body = home.seen[0].body
    assert body["stream_options"]["future"] == [1]
    assert body["logit_bias"] == {"5": 1}


@pytest.mark.parametrize("stream", [False, True])
async def test_an_answer_is_called_as_its_headers_say(edge: EdgeUnderTest, stream: bool) -> None:
    answer = await edge.client.ask(stream=stream)
    events = answer.events[:-1] if stream else [answer.json]
    assert {event["id"] for event in events} == {answer.headers["x-generation-id"]}


async def test_both_prefixes_are_served(edge: EdgeUnderTest) -> None:
    raw = edge.client.request().replace(b"POST /v1/", b"POST /api/v1/")
    assert (await edge.client.send(raw)).status == 200


async def test_a_stream_ends_well_when_the_datacenter_leaves_done_out(edge: EdgeUnderTest, home: Datacenter) -> None:
    home.script = streams(chunk(" a", [1], completion=1), chunk("", [], finish="stop", completion=1))
    answer = await edge.client.ask(stream=True)
    assert answer.events[-1] == "[DONE]"
    assert (await edge.record()).outcome is Outcome.COMPLETED


async def test_comments_pass_and_never_become_data(edge: EdgeUnderTest, home: Datacenter) -> None:
    home.script = streams(chunk(" a", [1], completion=1), b": keep-alive\n\n",
                          chunk("", [], finish="stop", completion=1), DONE)
    answer = await edge.client.ask(stream=True)
    assert b"\n: keep-alive\n" in answer.body
    assert answer.text == " a"


async def test_events_cut_anywhere_arrive_whole(edge: EdgeUnderTest, home: Datacenter) -> None:
    whole = b"".join(stream_of(["漢字", "🇫🇷", "👩‍👩‍👧"]))

    async def script(call: Upcall) -> None:
        await call.begin_stream()
        for at in range(0, len(whole), 7):
            await call.send(whole[at:at + 7])
        await call.end_stream()

    home.script = script
    answer = await edge.client.ask(stream=True)
    assert answer.text == "漢字🇫🇷👩‍👩‍👧"
    assert (await edge.record()).completion_tokens == 3


async def test_a_stream_with_crlf_line_ends_is_understood(edge: EdgeUnderTest, home: Datacenter) -> None:
    home.script = streams(*(event.replace(b"\n", b"\r\n") for event in stream_of([" a", " b"])))
    answer = await edge.client.ask(stream=True)
    assert answer.text == " a b"
    assert (await edge.record()).completion_tokens == 2


async def test_a_connection_serves_one_request_after_the_other(edge: EdgeUnderTest, home: Datacenter) -> None:
    async with edge.client.connection() as connection:
        for streamed in (False, True, False, True):
            await connection.send(edge.client.request(stream=streamed))
            assert (await connection.read_answer()).status == 200
    assert home.connections == 1, "and the datacenter's connection is kept as well"
    assert len(edge.records()) == 4


async def test_hot_and_cold_requests_share_a_connection(edge: EdgeUnderTest) -> None:
    async with edge.client.connection() as connection:
        for path, method in (("/v1/models", "GET"), ("/v1/chat/completions", "POST"), ("/healthz", "GET")):
            hot = method == "POST"
            await connection.send(edge.client.request() if hot
                                  else f"GET {path} HTTP/1.1\r\nhost: e\r\n\r\n".encode())
            assert (await connection.read_answer()).status == 200


async def test_a_final_usage_event_alone_does_not_end_the_stream(edge: EdgeUnderTest, home: Datacenter) -> None:
    home.script = streams(chunk(" a", [1], completion=1), chunk("", [], finish="stop", completion=1),
                          final_usage(16, 1), DONE)
    answer = await edge.client.ask(stream=True, stream_options={"include_usage": True})
    assert [type(event) for event in answer.events] == [dict, dict, dict, str]

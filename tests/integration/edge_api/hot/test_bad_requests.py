"""Requests that are wrong, too big, too slow or not allowed: one clear answer, nothing sent upstream."""

import asyncio
import json
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from control_plane.contracts import ids
from control_plane.contracts.keys import Scope
from control_plane.contracts.usage import UsageOpen, UsageRecord
from edge_api.hot.services import OutboxFull
from tests.integration.edge_api.hot.client import request
from tests.integration.edge_api.hot.conftest import LIMITS, EdgeUnderTest
from tests.integration.edge_api.hot.datacenter import Datacenter, chunk, streams

MESSAGES = [{"role": "user", "content": "hi"}]

WRONG_BODIES: dict[str, tuple[bytes, str, str | None]] = {
    "no JSON": (b'{"model": "x", ', "invalid_json", None),
    "empty": (b"", "invalid_json", None),
    "an array": (b"[]", "invalid_value", None),
    "not UTF-8": (b'{"model":"m","messages":["\xff"]}', "invalid_json", None),
    "a lone surrogate's bytes": (b'{"model":"m","messages":["\xed\xa0\x80"]}', "invalid_json", None),
    "nested too deeply": (b'{"model":"m","messages":[1],"x":' + b"[" * 200_000 + b"]" * 200_000 + b"}", "invalid_json",
                          None),
    "trailing bytes": (b'{"model":"m","messages":[1]} x', "invalid_json", None),
    "no model": (json.dumps({"messages": MESSAGES}).encode(), "missing_required_parameter", "model"),
    "no messages": (b'{"model":"m"}', "missing_required_parameter", "messages"),
    "empty messages": (b'{"model":"m","messages":[]}', "invalid_value", "messages"),
    "messages of a wrong type": (b'{"model":"m","messages":"hi"}', "invalid_value", "messages"),
    "stream of a wrong type": (b'{"model":"m","messages":[1],"stream":"yes"}', "invalid_value", "stream"),
    "max_tokens of a wrong type": (b'{"model":"m","messages":[1],"max_tokens":"9"}', "invalid_value", "max_tokens"),
    "stream_options of a wrong type": (
        b'{"model":"m","messages":[1],"stream":true,"stream_options":{"include_usage":1}}', "invalid_value",
        "stream_options.include_usage"),
}


@pytest.mark.parametrize("kind", WRONG_BODIES)
async def test_a_wrong_body_is_a_400_that_names_the_field(edge: EdgeUnderTest, home: Datacenter, kind: str) -> None:
    body, code, param = WRONG_BODIES[kind]
    answer = await edge.client.send(request(edge.client.key, body))
    assert (answer.status, answer.error["code"], answer.error["param"]) == (400, code, param)
    assert answer.error["type"] == "invalid_request_error"
    assert not home.seen
    assert not edge.frames()


async def test_no_key_is_401(edge: EdgeUnderTest) -> None:
    answer = await edge.client.send(request("", edge.client.body()))
    assert (answer.status, answer.error["code"]) == (401, "invalid_api_key")
    assert answer.headers["x-request-id"].startswith("req_")


@pytest.mark.parametrize("key", ["sk-typo", "sk_meridian_local_short", "Ω", "x" * 5000])
async def test_a_mistyped_key_is_401_without_asking_anybody(edge: EdgeUnderTest, key: str) -> None:
    raw = request("KEY", edge.client.body()).replace(b"KEY", key.encode())
    assert (await edge.client.send(raw)).status == 401
    assert not edge.directory.asked


async def test_another_scheme_than_bearer_is_401(edge: EdgeUnderTest) -> None:
    raw = edge.client.request().replace(b"Bearer ", b"Basic ")
    assert (await edge.client.send(raw)).status == 401


async def test_an_unknown_key_is_asked_for_once_and_401(edge: EdgeUnderTest) -> None:
    answer = await edge.client.send(request(ids.new_secret("sk_meridian_local"), edge.client.body()))
    assert answer.status == 401
    assert edge.directory.asked == ["127.0.0.1"]


async def test_a_key_that_the_directory_knows_is_served(edge: EdgeUnderTest) -> None:
    edge.directory.remote, edge.directory.known = edge.directory.known, {}
    assert (await edge.client.ask()).status == 200


async def test_an_unknown_key_is_503_while_the_directory_is_away(edge: EdgeUnderTest) -> None:
    edge.directory.away()
    answer = await edge.client.send(request(ids.new_secret("sk_meridian_local"), edge.client.body()))
    assert (answer.status, answer.error["code"]) == (503, "key_check_unavailable")
    assert "retry-after" in answer.headers


async def test_too_many_unknown_keys_are_429(edge: EdgeUnderTest) -> None:
    edge.directory.overrun()
    answer = await edge.client.send(request(ids.new_secret("sk_meridian_local"), edge.client.body()))
    assert (answer.status, answer.error["type"]) == (429, "rate_limit_error")


async def test_a_key_without_the_scope_is_403(edge: EdgeUnderTest) -> None:
    for digest, principal in edge.directory.known.items():
        edge.directory.known[digest] = principal.model_copy(update={"scopes": [Scope.USAGE_READ]})
    answer = await edge.client.ask()
    assert (answer.status, answer.error["code"]) == (403, "permission_denied")


async def test_an_unknown_model_is_404(edge: EdgeUnderTest) -> None:
    answer = await edge.client.send(request(edge.client.key, {"model": "nope", "messages": MESSAGES}))
    assert (answer.status, answer.error["code"], answer.error["param"]) == (404, "model_not_found", "model")


async def test_a_model_that_nobody_serves_now_is_503_with_the_reason(edge: EdgeUnderTest) -> None:
    edge.route_to(us_east_1=0)
    answer = await edge.client.ask()
    assert (answer.status, answer.error["code"]) == (503, "model_unavailable")
    assert "drained for a test" in answer.error["message"]
    assert not edge.frames()


async def test_an_edge_without_a_snapshot_is_503(edge: EdgeUnderTest) -> None:
    edge.holder.current = None
    assert (await edge.client.ask()).error["code"] == "not_ready"


@pytest.mark.parametrize("fault", [OutboxFull("full"), OSError("disk")])
async def test_a_request_that_cannot_be_metered_is_not_sent(
        edge: EdgeUnderTest, home: Datacenter, fault: Exception) -> None:
    edge.services.outbox = FailingOutbox(fault)
    answer = await edge.client.ask()
    assert (answer.status, answer.error["code"]) == (503, "metering_unavailable")
    assert not home.seen


class FailingOutbox:
    """A disk that takes no more."""

    def __init__(self, fault: Exception) -> None:
        self._fault = fault

    def open(self, frame: UsageOpen) -> None:
        raise self._fault

    def record(self, frame: UsageRecord) -> None:
        raise self._fault


async def test_a_body_past_the_limit_is_413_by_its_announced_length(edge: EdgeUnderTest) -> None:
    async with edge.client.connection() as connection:
        await connection.send(request(edge.client.key, b"", length=2_000_000))
        answer = await connection.read_answer()
        assert (answer.status, answer.error["code"]) == (413, "payload_too_large")


async def test_a_body_past_the_limit_is_413_though_it_is_sent_whole(edge: EdgeUnderTest) -> None:
    answer = await edge.client.ask(padding="x" * 4_000_000)
    assert answer.status == 413
    assert answer.headers["connection"] == "close"


async def test_a_chunked_body_past_the_limit_is_413(edge: EdgeUnderTest) -> None:
    piece = b"x" * 100_000
    raw = (b"POST /v1/chat/completions HTTP/1.1\r\nhost: e\r\nauthorization: Bearer " + edge.client.key.encode()
           + b"\r\ntransfer-encoding: chunked\r\n\r\n" + b"%x\r\n%b\r\n" % (len(piece), piece) * 30 + b"0\r\n\r\n")
    assert (await edge.client.send(raw)).status == 413


async def test_a_chunked_body_within_the_limit_is_served(edge: EdgeUnderTest, home: Datacenter) -> None:
    data = json.dumps(edge.client.body(padding="x" * 50_000)).encode()
    pieces = [data[at:at + 1000] for at in range(0, len(data), 1000)]
    raw = (b"POST /v1/chat/completions HTTP/1.1\r\nhost: e\r\nauthorization: Bearer " + edge.client.key.encode()
           + b"\r\ntransfer-encoding: chunked\r\n\r\n"
           + b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n")
    assert (await edge.client.send(raw)).status == 200
    assert home.seen[0].raw == data


async def test_a_key_is_checked_before_the_body_is_read(edge: EdgeUnderTest) -> None:
    async with edge.client.connection() as connection:
        await connection.send(request("sk-wrong", b"", length=900_000))
        assert (await connection.read_answer()).status == 401


async def test_a_client_that_waits_to_be_asked_for_its_body_is_asked(edge: EdgeUnderTest) -> None:
    data = json.dumps(edge.client.body()).encode()
    async with edge.client.connection() as connection:
        await connection.send(request(edge.client.key, b"", "expect: 100-continue\r\n", length=len(data)))
        assert (await connection.reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 100 ")
        await connection.send(data)
        assert (await connection.read_answer()).status == 200


async def test_a_client_without_a_key_is_not_asked_for_its_body(edge: EdgeUnderTest) -> None:
    async with edge.client.connection() as connection:
        await connection.send(request("", b"", "expect: 100-continue\r\n", length=100))
        assert (await connection.read_answer()).status == 401


SMUGGLING = {
    "both lengths": b"content-length: 5\r\ntransfer-encoding: chunked\r\n",
    "both lengths, the other way": b"transfer-encoding: chunked\r\ncontent-length: 5\r\n",
    "two lengths": b"content-length: 5\r\ncontent-length: 6\r\n",
    "an unknown coding": b"transfer-encoding: chunked, identity\r\n",
    "a signed length": b"content-length: +5\r\n",
    "a negative length": b"content-length: -5\r\n",
}


@pytest.mark.parametrize("kind", SMUGGLING)
async def test_two_ways_to_read_a_request_are_refused(edge: EdgeUnderTest, home: Datacenter, kind: str) -> None:
    raw = (b"POST /v1/chat/completions HTTP/1.1\r\nhost: e\r\nauthorization: Bearer " + edge.client.key.encode()
           + b"\r\n" + SMUGGLING[kind] + b"\r\n0\r\n\r\n")
    async with edge.client.connection() as connection:
        await connection.send(raw)
        answer = await connection.read_answer()
        assert (answer.status, answer.error["type"]) == (400, "invalid_request_error")
        assert await connection.is_closed()
    assert not home.seen


@pytest.mark.parametrize("raw", [
    b"\x16\x03\x01\x02\x00\x01\x00\x01", b"GET / HTTP/9.9\r\n\r\n", b"\r\n\r\nnonsense\r\n\r\n"])
async def test_what_is_no_http_is_400(edge: EdgeUnderTest, raw: bytes) -> None:
    assert (await edge.client.send(raw)).error["code"] == "invalid_http_request"


async def test_an_upgrade_is_refused(edge: EdgeUnderTest) -> None:
    answer = await edge.client.ask("connection: Upgrade\r\nupgrade: h2c\r\n")
    assert answer.error["code"] == "invalid_http_request"


async def test_headers_past_the_limit_are_431(edge: EdgeUnderTest) -> None:
    async with edge.client.connection() as connection:
        await connection.send(b"POST /v1/chat/completions HTTP/1.1\r\n")
        for n in range(40):
            await connection.send(b"x-%d: %b\r\n" % (n, b"y" * 4000))
            await asyncio.sleep(0)
        assert (await connection.read_answer()).status == 431


@pytest.mark.parametrize("begin", [b"POST /v1/chat", b"POST /v1/chat/completions HTTP/1.1\r\nhost: e\r\n"])
async def test_a_head_that_does_not_end_is_408(edge: EdgeUnderTest, begin: bytes) -> None:
    async with edge.client.connection() as connection:
        await connection.send(begin)
        assert (await connection.read_answer()).status == 408
        assert await connection.is_closed()


async def test_a_body_that_does_not_end_is_408(edge: EdgeUnderTest) -> None:
    async with edge.client.connection() as connection:
        await connection.send(request(edge.client.key, b"{", length=10))
        assert (await connection.read_answer()).status == 408


async def test_a_body_that_keeps_coming_may_take_longer_than_a_pause(edge: EdgeUnderTest) -> None:
    whole = edge.client.request()
    async with edge.client.connection() as connection:
        await connection.send(whole[:-4])
        for at in range(-4, 0):
            await asyncio.sleep(0.5)
            await connection.send(whole[at:at + 1 or None])
        assert (await connection.read_answer()).status == 200


@pytest.mark.parametrize("limits", [replace(LIMITS, body_timeout_s=0.5)])
async def test_a_body_that_trickles_in_for_ever_is_408(edge: EdgeUnderTest) -> None:
    async with edge.client.connection() as connection:
        await connection.send(request(edge.client.key, b"{", length=1000))
        with suppress(ConnectionError):
            for _ in range(10):
                await asyncio.sleep(0.1)
                await connection.send(b" ")
        assert (await connection.read_answer()).status == 408


async def test_half_a_request_behind_a_stream_does_not_end_it(edge: EdgeUnderTest, home: Datacenter) -> None:
    home.script = streams(*(chunk(" a", [n], completion=n) for n in range(1, 30)),
                          chunk("", [], finish="stop", completion=29), pause_s=0.05)
    async with edge.client.connection() as connection:
        await connection.send(edge.client.request(stream=True) + edge.client.request()[:60])
        assert (await connection.read_answer()).events[-1] == "[DONE]"
        assert (await connection.read_answer()).status == 408


@pytest.mark.parametrize("limits", [replace(LIMITS, keep_alive_s=0.4)])
async def test_a_connection_in_use_stays_and_an_idle_one_is_closed(edge: EdgeUnderTest) -> None:
    async with edge.client.connection() as connection:
        for _ in range(4):
            await connection.send(edge.client.request())
            assert (await connection.read_answer()).status == 200
            await asyncio.sleep(0.25)
        assert await connection.is_closed()


async def test_a_key_is_checked_anew_for_each_request_of_a_connection(edge: EdgeUnderTest) -> None:
    stranger = ids.new_secret("sk_meridian_local")
    async with edge.client.connection() as connection:
        for key, status in ((edge.client.key, 200), (stranger, 401), (edge.client.key, 200), ("", 401)):
            await connection.send(request(key, edge.client.body()))
            assert (await connection.read_answer()).status == status
        edge.directory.known.clear()  # as a revocation does
        await connection.send(request(edge.client.key, edge.client.body()))
        assert (await connection.read_answer()).status == 401


async def test_names_of_headers_are_taken_in_any_case(edge: EdgeUnderTest) -> None:
    head, _, body = edge.client.request().partition(b"authorization")
    raw = head + b"AUTHORIZATION" + body.replace(b"content-length", b"Content-LENGTH")
    assert (await edge.client.send(raw)).status == 200


async def test_a_connection_that_says_nothing_is_closed(edge: EdgeUnderTest) -> None:
    async with edge.client.connection() as connection:
        assert await connection.is_closed()


async def test_a_connection_that_says_line_ends_only_is_closed(edge: EdgeUnderTest) -> None:
    async with edge.client.connection() as connection:
        await connection.send(b"\r\n")
        assert await connection.is_closed()


@pytest.mark.parametrize("limits", [replace(LIMITS, keep_alive_s=0.4)])
async def test_a_connection_that_says_line_ends_only_after_its_request_is_closed(edge: EdgeUnderTest) -> None:
    async with edge.client.connection() as connection:
        await connection.send(edge.client.request())
        assert (await connection.read_answer()).status == 200
        await connection.send(b"\r\n")
        assert await connection.is_closed()


@pytest.mark.parametrize("limits", [replace(LIMITS, keep_alive_s=0.4)])
async def test_the_rest_of_a_body_that_nobody_wanted_keeps_no_connection(edge: EdgeUnderTest) -> None:
    async with edge.client.connection() as connection:
        await connection.send(request(edge.client.key, b"{", path="/v1/nothing", length=2))
        assert (await connection.read_answer()).status == 404
        await connection.send(b"}")
        assert await connection.is_closed()


async def test_pipelined_requests_are_answered_one_at_a_time_in_order(edge: EdgeUnderTest, home: Datacenter) -> None:
    async with edge.client.connection() as connection:
        models = b"GET /v1/models HTTP/1.1\r\nhost: e\r\n\r\n"
        await connection.send(edge.client.request(stream=True) + models + edge.client.request())
        kinds = [(await connection.read_answer()).headers["content-type"].split(";")[0] for _ in range(3)]
    assert kinds == ["text/event-stream", "application/json", "application/json"]
    assert len(edge.records()) == 2


async def test_a_client_that_pipelines_without_end_is_dropped(edge: EdgeUnderTest, home: Datacenter) -> None:
    async with edge.client.connection() as connection:
        await connection.send(edge.client.request(stream=True) * 40)
        answered = 0
        try:
            while (await connection.read_answer()).is_whole:
                answered += 1
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
    assert answered < 40


async def test_http_1_0_gets_an_unframed_stream(edge: EdgeUnderTest) -> None:
    answer = await edge.client.send(edge.client.request(stream=True).replace(b"HTTP/1.1", b"HTTP/1.0"))
    assert "transfer-encoding" not in answer.headers
    assert answer.text == " the quick fox"


async def test_another_method_is_405_by_the_app(edge: EdgeUnderTest) -> None:
    raw = b"GET /v1/chat/completions HTTP/1.1\r\nhost: e\r\n\r\n"
    answer = await edge.client.send(raw)
    assert (answer.status, answer.error["code"]) == (405, "method_not_allowed")


async def test_keys_and_prompts_are_in_no_log(
        edge: EdgeUnderTest, home: Datacenter, capfd: pytest.CaptureFixture[str]) -> None:
    canary = "canary-prompt-text"
    fields: dict[str, Any] = {"messages": [{"role": "user", "content": canary}]}
    await edge.client.send(request(edge.client.key, edge.client.body(**fields)))
    await edge.client.send(request(edge.client.key, edge.client.body(**fields, stream=3)))
    edge.services.outbox = FailingOutbox(OSError("disk"))
    await edge.client.send(request(edge.client.key, edge.client.body(**fields)))
    said = "".join(capfd.readouterr())
    assert canary not in said
    assert edge.client.key not in said

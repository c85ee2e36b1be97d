"""A broken stream is taken to another datacenter: what is asked there, in which order, and what ends the search."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from msgspec import json

from control_plane.contracts.deployment import EngineFacts
from control_plane.contracts.snapshot import TrafficState
from edge_api.dialects.base import Upstream
from edge_api.resume.journal import Journal, Watch
from edge_api.resume.resumer import DISAGREES, Break, NotResumed, Resumer
from edge_api.resume.spread import Spread
from edge_api.routing.table import Route
from tests.unit.edge_api.resume.events import FACTS, chat
from tests.unit.edge_api.resume.server import STREAM, Server, chunk, is_silent, says, serving, tells
from tests.unit.edge_api.resume.test_journal import fed

IDS = b'event: token_ids\n: "[1,2]"\n\n'
PLAIN = FACTS.model_copy(update={"grammar_url": None})


def broken(*events: bytes, watch: Watch = Watch.NOTHING, strict_seed: bool = False, **fields: Any) -> Break:
    body = json.encode({"model": "m", "messages": [{"role": "user", "content": "hi"}], "temperature": 0, **fields})
    said = events or (chat([7], content="a"), chat([8], content="b"))
    return Break("req.2", body, Upstream.CHAT, fed(Journal(watch), *said), b"", PLAIN, strict_seed)


def route(server: Server, datacenter_id: str = "dc-b", engine: EngineFacts = PLAIN) -> Route:
    host, port, tls = server.address
    return Route(datacenter_id, "eu", TrafficState.ACTIVE, 1, host, port, tls, engine=engine)


@asynccontextmanager
async def resuming(places: int = 2, wait_s: float = 0.05) -> AsyncIterator[tuple[Resumer, Server]]:
    """A resumer and a frontend that tells a prompt's ids."""
    async with serving(says(STREAM, chunk(IDS))) as server:
        yield Resumer(server.pool, Spread(places, 10, wait_s, 0.0)), server


async def test_the_continuation_is_written_from_what_the_target_says() -> None:
    async with resuming() as (resumer, server):
        found = await resumer.go_on(broken(max_tokens=9), route(server))
    body = json.decode(found.body)
    assert (found.delivered, body["max_tokens"], body["nvext"]["token_data"]) == (2, 7, [1, 2, 7, 8])
    assert b"x-request-id: req.2.p\r\n" in server.seen[0]


async def test_an_engine_that_keeps_salts_apart_is_asked_under_the_teams_own() -> None:
    stream = broken()._replace(salt="c2FsdA")
    async with resuming() as (resumer, server):
        await resumer.go_on(stream, route(server, engine=PLAIN.model_copy(update={"is_salt_aware": True})))
        await resumer.go_on(broken()._replace(salt="c2FsdA"), route(server))
    asked = [json.decode(seen.partition(b"\r\n\r\n")[2]) for seen in server.seen]
    assert [body.get("cache_salt") for body in asked] == ["c2FsdA", None]


async def test_the_journal_is_at_the_seam_then() -> None:
    stream = broken(chat([7], content="a"), chat([8]))
    async with resuming() as (resumer, server):
        await resumer.go_on(stream, route(server))
    assert stream.journal.tokens == 1


async def test_without_output_nothing_is_asked_and_the_request_is_sent_as_it_was() -> None:
    stream = broken(chat(None, role="assistant"))
    async with resuming() as (resumer, server):
        found = await resumer.go_on(stream, route(server, engine=EngineFacts()))
    assert (found.body, found.delivered, server.seen) == (stream.sent, 0, [])


async def test_a_prompt_of_ids_is_not_asked_for() -> None:
    stream = broken()._replace(upstream=Upstream.COMPLETIONS, sent=b'{"prompt":[3,4]}')
    async with resuming() as (resumer, server):
        found = await resumer.go_on(stream, route(server))
    assert (json.decode(found.body)["prompt"], server.seen) == ([3, 4, 7, 8], [])


async def test_a_constrained_stream_asks_both_services() -> None:
    stream = broken(watch=Watch.TEXT, response_format={"type": "json_object"})
    async with resuming() as (resumer, server), serving(tells(200, b'{"grammar":"root ::= \\"}\\""}')) as grammars:
        engine = FACTS.model_copy(update={"grammar_url": f"http://127.0.0.1:{grammars.address[1]}"})
        found = await resumer.go_on(stream, route(server, engine=engine))
    assert json.decode(found.body)["guided_grammar"] == 'root ::= "}"'
    assert b'"delivered":"ab"' in grammars.seen[0]


async def test_an_answer_at_its_limit_is_not_sent_anywhere() -> None:
    async with resuming() as (resumer, server):
        found = await resumer.go_on(broken(max_tokens=2), route(server))
    assert (found.body, server.seen) == (b"", [])
    assert b'"finish_reason":"length"' in found.events


@pytest.mark.parametrize(("fields", "reason", "elsewhere"), [
    ({"frequency_penalty": 1}, "penalty", False), ({"messages": [5]}, "unreadable", False),
    ({"response_format": {"type": "json_object"}}, "no_grammar", True),
])
async def test_a_refusal_says_why_and_whether_to_look_further(
        fields: dict[str, Any], reason: str, elsewhere: bool) -> None:
    async with resuming() as (resumer, server):
        with pytest.raises(NotResumed) as caught:
            await resumer.go_on(broken(watch=Watch.TEXT, **fields), route(server))
    assert (caught.value.reason, caught.value.elsewhere) == (reason, elsewhere)


async def test_the_search_goes_from_one_datacenter_to_the_next() -> None:
    async with resuming() as (resumer, server), serving(tells(500, b"")) as bad:
        left = [route(bad, "dc-b"), route(server, "dc-c"), route(server, "dc-d")]
        asked: list[frozenset[str]] = []

        def choose(refused: frozenset[str]) -> Route | None:
            asked.append(refused)
            return left.pop(0)

        _, found = await resumer.find(broken(), choose)
    assert (found.datacenter_id, asked) == ("dc-c", [frozenset(), frozenset({"dc-b"})])


async def test_the_search_ends_with_the_last_reason() -> None:
    async with resuming() as (resumer, _), serving(tells(500, b"")) as bad:
        left: list[Route | None] = [route(bad), None]
        with pytest.raises(NotResumed) as caught:
            await resumer.find(broken(), lambda refused: left.pop(0))
        assert caught.value.reason == "no_answer"
        with pytest.raises(NotResumed) as caught:
            await resumer.find(broken(), lambda refused: None)
        assert caught.value.reason == "no_datacenter"


async def test_a_refusal_of_the_request_itself_ends_the_search_at_once() -> None:
    async with resuming() as (resumer, server):
        with pytest.raises(NotResumed) as caught:
            await resumer.find(broken(strict_seed=True, temperature=1), lambda refused: route(server))
    assert caught.value.reason == "strict_seed"


async def test_a_place_is_held_until_the_first_new_event() -> None:
    begun: list[str] = []
    async with resuming(places=1) as (resumer, server):
        first = await resumer.go_on(broken(), route(server))
        first.when_begun(lambda: begun.append("first"))
        with pytest.raises(NotResumed) as caught:
            await resumer.go_on(broken(), route(server))
        assert (caught.value.reason, caught.value.elsewhere) == ("no_place", True)
        first.rewrite(b": keep-alive\n\n")
        assert begun == []
        first.rewrite(chat([9], content="c"))
        first.rewrite(chat([10], content="d"))
        assert begun == ["first"]
        await resumer.go_on(broken(), route(server))


async def test_who_is_cancelled_or_not_answered_keeps_no_place() -> None:
    async with resuming(places=1) as (resumer, server):
        server.answer = is_silent
        waiting = asyncio.create_task(resumer.go_on(broken(), route(server)))
        await asyncio.sleep(0.02)
        waiting.cancel()
        server.answer = tells(500, b"")
        with pytest.raises(NotResumed):
            await resumer.go_on(broken(), route(server))
        server.answer = says(STREAM, chunk(IDS))
        assert (await resumer.go_on(broken(), route(server))).body


async def test_what_does_not_fit_becomes_an_error() -> None:
    async with resuming() as (resumer, server):
        found = await resumer.go_on(broken(stop="x"), route(server))
    assert found.rewrite(chat([8], content="other")) == DISAGREES


async def test_what_fits_is_told_as_far_as_it_is_new() -> None:
    async with resuming() as (resumer, server):
        found = await resumer.go_on(broken(stop="x"), route(server))
    assert b'"content":""' in found.rewrite(chat([8], content="b"))
    assert b'"content":"c"' in found.rewrite(chat([9], content="c"))

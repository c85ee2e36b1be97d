"""Small questions over pooled connections, and what is understood of their answers."""

import asyncio

import pytest
from msgspec import Raw, json

from edge_api.dialects.base import Upstream
from edge_api.resume.ask import MAX_ANSWER_BYTES, NoAnswer, WholeReply, ask
from edge_api.resume.demand import Constraint
from edge_api.resume.grammar import NoGrammar, address_of, residual
from edge_api.resume.prompt import PromptIds, prompt_ids, question, read_event, written_ids
from tests.unit.edge_api.resume.server import STREAM, Server, chunk, drops, is_silent, says, serving, tells

BODY = json.encode({"model": "m", "messages": [{"role": "user", "content": "h\u00e9"}], "stream": False, "n": 2,
                    "max_completion_tokens": 9, "tools": [], "nvext": {"extra_fields": ["completion_token_ids"]}})
IDS = b'event: token_ids\n: "[1,2574,9]"\n\n'


async def asked(server: Server, deadline_s: float = 1.0) -> PromptIds:
    return await prompt_ids(server.pool, server.address, Upstream.CHAT, BODY, deadline_s, b"x-request-id: r.p\r\n")


async def whole(server: Server, deadline_s: float = 1.0) -> bytes:
    return await ask(server.pool, server.address, "/x", b"{}", WholeReply, deadline_s)


# any question


async def test_a_whole_answer_is_taken_and_its_connection_used_again() -> None:
    async with serving(tells(200, b"yes")) as server:
        assert await whole(server) == b"yes"
        assert await whole(server) == b"yes"
        assert server.pool.take(server.address) is not None


@pytest.mark.parametrize("status", [400, 404, 500])
async def test_a_refusal_is_no_answer(status: int) -> None:
    async with serving(tells(status, b"why")) as server:
        with pytest.raises(NoAnswer) as caught:
            await whole(server)
    assert (caught.value.status, caught.value.body) == (status, b"why")


async def test_silence_ends_at_the_deadline() -> None:
    async with serving(is_silent) as server:
        with pytest.raises(NoAnswer):
            await whole(server, 0.05)
        await asyncio.wait_for(server.abandoned.wait(), 1)


async def test_a_lost_connection_is_no_answer() -> None:
    async with serving(drops) as server:
        with pytest.raises(NoAnswer):
            await whole(server)


async def test_nobody_there_is_no_answer() -> None:
    async with serving(drops) as server:
        pool = server.pool
    with pytest.raises(NoAnswer):
        await ask(pool, ("127.0.0.1", 1, False), "/x", b"{}", WholeReply, 1.0)


async def test_a_pooled_connection_that_was_dead_is_replaced_once() -> None:
    async with serving(tells(200, b"again")) as server:
        await whole(server)
        server.answer = server.drops_once
        assert await whole(server) == b"again"
    assert len(server.seen) == 3


async def test_an_endless_answer_is_cut_off() -> None:
    endless = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + chunk(b"x" * (MAX_ANSWER_BYTES + 1))
    async with serving(says(endless)) as server:
        with pytest.raises(NoAnswer):
            await whole(server, 5.0)


# the prompt's ids


async def test_the_ids_of_a_prompt_are_read_and_the_rest_is_not_wanted() -> None:
    async with serving(says(STREAM, chunk(b"event: request_id\n: \"x\"\n\n"), chunk(IDS), pause_s=0.01)) as server:
        assert await asked(server) == (b"1,2574,9", 3)
        await asyncio.wait_for(server.abandoned.wait(), 1)
    head, _, body = server.seen[0].partition(b"\r\n\r\n")
    assert head.startswith(b"POST /v1/chat/completions HTTP/1.1\r\n")
    assert b"x-request-id: r.p\r\n" in head
    assert json.decode(body)["nvext"] == {"annotations": ["token_ids"]}


@pytest.mark.parametrize("cut", range(1, len(IDS), 7))
async def test_ids_come_in_pieces(cut: int) -> None:
    async with serving(says(STREAM, chunk(IDS[:cut]), chunk(IDS[cut:]), pause_s=0.005)) as server:
        assert (await asked(server)).tokens == 3


@pytest.mark.parametrize("data", [
    b'data: {"choices":[]}\n\ndata: [DONE]\n\n', b'event: token_ids\n: "nothing"\n\n', b'event: token_ids\n: "[]"\n\n',
])
async def test_a_stream_without_ids_is_no_answer(data: bytes) -> None:
    async with serving(says(STREAM, chunk(data) + b"0\r\n\r\n")) as server:
        with pytest.raises(NoAnswer):
            await asked(server)


async def test_what_the_datacenter_refuses_is_passed_on() -> None:
    async with serving(tells(400, b'{"message":"too long"}')) as server:
        with pytest.raises(NoAnswer) as caught:
            await asked(server)
    assert (caught.value.status, caught.value.body) == (400, b'{"message":"too long"}')


def test_the_question_generates_one_token_at_most_and_keeps_what_makes_the_prompt() -> None:
    assert json.decode(question(BODY)) == {
        "model": "m", "messages": [{"role": "user", "content": "h\u00e9"}], "stream": True, "tools": [],
        "max_tokens": 1, "nvext": {"annotations": ["token_ids"]}}


@pytest.mark.parametrize(("event", "ids"), [
    (IDS, b"1,2574,9"), (b'event: token_ids\n: "[1, 2]"\n\n', b"1,2"), (b'event: token_ids\n:"[7]"\n\n', b"7"),
])
def test_an_annotation_is_json_in_json_in_a_comment(event: bytes, ids: bytes) -> None:
    assert read_event(event).ids == ids


@pytest.mark.parametrize(("prompt", "ids"), [
    (b"[1,2]", b"1,2"), (b"[ 1 ,\n2 ]", b"1,2"), (b'"text"', None), (b"[[1,2]]", None), (b'["1"]', None), (b"[]", None),
    (b"", None), (b"null", None), (b"[1.5]", None),
])
def test_a_prompt_may_be_ids_already(prompt: bytes, ids: bytes | None) -> None:
    assert written_ids(Raw(prompt)) == ids


# what is left of a grammar


async def test_the_grammar_service_is_asked_what_is_left() -> None:
    async with serving(tells(200, json.encode({"grammar": 'root ::= "}"'}))) as server:
        url = f"http://127.0.0.1:{server.address[1]}"
        constraint = Constraint("json_schema", Raw(b'{"type":"object"}'))
        assert await residual(server.pool, url, constraint, '{"\u00e9', 1.0) == 'root ::= "}"'
    assert b"POST /v1/residual " in server.seen[0]


@pytest.mark.parametrize("status", [400, 413, 422])
async def test_a_grammar_that_there_is_not_is_not_asked_for_elsewhere(status: int) -> None:
    async with serving(tells(status, b'{"error":{"code":"not_in_grammar"}}')) as server:
        with pytest.raises(NoGrammar):
            await residual(server.pool, f"http://127.0.0.1:{server.address[1]}", Constraint("regex", Raw(b'"a"')), "b",
                           1.0)


@pytest.mark.parametrize("body", [b"", b"[]", b'{"other":1}', b'{"grammar":5}'])
async def test_an_odd_answer_of_the_grammar_service_is_none(body: bytes) -> None:
    async with serving(tells(200, body)) as server:
        with pytest.raises(NoAnswer):
            await residual(server.pool, f"http://127.0.0.1:{server.address[1]}", Constraint("regex", Raw(b'"a"')), "a",
                           1.0)


@pytest.mark.parametrize(("url", "address"), [
    ("http://10.0.0.1:9100", ("10.0.0.1", 9100, False)), ("https://g.example", ("g.example", 443, True)),
    ("http://g.example/", ("g.example", 80, False)),
])
def test_the_service_is_where_its_url_says(url: str, address: tuple[str, int, bool]) -> None:
    assert address_of(url) == address

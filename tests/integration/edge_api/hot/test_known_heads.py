"""Requests of one connection that have the head of the one before, and requests that nearly have it."""

from typing import Any

import pytest

from control_plane.contracts import ids
from tests.integration.edge_api.hot.client import request
from tests.integration.edge_api.hot.conftest import EdgeUnderTest, until
from tests.integration.edge_api.hot.datacenter import Datacenter


async def statuses(edge: EdgeUnderTest, *requests: bytes) -> list[int]:
    """What these are answered on one connection, each sent when the last one's answer was there."""
    async with edge.client.connection() as connection:
        answers = []
        for data in requests:
            await connection.send(data)
            answers.append((await connection.read_answer()).status)
        return answers


async def test_each_of_many_requests_with_one_head_gets_its_own_answer_and_record(
        edge: EdgeUnderTest, home: Datacenter) -> None:
    bodies = [edge.client.body(messages=[{"role": "user", "content": "hi" * n}]) for n in (1, 50, 3, 700)]
    edge.prefer_home()
    assert await statuses(edge, *(request(edge.client.key, body) for body in bodies)) == [200] * 4
    assert [call.body["messages"] for call in home.seen] == [body["messages"] for body in bodies]
    await until(lambda: len(edge.records()) == 4)
    assert len({record.request_id for record in edge.records()}) == 4


async def test_a_head_is_good_for_streams_and_whole_answers_alike(edge: EdgeUnderTest) -> None:
    async with edge.client.connection() as connection:
        for stream in (False, True, True, False):
            await connection.send(edge.client.request(stream=stream))
            answer = await connection.read_answer()
            assert (answer.status, answer.is_whole) == (200, True)
            assert answer.headers["content-type"].startswith("text/event-stream" if stream else "application/json")


async def test_a_key_that_is_revoked_meanwhile_is_refused(edge: EdgeUnderTest) -> None:
    async with edge.client.connection() as connection:
        for status in (200, 200, 401):
            if status == 401:
                edge.directory.known.clear()
            await connection.send(edge.client.request())
            assert (await connection.read_answer()).status == status


async def test_another_key_and_a_foreign_team_are_seen(edge: EdgeUnderTest) -> None:
    mine, body = edge.client.request(), edge.client.body()
    stranger = request(ids.new_secret("sk_meridian_local"), body)
    foreign = edge.client.request("x-prime-team-id: team_other\r\n")
    assert await statuses(edge, mine, mine, stranger, stranger, mine, foreign, foreign, mine) == [
        200, 200, 401, 401, 200, 403, 403, 200]


@pytest.mark.parametrize("wrong", [b"", b"{", b"[]", b'{"model": 1}'])
async def test_a_wrong_body_behind_a_known_head_is_refused_and_the_next_one_served(
        edge: EdgeUnderTest, wrong: bytes) -> None:
    good = edge.client.request()
    assert await statuses(edge, good, request(edge.client.key, wrong), good) == [200, 400, 200]


async def test_requests_that_come_in_pieces_or_together_follow_one_that_came_whole(edge: EdgeUnderTest) -> None:
    whole = edge.client.request()
    async with edge.client.connection() as connection:
        for pieces in ([whole], [whole[:-3], whole[-3:]], [whole], [whole[:40], whole[40:]], [whole + whole], [whole]):
            for piece in pieces:
                await connection.send(piece)
            for _ in range(b"".join(pieces).count(b"POST ")):
                assert (await connection.read_answer()).status == 200


async def test_a_request_behind_one_that_is_being_answered_waits_its_turn(edge: EdgeUnderTest) -> None:
    async with edge.client.connection() as connection:
        await connection.send(edge.client.request())
        assert (await connection.read_answer()).status == 200
        await connection.send(edge.client.request(stream=True))
        await connection.read_head()
        await connection.send(edge.client.request())
        while await connection.read_chunk():
            pass
        assert (await connection.read_answer()).status == 200


async def test_the_last_request_of_a_connection_closes_it(edge: EdgeUnderTest) -> None:
    last = edge.client.request("connection: close\r\n")
    async with edge.client.connection() as connection:
        for data in (edge.client.request(), edge.client.request(), last):
            await connection.send(data)
            assert (await connection.read_answer()).status == 200
        assert await connection.is_closed()


async def test_other_routes_and_hot_ones_share_a_connection(edge: EdgeUnderTest) -> None:
    listing = b"GET /v1/models HTTP/1.1\r\nhost: edge\r\n\r\n"
    hot = edge.client.request()
    assert await statuses(edge, hot, hot, listing, hot, listing, hot) == [200] * 6


async def test_a_client_id_is_echoed_for_each_request(edge: EdgeUnderTest) -> None:
    async def echoed(connection: Any, name: str) -> Any:
        await connection.send(edge.client.request(f"x-client-request-id: {name}\r\n"))
        return (await connection.read_answer()).headers["x-client-request-id"]

    async with edge.client.connection() as connection:
        assert [await echoed(connection, name) for name in ("one", "one", "two", "one")] == ["one", "one", "two", "one"]

"""`GET /key`, `/credits` and `/generation` of an edge, answered by the real control plane."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from decimal import Decimal
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from control_plane.contracts import ids
from control_plane.contracts.account import KeyAccount
from control_plane.contracts.clock import SystemClock
from control_plane.contracts.keys import Principal
from control_plane.contracts.usage import Attempt, Outcome
from edge_api import errors
from edge_api.account.desk import DEADLINE_S, MAX_ASKED, MAX_OF_A_TEAM, AccountDesk
from edge_api.errors import Refusal
from edge_api.identity import ControlPlaneLink
from tests.integration.control_plane.simulated import EAST, WEST
from tests.integration.edge_api.account.conftest import Guest, House
from tests.integration.edge_api.control_plane import listening

PATHS = ["/key", "/credits", "/generation?id=gen-0"]


def error_of(answer: httpx.Response) -> dict[str, Any]:
    error: dict[str, Any] = answer.json()["error"]
    assert set(error) >= {"message", "type", "param", "code"}
    return error


@pytest.mark.parametrize("prefix", ["/v1", "/api/v1"])
async def test_a_key_sees_itself(guest: Guest, prefix: str) -> None:
    answer = await guest.get("/key", prefix)
    assert answer.status_code == 200, answer.text
    shown = answer.json()["data"]
    assert (shown["label"], shown["team_id"], shown["scopes"]) == (guest.key.hint, guest.key.team_id, ["inference"])
    assert (shown["usage"], shown["limit"], shown["limit_reset"]) == (0, None, None)


async def test_usage_counts_for_the_key_and_for_the_team(guest: Guest) -> None:
    record = guest.record()
    await guest.house.ship(record)
    cost = float(record.cost_usd)
    key, credits = (await guest.get("/key")).json()["data"], (await guest.get("/credits")).json()["data"]
    assert {key[name] for name in ("usage", "usage_daily", "usage_weekly", "usage_monthly")} == {cost}
    assert credits == {"total_credits": 0, "total_usage": cost}


async def test_credits_and_budgets_are_shown(guest: Guest) -> None:
    api, operator = guest.house.replica.client, guest.house.operator
    credited = await api.post(f"/operator/v1/teams/{guest.key.team_id}/credits",
                              json={"amount_usd": "500", "reason": "test"}, headers=operator)
    assert credited.status_code < 300, credited.text
    budget = await api.put(
        f"/operator/v1/budgets/key/{guest.key.id}/monthly", json={"limit_usd": "50"}, headers=operator)
    assert budget.status_code < 300, budget.text
    record = guest.record()
    await guest.house.ship(record)
    key = (await guest.get("/key")).json()["data"]
    assert (key["limit"], key["limit_reset"]) == (50, "monthly")
    assert Decimal(str(key["limit_remaining"])) == 50 - Decimal(record.cost_usd)
    assert (await guest.get("/credits")).json()["data"]["total_credits"] == 500


async def test_a_generation_is_found_by_each_of_its_names(guest: Guest) -> None:
    record = guest.record(attempts=[Attempt(WEST, 503), Attempt(EAST, 200)], dialect="messages", session="s1")
    await guest.house.ship(record)
    name = record.request_id.hex
    for asked in (f"gen_{name}", f"gen-{name}", f"req_{name}", name, str(record.request_id)):
        shown = (await guest.get(f"/generation?id={asked}")).json()["data"]
        assert (shown["id"], shown["model"], shown["api_type"], shown["session_id"]) == (
            f"gen_{name}", record.model_id, "messages", "s1")
    assert (shown["tokens_prompt"], shown["native_tokens_cached"], shown["tokens_completion"]) == (1_000, 600, 50)
    assert shown["total_cost"] == float(record.cost_usd)
    assert shown["cache_discount"] == float(600 * (Decimal("0.0000006") - Decimal("0.00000011")))
    assert shown["attempts"] == [{"datacenter": WEST, "region": WEST, "status": 503},
                                 {"datacenter": EAST, "region": EAST, "status": 200}]
    assert shown["data_region"] == EAST


async def test_what_was_not_billed_saved_nothing(guest: Guest) -> None:
    record = guest.record(outcome=Outcome.EDGE_LOST)
    await guest.house.ship(record)
    shown = (await guest.get(f"/generation?id={record.request_id}")).json()["data"]
    assert (shown["total_cost"], shown["cache_discount"]) == (0, 0)


async def test_a_generation_that_may_still_come_is_asked_for_again(guest: Guest) -> None:
    answer = await guest.get(f"/generation?id=gen_{ids.uuid7().hex}")
    assert (answer.status_code, error_of(answer)["code"]) == (404, "generation_not_found")
    assert (answer.headers["retry-after"], answer.headers["x-should-retry"]) == ("1", "true")


@pytest.mark.parametrize("name", ["gen-01JE6Z9V7Q4K", "chatcmpl-1", "018bcfe5680070e6b46f69a3377cec8e"])
async def test_a_generation_that_never_comes_is_not(guest: Guest, name: str) -> None:
    answer = await guest.get(f"/generation?id={name}")
    assert (answer.status_code, answer.headers["x-should-retry"]) == (404, "false")
    assert "retry-after" not in answer.headers


async def test_another_teams_generation_is_none(guest: Guest) -> None:
    record = guest.record()
    await guest.house.ship(record)
    other = await guest.house.guest("other")
    assert (await other.get(f"/generation?id={record.request_id}")).status_code == 404
    assert (await guest.get(f"/generation?id={record.request_id}")).status_code == 200


async def test_the_id_must_be_named(guest: Guest) -> None:
    answer = await guest.get("/generation")
    assert (answer.status_code, error_of(answer)["param"]) == (400, "id")


async def test_every_answer_names_the_request_and_the_team(guest: Guest) -> None:
    for path in PATHS:
        answer = await guest.get(path)
        assert answer.headers["x-billed-team"] == guest.key.team_id
        assert answer.headers["x-request-id"] == answer.headers["request-id"]


async def test_anthropics_header_is_as_good(guest: Guest) -> None:
    answer = await guest.house.client.get("/v1/key", headers={"x-api-key": guest.key.secret})
    assert answer.status_code == 200


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("headers", [
    {}, {"authorization": "Basic x"}, {"authorization": "Bearer "}, {"authorization": "Bearer sk_meridian_local_x"},
    {"x-api-key": ids.new_secret("sk_meridian_local")}])
async def test_without_a_good_key_there_is_no_account(house: House, path: str, headers: dict[str, str]) -> None:
    answer = await house.client.get(f"/v1{path}", headers=headers)
    assert (answer.status_code, error_of(answer)["code"]) == (401, "invalid_api_key")
    assert "x-billed-team" not in answer.headers


async def test_another_teams_name_in_the_header_is_refused(guest: Guest) -> None:
    assert (await guest.get("/key", **{"x-prime-team-id": guest.key.team_id})).status_code == 200
    answer = await guest.get("/key", **{"x-prime-team-id": "team_other"})
    assert (answer.status_code, error_of(answer)["code"]) == (403, "team_mismatch")


@pytest.mark.parametrize("path", ["/key", "/credits", "/generation?id=01a22ded-22ac-735c-b393-e0a63c86603c"])
async def test_while_the_control_plane_is_away_accounts_are_unavailable_never_unauthorised(
        guest: Guest, path: str) -> None:
    assert (await guest.get("/key")).status_code == 200
    await guest.house.gate.close()
    began_s = time.monotonic()
    answer = await guest.get(path)
    assert (answer.status_code, error_of(answer)["code"]) == (503, "account_unavailable")
    assert answer.headers["retry-after"]
    assert answer.headers["x-billed-team"] == guest.key.team_id
    assert time.monotonic() - began_s < DEADLINE_S + 0.5


async def test_an_unknown_key_cannot_be_judged_while_the_control_plane_is_away(guest: Guest) -> None:
    await guest.house.gate.close()
    answer = await guest.get("/key")
    assert (answer.status_code, error_of(answer)["code"]) == (503, "key_check_unavailable")


async def test_only_so_many_questions_are_asked_at_once(guest: Guest) -> None:
    await guest.get("/key")
    answers = await asyncio.gather(*(guest.get("/credits") for _ in range(3 * MAX_ASKED)))
    statuses = {answer.status_code for answer in answers}
    assert statuses == {200, 429}
    assert (await guest.get("/credits")).status_code == 200


async def test_one_teams_questions_leave_room_for_anothers(house: House, guest: Guest) -> None:
    others = await house.guest("other")
    async with mute() as silent:
        desk, principal = await desk_before(house, guest, silent)
        _, other = await desk_before(house, others, silent)
        asked = await asyncio.gather(*(desk.credits(principal) for _ in range(2 * MAX_ASKED)), desk.credits(other),
                                     return_exceptions=True)
        await desk._link.aclose()
    faults = [refused.fault for refused in asked if isinstance(refused, Refusal)]
    assert faults.count(errors.RATE_LIMITED) == 2 * MAX_ASKED - MAX_OF_A_TEAM
    assert faults[-1] is errors.ACCOUNT_UNAVAILABLE  # it was asked, and nobody answered


@pytest.mark.parametrize("path", ["/key", "/credits"])
async def test_head_works_where_get_does(guest: Guest, path: str) -> None:
    answer = await guest.house.client.head(f"/v1{path}", headers={"authorization": f"Bearer {guest.key.secret}"})
    assert (answer.status_code, answer.content) == (200, b"")


@asynccontextmanager
async def mute() -> AsyncIterator[str]:
    """A replica that takes requests and answers none."""
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()


async def desk_before(house: House, guest: Guest, *urls: str) -> tuple[AccountDesk, Principal]:
    """A desk that asks these replicas, and whom the guest's key speaks for."""
    link = ControlPlaneLink(list(urls), SystemClock())
    assert house.link.identity is not None
    link.use(house.link.identity)
    desk = AccountDesk(house.keyring, link, SystemClock(), lambda peer, _: peer)
    return desk, await desk.principal({"x-api-key": guest.key.secret}, "127.0.0.1")


async def asked_through(house: House, guest: Guest, *urls: str) -> tuple[KeyAccount | Refusal, float]:
    """The key's account by way of these replicas, or why not; and how long that took."""
    desk, principal = await desk_before(house, guest, *urls)
    began_s = time.monotonic()
    try:
        return await desk.key(principal), time.monotonic() - began_s
    except Refusal as refused:
        return refused, time.monotonic() - began_s
    finally:
        await desk._link.aclose()


async def test_a_control_plane_that_never_answers_costs_two_seconds(guest: Guest) -> None:
    async with mute() as first, mute() as second, mute() as third:
        found, took_s = await asked_through(guest.house, guest, first, second, third)
    assert isinstance(found, Refusal)
    assert found.fault is errors.ACCOUNT_UNAVAILABLE
    assert took_s < DEADLINE_S + 0.5


async def test_one_mute_replica_does_not_hide_the_other(guest: Guest) -> None:
    async with mute() as first:
        found, _ = await asked_through(guest.house, guest, first, guest.house.url)
    assert isinstance(found, KeyAccount)
    assert found.key_id == guest.key.id


async def test_an_answer_of_another_shape_is_no_answer(guest: Guest) -> None:
    async with listening(Starlette(routes=[Route("/edge/v1/{rest:path}", nonsense)])) as url:
        found, _ = await asked_through(guest.house, guest, url)
    assert isinstance(found, Refusal)


async def nonsense(_: Request) -> Response:
    return Response('{"key_id": 7}')

"""Which accounts bind a request, and what a grant owns."""

import asyncio

import pytest

from control_plane.contracts.keys import LimitScope
from edge_api.admission.grants import UNLIMITED
from edge_api.errors import Refusal
from edge_api.hot.services import Grant
from tests.unit.edge_api.admission.parts import Place, key_limit, need, principal, team_limit
from tests.unit.edge_api.builders import MODEL


def admitted(place: Place, *limits: object, **changes: object) -> Grant:
    granted = place.gate.admit_now(need(principal(*limits), **changes))  # type: ignore[arg-type]
    assert granted is not None
    return granted


def test_whom_nothing_limits_costs_nothing() -> None:
    place = Place()
    granted = place.gate.admit_now(need(principal()))
    assert granted is UNLIMITED
    granted.settle(10, 10)
    granted.release()
    assert granted.headers == b""
    assert place.figure("admission_open_grants") == 0


def test_a_limit_of_another_model_does_not_bind() -> None:
    place = Place()
    who = principal(key_limit(requests=1, model_id="other/model"))
    assert all(place.gate.admit_now(need(who)) for _ in range(5))


def test_key_and_team_limits_bind_together() -> None:
    place = Place()
    admitted(place, key_limit(requests=10), team_limit(requests=2))
    admitted(place, key_limit(requests=10), team_limit(requests=2))
    with pytest.raises(Refusal) as refused:
        admitted(place, key_limit(requests=10), team_limit(requests=2))
    assert refused.value.metadata == {"limit": "team.requests_per_minute"}


def test_a_models_limit_is_named_with_its_model() -> None:
    place = Place()
    admitted(place, key_limit(requests=1, model_id=MODEL))
    with pytest.raises(Refusal) as refused:
        admitted(place, key_limit(requests=1, model_id=MODEL))
    assert refused.value.metadata == {"limit": f"key.requests_per_minute ({MODEL})"}


def test_open_requests_are_bound_until_they_end() -> None:
    place = Place()
    first = admitted(place, key_limit(concurrency=1))
    with pytest.raises(Refusal) as refused:
        admitted(place, key_limit(concurrency=1))
    assert refused.value.metadata == {"limit": "key.concurrency"}
    first.release()
    admitted(place, key_limit(concurrency=1)).release()


def test_releasing_twice_frees_one_slot() -> None:
    place = Place()
    first = admitted(place, key_limit(concurrency=2))
    admitted(place, key_limit(concurrency=2))
    first.release()
    first.release()
    admitted(place, key_limit(concurrency=2))
    with pytest.raises(Refusal):
        admitted(place, key_limit(concurrency=2))


def test_a_concurrency_of_nothing_lets_nothing_in() -> None:
    with pytest.raises(Refusal) as refused:
        admitted(Place(), key_limit(concurrency=0))
    assert not refused.value.fault.retry


def test_slots_in_use_are_not_forgotten() -> None:
    place = Place()
    first = admitted(place, key_limit(concurrency=1))
    place.clock.advance(500)
    place.tend()
    with pytest.raises(Refusal):
        admitted(place, key_limit(concurrency=1))
    first.release()


def test_a_grant_that_is_never_released_is_reaped() -> None:
    place = Place(longest_request_s=100.0)
    admitted(place, key_limit(concurrency=1))
    place.clock.advance(101)
    place.tend()
    admitted(place, key_limit(concurrency=1))
    assert place.figure("admission_reaped_total") == 1
    assert place.figure("admission_open_grants") == 1


def test_a_reaped_grant_may_still_be_released() -> None:
    place = Place(longest_request_s=100.0)
    first = admitted(place, key_limit(concurrency=1))
    place.clock.advance(101)
    place.tend()
    second = admitted(place, key_limit(concurrency=1))
    first.settle(5, 5)
    first.release()
    with pytest.raises(Refusal):
        admitted(place, key_limit(concurrency=1))
    second.release()


def test_the_tightest_limit_is_told() -> None:
    granted = admitted(Place(), key_limit(requests=100), team_limit(requests=10))
    assert b"x-ratelimit-limit-requests: 10\r\n" in granted.headers
    assert granted.headers.count(b"x-ratelimit-limit-requests") == 1


def test_refusals_are_counted_by_kind() -> None:
    place = Place()
    admitted(place, key_limit(requests=1, concurrency=5))
    for _ in range(3):
        with pytest.raises(Refusal):
            admitted(place, key_limit(requests=1, concurrency=5))
    assert place.figure("admission_refusals_total", kind="rate") == 3


def test_money_that_is_not_here_must_be_asked_for() -> None:
    assert Place().gate.admit_now(need(principal(money=[LimitScope.TEAM]), cost_nusd=5)) is None


async def test_with_nobody_to_ask_money_is_503_at_once() -> None:
    place = Place()
    with pytest.raises(Refusal) as refused:
        await place.gate.admit(need(principal(money=[LimitScope.TEAM]), cost_nusd=5))
    assert refused.value.fault.code == "admission_unavailable"


async def test_a_request_without_money_holds_no_slot() -> None:
    place = Place()
    who = principal(key_limit(concurrency=1), money=[LimitScope.KEY])
    for _ in range(3):
        with pytest.raises(Refusal) as refused:
            await place.gate.admit(need(who, cost_nusd=5))
        assert refused.value.status == 503


async def test_who_stops_waiting_for_money_holds_no_slot() -> None:
    place = Place()
    who = principal(key_limit(concurrency=1), money=[LimitScope.KEY])
    waiting = asyncio.create_task(place.gate.admit(need(who, cost_nusd=5)))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    admitted(place, key_limit(concurrency=1))


async def test_who_leaves_at_the_moment_of_being_let_in_holds_nothing() -> None:
    place = Place()
    who = principal(key_limit(concurrency=1), money=[LimitScope.KEY])
    purse = place.parts.bank.account(LimitScope.KEY, "key_1")
    waiting = asyncio.create_task(place.gate.admit(need(who, cost_nusd=5)))
    await asyncio.sleep(0)
    purse.purse.add("lease_1", 100)
    purse.serve()
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert purse.purse.free_nusd == 100
    admitted(place, key_limit(concurrency=1))


async def test_a_request_that_costs_nothing_needs_no_money() -> None:
    granted = await Place().gate.admit(need(principal(money=[LimitScope.TEAM]), cost_nusd=0))
    granted.settle(5, 0)
    granted.release()


def test_an_edge_that_ends_says_nothing_where_nobody_listens() -> None:
    place = Place()
    admitted(place, key_limit(requests=10, concurrency=5)).release()
    place.gate.put_back()
    asyncio.run(place.parts.aclose())

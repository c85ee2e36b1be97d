"""Limits, models and regions through the operator API, and how they reach edges."""

import asyncio
from typing import Any

import pytest

from control_plane.contracts.keys import LimitScope, RateLimit
from control_plane.tenancy.policy import MAX_LIMITS
from tests.integration.control_plane.replica import MODEL
from tests.integration.control_plane.simulated import EAST, WEST
from tests.integration.control_plane.tenancy.asking import Tenants

RPM = {"requests_per_minute": 60}


async def test_without_a_word_nothing_binds_a_key(tenants: Tenants) -> None:
    principal = await tenants.principal()
    assert (principal.limits, principal.allowed_models, principal.regions, principal.money_scopes) == (
        [], None, None, [])


async def test_a_key_is_bound_by_its_teams_limits_and_its_own(tenants: Tenants) -> None:
    await tenants.put("limits", team="acme", requests_per_minute=60, tokens_per_minute=1_000)
    await tenants.put("limits", key=tenants.key.id, model=MODEL, concurrency=2)
    assert (await tenants.principal()).limits == [
        RateLimit(scope=LimitScope.TEAM, scope_id=tenants.team.id, requests_per_minute=60, tokens_per_minute=1_000),
        RateLimit(scope=LimitScope.KEY, scope_id=tenants.key.id, model_id=MODEL, concurrency=2)]


async def test_another_keys_limit_does_not_bind(tenants: Tenants) -> None:
    other = await tenants.replica.key(tenants.team.id)
    await tenants.put("limits", key=other.id, **RPM)
    assert (await tenants.principal()).limits == []
    assert len((await tenants.principal(other.secret)).limits) == 1


async def test_setting_a_limit_again_changes_it_in_its_place(tenants: Tenants) -> None:
    first = (await tenants.put("limits", team="acme", **RPM)).json()
    again = (await tenants.put("limits", team=tenants.team.id, concurrency=3)).json()
    assert again["id"] == first["id"]
    (limit,) = (await tenants.get("limits"))["data"]
    assert (limit["requests_per_minute"], limit["concurrency"]) == (None, 3)


async def test_limits_set_at_once_end_as_one_of_them(tenants: Tenants) -> None:
    answers = await asyncio.gather(*(
        tenants.put("limits", team="acme", requests_per_minute=number) for number in range(1, 9)))
    assert {answer.status_code for answer in answers} == {200}
    assert len((await tenants.get("limits"))["data"]) == 1


async def test_a_removed_limit_binds_nobody(tenants: Tenants) -> None:
    await tenants.put("limits", team="acme", **RPM)
    await tenants.put("limits", team="acme", model=MODEL, **RPM)
    assert (await tenants.delete(f"limits?team=acme&model={MODEL}")).status_code == 204
    assert [limit.model_id for limit in (await tenants.principal()).limits] == [None]
    assert (await tenants.delete("limits?team=acme")).status_code == 204
    assert (await tenants.delete("limits?team=acme")).status_code == 404


@pytest.mark.parametrize("body", [
    {"team": "acme"}, RPM, {"team": "acme", "key": "key_1"} | RPM, {"team": "acme", "requests_per_minute": 0},
    {"team": "acme", "tokens_per_minute": -1}, {"team": "acme", "concurrency": 10**13}, {"team": "acme", "rpm": 5}])
async def test_a_limit_that_makes_no_sense_is_refused(tenants: Tenants, body: dict[str, Any]) -> None:
    assert (await tenants.put("limits", **body)).status_code == 422


@pytest.mark.parametrize("query", ["", "team=acme&key=key_1", "model=a/b"])
async def test_removing_needs_one_team_or_key(tenants: Tenants, query: str) -> None:
    answer = await tenants.delete(f"limits?{query}")
    assert (answer.status_code, answer.json()["code"]) == (400, "bad_target")


@pytest.mark.parametrize("body", [
    {"team": "nobody"}, {"key": "key_nobody"}, {"team": "acme", "model": "no/model"}])
async def test_what_there_is_not_cannot_be_limited(tenants: Tenants, body: dict[str, Any]) -> None:
    assert (await tenants.put("limits", **body, **RPM)).status_code == 404


async def test_a_key_has_a_bounded_number_of_limits(tenants: Tenants) -> None:
    models = [{"id": f"sim/m{number}", "display_name": "M", "owned_by": "sim", "context_window": 8_192,
               "max_output_tokens": 4_096, "price": {"version": f"pv_m{number}", "input_usd": "0",
                                                     "cached_input_usd": "0", "output_usd": "0"}}
              for number in range(MAX_LIMITS + 1)]
    assert (await tenants.put("topology", models=models)).status_code == 200
    answers = [await tenants.put("limits", team="acme", model=model["id"], **RPM) for model in models]
    assert [answer.status_code for answer in answers] == MAX_LIMITS * [200] + [400]
    assert answers[-1].json()["code"] == "too_many_limits"
    assert (await tenants.put("limits", team="acme", model="sim/m0", **RPM)).status_code == 200


async def test_limits_are_paged_and_asked_for_by_team_and_key(tenants: Tenants) -> None:
    await tenants.replica.team("other")
    await tenants.put("limits", team="other", **RPM)
    await tenants.put("limits", team="acme", **RPM)
    await tenants.put("limits", key=tenants.key.id, **RPM)
    first = await tenants.get("limits?limit=2")
    rest = await tenants.get(f"limits?limit=2&cursor={first['next_cursor']}")
    assert [len(first["data"]), len(rest["data"]), rest["next_cursor"]] == [2, 1, None]
    assert len((await tenants.get("limits?team=acme"))["data"]) == 2
    assert [limit["key_id"] for limit in (await tenants.get(f"limits?key={tenants.key.id}"))["data"]] == [
        tenants.key.id]


async def test_models_of_a_key_reach_edges(tenants: Tenants) -> None:
    assert (await tenants.put(f"keys/{tenants.key.id}/models", models=[MODEL])).json()["allowed_models"] == [MODEL]
    assert (await tenants.principal()).allowed_models == [MODEL]
    await tenants.put(f"keys/{tenants.key.id}/models", models=None)
    assert (await tenants.principal()).allowed_models is None


async def test_a_key_is_served_where_its_team_and_it_may_be(tenants: Tenants) -> None:
    await tenants.put("teams/acme/regions", regions=[EAST, WEST])
    assert (await tenants.principal()).regions == sorted([EAST, WEST])
    await tenants.put(f"keys/{tenants.key.id}/regions", regions=[WEST])
    assert (await tenants.principal()).regions == [WEST]
    await tenants.put("teams/acme/regions", regions=[EAST])
    assert (await tenants.principal()).regions == []


async def test_a_key_cannot_leave_its_teams_regions(tenants: Tenants) -> None:
    await tenants.put("teams/acme/regions", regions=[EAST])
    answer = await tenants.put(f"keys/{tenants.key.id}/regions", regions=[WEST])
    assert (answer.status_code, answer.json()["code"]) == (400, "no_region_left")
    made = await tenants.post("teams/acme/keys", name="ci", regions=[WEST])
    assert (made.status_code, made.json()["code"]) == (400, "no_region_left")


@pytest.mark.parametrize(("path", "body"), [
    ("models", {"models": ["no/model"]}), ("regions", {"regions": ["mars"]})])
async def test_a_typo_does_not_shut_a_key_out(tenants: Tenants, path: str, body: dict[str, Any]) -> None:
    assert (await tenants.put(f"keys/{tenants.key.id}/{path}", **body)).status_code == 404
    principal = await tenants.principal()
    assert (principal.allowed_models, principal.regions) == (None, None)


@pytest.mark.parametrize(("path", "body"), [("models", {"models": []}), ("regions", {"regions": []}), ("models", {})])
async def test_an_empty_list_is_no_bound(tenants: Tenants, path: str, body: dict[str, Any]) -> None:
    assert (await tenants.put(f"keys/{tenants.key.id}/{path}", **body)).status_code == 422


async def test_a_key_may_be_made_bound(tenants: Tenants) -> None:
    made = await tenants.post("teams/acme/keys", name="ci", allowed_models=[MODEL], regions=[EAST])
    principal = await tenants.principal(made.json()["secret"])
    assert (principal.allowed_models, principal.regions) == ([MODEL], [EAST])


async def test_a_team_has_one_salt_and_another_team_another(tenants: Tenants) -> None:
    second = await tenants.replica.key(tenants.team.id)
    stranger = await tenants.replica.key((await tenants.replica.team("other")).id)
    salts = [(await tenants.principal(secret)).cache_salt
             for secret in (tenants.key.secret, second.secret, stranger.secret)]
    assert salts[0] == salts[1] != salts[2]
    assert {len(salt) for salt in salts} == {43}


async def test_who_bound_what_is_in_the_audit_log(tenants: Tenants) -> None:
    await tenants.put("limits", team="acme", **RPM)
    await tenants.put(f"keys/{tenants.key.id}/models", models=[MODEL])
    await tenants.put("teams/acme/regions", regions=[EAST])
    await tenants.delete("limits?team=acme")
    actions = [event["action"] for event in (await tenants.get("audit"))["data"]]
    assert actions[:4] == ["limit.remove", "team.regions", "key.models", "limit.set"]

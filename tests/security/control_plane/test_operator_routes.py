"""Every route and every caller: nobody passes a door that is not theirs."""

import pytest

from control_plane.contracts import ids
from control_plane.contracts.enrolment import IdentityKind
from control_plane.contracts.keys import Scope
from control_plane.contracts.operator import OperatorScope
from control_plane.contracts.problem import Problem
from tests.integration.control_plane.replica import Replica, bearer
from tests.security.control_plane.doors import SCOPES, doors

OPEN = {
    "GET /healthz", "GET /readyz", "GET /metrics", "GET /openapi.json", "GET /docs", "GET /docs/oauth2-redirect",
    "GET /redoc", "POST /enrol/v1"}
OPERATOR_DOORS = doors(*SCOPES)
GUARDED_DOORS = doors(*SCOPES, "team")


def test_every_route_has_one_guard_or_is_meant_to_be_open() -> None:
    strays = [str(door) for door in doors() if len(door.guards) != (0 if str(door) in OPEN else 1)]
    assert strays == []


def test_every_path_for_operators_machines_and_teams_has_the_guard_of_its_kind() -> None:
    kinds = {"/operator/": set(SCOPES), "/edge/": {"edge"}, "/agent/": {"agent"}, "/api/": {"team"}}
    strays = [str(door) for door in doors() for prefix, kind in kinds.items()
              if door.path.startswith(prefix) and not set(door.guards) <= kind]
    assert strays == []


def test_whatever_changes_something_needs_more_than_reading() -> None:
    strays = [str(door) for door in OPERATOR_DOORS if door.method != "GET" and door.guards == ("read",)]
    assert strays == []


async def test_no_guarded_route_answers_without_a_token(replica: Replica) -> None:
    for door in GUARDED_DOORS:
        answer = await replica.client.request(door.method, door.address)
        assert (str(door), answer.status_code) == (str(door), 401)
        assert Problem.model_validate_json(answer.content).code == "unauthenticated"


@pytest.mark.parametrize("authorization", [
    "Bearer", "Bearer ", "Basic b2xnYTpvbGdh", "oper_meridian_local_x", "Bearer oper_meridian_local_x",
    "Bearer sk_meridian_local_x", "Bearer \u00e9", "Bearer ' OR 1=1 --"])
async def test_no_guarded_route_takes_what_is_no_token(replica: Replica, authorization: str) -> None:
    for door in GUARDED_DOORS:
        answer = await replica.client.request(
            door.method, door.address, headers=[(b"authorization", authorization.encode("latin-1"))])
        assert (str(door), answer.status_code) == (str(door), 401)


async def test_no_guarded_route_takes_a_well_formed_token_that_nobody_issued(replica: Replica) -> None:
    for prefix in ("oper_meridian_local", "sk_meridian_local", "enrol_meridian_local"):
        for door in GUARDED_DOORS:
            answer = await replica.client.request(
                door.method, door.address, headers=bearer(ids.new_secret(prefix)))
            assert (str(door), answer.status_code) == (str(door), 401)


async def test_no_operator_route_takes_a_teams_key(replica: Replica) -> None:
    key = await replica.key((await replica.team()).id, *Scope)
    for door in OPERATOR_DOORS:
        answer = await replica.client.request(door.method, door.address, headers=bearer(key.secret))
        assert (str(door), answer.status_code) == (str(door), 401)


async def test_an_enrolment_token_opens_nothing_else(replica: Replica) -> None:
    token = await replica.enrolment_token(IdentityKind.EDGE, "us-east-1")
    for door in GUARDED_DOORS:
        answer = await replica.client.request(door.method, door.address, headers=bearer(token))
        assert (str(door), answer.status_code) == (str(door), 401)


@pytest.mark.parametrize("scope", OperatorScope)
async def test_an_operator_passes_exactly_the_doors_of_their_scope(replica: Replica, scope: OperatorScope) -> None:
    headers = await replica.operator(scope)
    passed, refused = set(), set()
    for door in OPERATOR_DOORS:
        answer = await replica.client.request(door.method, door.address, headers=headers)
        (refused if answer.status_code == 403 else passed).add(door)
        assert answer.status_code not in (401, 500), str(door)
    rank = SCOPES.index(scope.value)
    assert passed == {door for door in OPERATOR_DOORS if SCOPES.index(door.guards[0]) <= rank}
    assert refused == set(OPERATOR_DOORS) - passed


async def test_an_unknown_path_and_a_wrong_method_say_so_in_the_same_shape(replica: Replica) -> None:
    missing = await replica.client.get("/operator/v1/nothing")
    wrong = await replica.client.delete("/healthz")
    assert (missing.status_code, missing.json()["code"]) == (404, "not_found")
    assert (wrong.status_code, wrong.json()["code"]) == (405, "method_not_allowed")


async def test_a_refused_body_is_never_repeated(replica: Replica) -> None:
    answer = await replica.client.post(
        "/enrol/v1", json={"token": {"my": "s3cret-value"}, "kind": "edge", "public_key": "k"})
    assert answer.status_code == 422
    assert "s3cret-value" not in answer.text

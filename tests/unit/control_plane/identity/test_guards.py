"""Scopes and bearer tokens."""

import pytest
from starlette.requests import Request

from control_plane.contracts.operator import OperatorScope
from control_plane.errors import Unauthenticated
from control_plane.identity.guards import RANK, OperatorIdentity, bearer_token

READ, OPERATE, ADMIN = OperatorScope


def holder(*scopes: OperatorScope) -> OperatorIdentity:
    return OperatorIdentity("token_1", "olga", frozenset(scopes))


def asking(authorization: str | None) -> Request:
    headers = [] if authorization is None else [(b"authorization", authorization.encode("latin-1"))]
    return Request({"type": "http", "headers": headers})


@pytest.mark.parametrize(("held", "wanted", "may"), [
    (READ, READ, True), (READ, OPERATE, False), (READ, ADMIN, False),
    (OPERATE, READ, True), (OPERATE, OPERATE, True), (OPERATE, ADMIN, False),
    (ADMIN, READ, True), (ADMIN, OPERATE, True), (ADMIN, ADMIN, True)])
def test_a_scope_includes_the_lower_ones_and_no_higher(held: OperatorScope, wanted: OperatorScope, may: bool) -> None:
    assert holder(held).may(wanted) is may


def test_the_highest_of_several_scopes_counts() -> None:
    assert holder(READ, OPERATE).may(OPERATE)


def test_every_scope_has_a_rank() -> None:
    assert set(RANK) == set(OperatorScope)


def test_the_audit_log_knows_an_operator_by_name() -> None:
    assert holder(READ).actor == "operator:olga"


@pytest.mark.parametrize("header", ["Bearer abc", "bearer abc", "Bearer  abc "])
def test_a_bearer_token_is_read(header: str) -> None:
    assert bearer_token(asking(header)) == "abc"


@pytest.mark.parametrize("header", [None, "", "Bearer", "Bearer ", "Basic abc", "abc"])
def test_anything_else_is_no_token(header: str | None) -> None:
    with pytest.raises(Unauthenticated):
        bearer_token(asking(header))

"""Tokens for operators and for new machines."""

import json

import pytest

from tests.unit.control_plane.cli.conftest import Meridian
from tests.unit.control_plane.cli.servers import OperatorServer


def test_an_operator_token_is_shown_once_and_reads_only_unless_told_otherwise(meridian: Meridian,
                                                                             api: OperatorServer) -> None:
    ran = meridian("tokens", "create", "--name", "dashboards")
    assert ran.out == "oper_meridian_local_new\n"
    assert ran.err.endswith("it is not shown again.\n")
    assert json.loads(api.calls[-1].body) == {"name": "dashboards", "scopes": ["read"], "ttl_s": 86_400}


def test_scopes_and_life_may_be_given(meridian: Meridian, api: OperatorServer) -> None:
    meridian("tokens", "create", "--name", "ci", "--scope", "read", "--scope", "operate", "--ttl", "2h")
    assert json.loads(api.calls[-1].body) == {"name": "ci", "scopes": ["read", "operate"], "ttl_s": 7_200}


@pytest.mark.parametrize("ttl", ["1s", "91d"])
def test_a_life_that_is_too_short_or_too_long_is_a_usage_error(meridian: Meridian, api: OperatorServer,
                                                                ttl: str) -> None:
    ran = meridian("tokens", "create", "--name", "ci", "--ttl", ttl)
    assert ran.code == 2
    assert ran.err.startswith("error: ttl: input should be")
    assert api.calls == []


def test_a_token_in_json_has_its_end(meridian: Meridian) -> None:
    assert set(meridian("tokens", "create", "--name", "ci", "-o", "json").json) == {"id", "token", "expires_at"}


def test_an_enrolment_token_names_what_it_lets_in(meridian: Meridian, api: OperatorServer) -> None:
    ran = meridian("enrolment-tokens", "create", "--kind", "agent", "--subject", "us-east-1-a")
    assert ran.out == "enrol_meridian_local_new\n"
    assert json.loads(api.calls[-1].body) == {"kind": "agent", "subject": "us-east-1-a", "ttl_s": 3_600}


def test_only_agents_and_edges_are_let_in(meridian: Meridian) -> None:
    assert meridian("enrolment-tokens", "create", "--kind", "human", "--subject", "x").code == 2


def test_an_enrolment_token_in_plain_is_one_value(meridian: Meridian) -> None:
    out = meridian("enrolment-tokens", "create", "--kind", "edge", "--subject", "us-east-1", "-o", "plain").out
    assert out == "TOKEN\nenrol_meridian_local_new\n"

"""Calls to the operator API: which replica answers, what is repeated, and what each refusal becomes."""

import socket
from collections.abc import Iterator

import pytest

from control_plane.cli.client import OperatorClient, segment
from control_plane.cli.errors import CommandFailed, Denied, ExitCode, Refused, Unreachable, UsageFault
from control_plane.cli.stack import ControlPlaneAccess
from control_plane.contracts.operations import OperationAnswer, OperationKind, OperationRequest
from control_plane.contracts.operator import Page, StatusView, TeamRequest, TeamView
from control_plane.contracts.problem import Problem
from tests.unit.control_plane.cli.servers import NOW, TOKEN, OperatorServer, Raw

STATUS = "/operator/v1/status"
TEAMS = "/operator/v1/teams"
DRAIN = OperationRequest(kind=OperationKind.DRAIN, datacenter="us-east-1", reason="test")
DROP = Raw(status=0)


@pytest.fixture
def second() -> Iterator[OperatorServer]:
    with OperatorServer() as server:
        yield server


def client(*urls: str, token: str = TOKEN, deadline_s: float = 5.0) -> OperatorClient:
    return OperatorClient(ControlPlaneAccess(list(urls), token), deadline_s)


def closed_url() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{probe.getsockname()[1]}"


def test_a_read_turns_to_the_next_replica_when_one_is_down(api: OperatorServer) -> None:
    with client(closed_url(), api.url) as calls:
        assert calls.get(STATUS, StatusView).snapshot_version == 1


def test_a_read_turns_to_the_next_replica_when_one_hangs_up(api: OperatorServer, second: OperatorServer) -> None:
    api.scripted.append(DROP)
    with client(api.url, second.url) as calls:
        assert calls.get(STATUS, StatusView).snapshot_version == 1
    assert len(second.calls) == 1


@pytest.mark.parametrize("status", [500, 502, 503])
def test_a_read_turns_to_the_next_replica_when_one_is_ill(api: OperatorServer, second: OperatorServer,
                                                          status: int) -> None:
    api.scripted.append(Raw(status))
    with client(api.url, second.url) as calls:
        assert calls.get(STATUS, StatusView).snapshot_version == 1


def test_an_order_that_may_have_been_carried_out_is_not_repeated(api: OperatorServer, second: OperatorServer) -> None:
    api.scripted.append(DROP)
    with client(api.url, second.url) as calls, pytest.raises(Unreachable, match="it may have been carried out"):
        calls.post(TEAMS, TeamRequest(name="A", slug="a"), TeamView)
    assert second.calls == []


def test_an_order_that_never_left_goes_to_the_next_replica(api: OperatorServer) -> None:
    with client(closed_url(), api.url) as calls:
        assert calls.post(TEAMS, TeamRequest(name="A", slug="a"), TeamView).slug == "a"


def test_an_order_that_was_turned_away_goes_to_the_next_replica(api: OperatorServer, second: OperatorServer) -> None:
    api.scripted.append(Raw(503))
    with client(api.url, second.url) as calls:
        calls.post(TEAMS, TeamRequest(name="A", slug="a"), TeamView)
    assert [team.slug for team in second.teams] == ["a"]


def test_an_order_that_failed_inside_is_not_repeated(api: OperatorServer, second: OperatorServer) -> None:
    api.scripted.append(Raw(500, Problem(code="internal", message="its log says why").model_dump_json().encode()))
    with client(api.url, second.url) as calls, pytest.raises(Unreachable, match="HTTP 500, its log says why"):
        calls.post(TEAMS, TeamRequest(name="A", slug="a"), TeamView)
    assert second.calls == []


def test_an_order_with_an_idempotency_key_is_repeated_with_the_same_key(api: OperatorServer,
                                                                         second: OperatorServer) -> None:
    api.scripted.append(DROP)
    with client(api.url, second.url) as calls:
        calls.post("/operator/v1/operations", DRAIN, OperationAnswer, idempotency_key="once")
    keys = [call.headers["idempotency-key"] for call in (*api.calls, *second.calls)]
    assert keys == ["once", "once"]


def test_when_nobody_answers_the_error_names_each_replica_and_why(api: OperatorServer) -> None:
    down = closed_url()
    api.scripted.append(Raw(503))
    with client(down, api.url) as calls, pytest.raises(Unreachable) as caught:
        calls.get(STATUS, StatusView)
    assert str(caught.value) == (f"no answer from the control plane at {down} (connection refused), "
                                 f"{api.url} (HTTP 503): is the stack up?")


def test_a_replica_that_says_nothing_is_given_up_at_the_deadline() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with client(url, deadline_s=0.2) as calls, pytest.raises(Unreachable, match="no answer in time"):
            calls.get(STATUS, StatusView)


@pytest.mark.parametrize(("url", "said"), [
    ("localhost:80", "not an http address"), ("http://a:b", "is no address"),
    ("http://nohost.invalid", "cannot connect"),
])
def test_an_address_that_is_none_is_said_so(url: str, said: str) -> None:
    with client(url) as calls, pytest.raises(CommandFailed, match=said):
        calls.get(STATUS, StatusView)


def test_proxies_of_the_environment_are_not_used(api: OperatorServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", closed_url())
    with client(api.url) as calls:
        assert calls.get(STATUS, StatusView).lineage == 1


def test_a_wrong_token_is_denied_with_the_reason(api: OperatorServer) -> None:
    with client(api.url, token="wrong") as calls, pytest.raises(Denied) as caught:
        calls.get(STATUS, StatusView)
    assert str(caught.value) == "the operator token was not accepted: no such token"
    assert caught.value.exit_code is ExitCode.FAILED


def test_a_refusal_by_a_rule_carries_its_numbers(api: OperatorServer) -> None:
    problem = Problem(code="unsafe_change", message="no", rule="last_healthy_datacenter", numbers={"healthy": "1"})
    api.scripted.append(Raw(409, problem.model_dump_json().encode()))
    with client(api.url) as calls, pytest.raises(Refused) as caught:
        calls.get(STATUS, StatusView)
    assert caught.value.report().model_dump() == {
        "code": "unsafe_change", "message": "no", "exit_code": 3, "rule": "last_healthy_datacenter",
        "numbers": {"healthy": "1"}}


@pytest.mark.parametrize(("status", "kind"), [(400, UsageFault), (422, UsageFault), (403, Denied), (404, Denied),
                                              (409, Denied)])
def test_a_problem_keeps_its_words(api: OperatorServer, status: int, kind: type[CommandFailed]) -> None:
    api.scripted.append(Raw(status, Problem(code="c", message="so it is").model_dump_json().encode()))
    with client(api.url) as calls, pytest.raises(kind, match=r"^so it is$"):
        calls.get(STATUS, StatusView)


def test_an_error_that_is_no_problem_keeps_its_status(api: OperatorServer) -> None:
    api.scripted.append(Raw(418, b"<html>"))
    with client(api.url) as calls, pytest.raises(Denied, match="HTTP 418"):
        calls.get(STATUS, StatusView)


def test_an_answer_of_another_shape_names_the_field(api: OperatorServer) -> None:
    api.scripted.append(Raw(200, b'{"lineage": 1}'))
    with client(api.url) as calls, pytest.raises(CommandFailed, match=r"\(snapshot_version\): compare the versions"):
        calls.get(STATUS, StatusView)


def team(number: int) -> TeamView:
    return TeamView(id=f"team_{number}", slug=f"t{number}", name="T", created_at=NOW)


def test_pages_are_read_until_the_last(api: OperatorServer) -> None:
    api.teams = [team(number) for number in range(250)]
    with client(api.url) as calls:
        found = list(calls.pages(TEAMS, Page[TeamView], 1_000))
    assert found == api.teams
    assert [call.query["limit"] for call in api.calls] == [["100"], ["100"], ["100"]]


def test_no_more_is_read_than_was_asked_for(api: OperatorServer) -> None:
    api.teams = [team(number) for number in range(250)]
    with client(api.url) as calls:
        assert len(list(calls.pages(TEAMS, Page[TeamView], 120))) == 120
    assert [call.query["limit"] for call in api.calls] == [["100"], ["20"]]


def test_a_server_that_never_ends_its_pages_does_not_hold_us(api: OperatorServer) -> None:
    api.scripted.append(Raw(200, b'{"data": [], "next_cursor": "again"}'))
    with client(api.url) as calls:
        assert list(calls.pages(TEAMS, Page[TeamView], 10)) == []


def test_what_was_typed_stays_one_segment_of_the_path() -> None:
    assert segment("../status?x=1") == "..%2Fstatus%3Fx%3D1"

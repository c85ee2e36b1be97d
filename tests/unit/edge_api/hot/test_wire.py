"""What is the same in every request to one place, and that it is remembered for the right one."""

from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest

from control_plane.contracts.clock import ManualClock
from edge_api.admission.unlimited import NoAdmission
from edge_api.dialects.base import Upstream
from edge_api.hot.fields import ChatFields
from edge_api.hot.hotpath import MAX_PLACES, HotPath
from edge_api.hot.services import Limits, Services
from edge_api.hot.wire import place_of, session_headers, trace_headers
from edge_api.metering.outbox import Outbox
from edge_api.metrics import Metrics
from edge_api.open_requests import OpenRequests
from edge_api.routing.choose import Chooser
from edge_api.routing.health import Health
from edge_api.routing.retry import RetryBudget
from edge_api.routing.session import session_key
from edge_api.routing.table import build_table
from edge_api.snapshot.holder import TableHolder
from tests.integration.edge_api.hot.conftest import Directory
from tests.unit.edge_api.builders import MODEL, snapshot

ROUTE = build_table(snapshot()).models[MODEL].routes[0]
REQUEST_ID = UUID("019ac7aa-0000-7000-8000-00000000002a")
OWN = b"traceparent: 00-019ac7aa000070008000" + b"00000000002a-800000000000002a-01\r\n"
PARENT = b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00"


def hot_path(directory: Path) -> HotPath:
    clock, metrics = ManualClock(), Metrics()
    outbox = Outbox(directory, 1 << 20, 1 << 20, metrics)
    outbox.close()
    return HotPath(Services(
        table=TableHolder(), keyring=Directory(), chooser=Chooser(Health(clock), metrics), retries=RetryBudget(),
        outbox=outbox, open_requests=OpenRequests(), clock=clock, limits=Limits(), metrics=metrics,
        session_key=session_key, admission=NoAdmission(), client_address=lambda peer, _: peer))


def test_heads_name_host_and_what_is_accepted() -> None:
    place = place_of(ROUTE)
    head = place.heads[Upstream.CHAT, False]
    assert head == (b"POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1:9000\r\n"
                    b"content-type: application/json\r\naccept: application/json\r\n")
    assert place.heads[Upstream.CHAT, True] == head.replace(b"accept: application/json", b"accept: text/event-stream")
    assert place.heads[Upstream.EMBEDDINGS, False] == head.replace(b"/chat/completions", b"/embeddings")
    assert place.named == b"x-meridian-datacenter: us-east-1\r\n"
    assert place.address == ("127.0.0.1", 9000, False)


def test_a_place_is_made_once_for_a_route(tmp_path: Path) -> None:
    hot = hot_path(tmp_path)
    assert hot.place(ROUTE) is hot.place(ROUTE)


def test_equal_places_of_another_table_are_not_mixed_up(tmp_path: Path) -> None:
    hot = hot_path(tmp_path)
    for port in range(9000, 9000 + 2 * MAX_PLACES):
        assert hot.place(replace(ROUTE, port=port)).address == ("127.0.0.1", port, False)


def test_a_clients_trace_is_passed_on() -> None:
    assert trace_headers({b"traceparent": PARENT}, REQUEST_ID) == b"traceparent: " + PARENT + b"\r\n"


def test_a_clients_trace_state_goes_with_its_trace() -> None:
    headers = {b"traceparent": PARENT, b"tracestate": b"vendor=" + b"x" * 505}
    assert trace_headers(headers, REQUEST_ID) == (
        b"traceparent: " + PARENT + b"\r\ntracestate: " + headers[b"tracestate"] + b"\r\n")


@pytest.mark.parametrize("state", [b"", b"vendor=" + b"x" * 506, b"a=\x00", b"a=\xc3\xa9", b"a=b\r\nevil: 1"])
def test_a_trace_state_that_is_none_is_left_out(state: bytes) -> None:
    headers = {b"traceparent": PARENT, b"tracestate": state}
    assert trace_headers(headers, REQUEST_ID) == b"traceparent: " + PARENT + b"\r\n"


@pytest.mark.parametrize("parent", [
    b"", b"nonsense", PARENT.upper(), PARENT + b"0", PARENT[:-1], PARENT + b"\n", b"ff" + PARENT[2:],
    b"00-" + b"0" * 32 + PARENT[35:], PARENT[:36] + b"0" * 16 + b"-01"])
def test_a_request_without_a_sound_trace_has_one_of_its_own_id(parent: bytes) -> None:
    assert trace_headers({b"traceparent": parent, b"tracestate": b"a=b"}, REQUEST_ID) == OWN
    assert trace_headers({}, REQUEST_ID) == OWN


def test_a_session_goes_upstream_under_its_key() -> None:
    assert session_headers("abc", {}, "team_1") == b"x-dynamo-session-id: abc\r\n"


def test_a_helpers_session_names_its_parent_under_the_key_that_the_parent_itself_has() -> None:
    parent = session_key({b"x-session-id": b"parent"}, ChatFields(model="m", messages=[]), "team_1")
    lines = session_headers("abc", {b"x-parent-session-id": b"parent"}, "team_1")
    assert lines == f"x-dynamo-session-id: abc\r\nx-dynamo-parent-session-id: {parent}\r\n".encode()

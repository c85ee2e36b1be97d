"""What goes upstream beside the body, as bytes: what is always the same for one place, and whose trace it is."""

import re
from typing import NamedTuple
from uuid import UUID

from edge_api.dialects.base import Upstream
from edge_api.routing.session import parent_key
from edge_api.routing.table import Route
from edge_api.upstream.pool import Address

SPAN_ID = (1 << 64) - 1
_is_traceparent = re.compile(
    rb"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}").fullmatch
_is_tracestate = re.compile(rb"[ -~]{1,512}").fullmatch


class Place(NamedTuple):
    """`heads` are a request's head as far as it is always the same, by kind and whether a stream is asked for; `named`
    is the header that tells a client where its answer was made."""

    address: Address
    heads: dict[tuple[Upstream, bool], bytes]
    named: bytes


def place_of(route: Route) -> Place:
    """A route's place. Nothing of the client's headers goes upstream but its trace."""
    heads = {
        (kind, streamed): (b"POST %b HTTP/1.1\r\nhost: %b:%d\r\ncontent-type: application/json\r\naccept: %b\r\n"
                           % (kind.encode(), route.host.encode(), route.port, accept))
        for kind in Upstream for streamed, accept in ((False, b"application/json"), (True, b"text/event-stream"))}
    return Place((route.host, route.port, route.tls), heads,
                 b"x-meridian-datacenter: %b\r\n" % route.datacenter_id.encode())


def session_headers(session: str, headers: dict[bytes, bytes], team_id: str) -> bytes:
    """The session that the request belongs to, and the one that this is a part of, for Dynamo's own affinity."""
    lines, parent = b"x-dynamo-session-id: %b\r\n" % session.encode(), parent_key(headers, team_id)
    return b"%bx-dynamo-parent-session-id: %b\r\n" % (lines, parent.encode()) if parent else lines


def trace_headers(headers: dict[bytes, bytes], request_id: UUID) -> bytes:
    """The trace that the request belongs to: its client's, or one of its own whose id is the request's."""
    parent = headers.get(b"traceparent")
    if parent is None or not _is_traceparent(parent):
        number = request_id.int
        return b"traceparent: 00-%032x-%016x-01\r\n" % (number, number & SPAN_ID)
    state = headers.get(b"tracestate", b"")
    return b"traceparent: %b\r\n%b" % (parent, b"tracestate: %b\r\n" % state if _is_tracestate(state) else b"")

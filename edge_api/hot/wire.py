"""What goes upstream beside the body, as bytes: what is always the same for one place, and whose trace it is."""

import re
from typing import NamedTuple
from uuid import UUID

from edge_api.routing.table import Route
from edge_api.upstream.pool import Address

_is_traceparent = re.compile(
    rb"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}").fullmatch
_is_tracestate = re.compile(rb"[ -~]{1,512}").fullmatch


class Place(NamedTuple):
    """`head` and `stream_head` are a request's head as far as it is always the same; `named` is the header that tells a
    client where its answer was made."""

    address: Address
    head: bytes
    stream_head: bytes
    named: bytes


def place_of(route: Route) -> Place:
    """A route's place. Nothing of the client's headers goes upstream but its trace."""
    start = (b"POST /v1/chat/completions HTTP/1.1\r\nhost: %b:%d\r\ncontent-type: application/json\r\naccept: "
             % (route.host.encode(), route.port))
    return Place((route.host, route.port, route.tls), start + b"application/json\r\n",
                 start + b"text/event-stream\r\n",
                 b"x-meridian-datacenter: %b\r\n" % route.datacenter_id.encode())


def trace_headers(headers: dict[bytes, bytes], request_id: UUID) -> bytes:
    """The trace that the request belongs to: its client's, or one of its own whose id is the request's."""
    parent = headers.get(b"traceparent")
    if parent is None or not _is_traceparent(parent):
        hexed = request_id.hex
        return b"traceparent: 00-%b-%b-01\r\n" % (hexed.encode(), hexed[16:].encode())
    state = headers.get(b"tracestate", b"")
    return b"traceparent: %b\r\n%b" % (parent, b"tracestate: %b\r\n" % state if _is_tracestate(state) else b"")

"""What is the same in every request to one place, as bytes."""

from typing import NamedTuple

from edge_api.routing.table import Route
from edge_api.upstream.pool import Address


class Place(NamedTuple):
    """`head` and `stream_head` are a request's head as far as it is always the same; `named` is the header that tells a
    client where its answer was made."""

    address: Address
    head: bytes
    stream_head: bytes
    named: bytes


def place_of(route: Route) -> Place:
    """A route's place. Nothing of the client's headers goes upstream but what is named in the heads."""
    start = (b"POST /v1/chat/completions HTTP/1.1\r\nhost: %b:%d\r\ncontent-type: application/json\r\naccept: "
             % (route.host.encode(), route.port))
    return Place((route.host, route.port, route.tls), start + b"application/json\r\n",
                 start + b"text/event-stream\r\n",
                 b"x-meridian-datacenter: %b\r\n" % route.datacenter_id.encode())

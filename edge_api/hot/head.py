"""What a request's head says, read once: for all requests of a connection that have it, if it is known."""

import re

from control_plane.contracts.keys import Principal
from edge_api.dialects.base import Dialect
from edge_api.known_head import KnownHead, known_head

Credential = tuple[bytes, bytes, str]
_is_client_id = re.compile(rb"[!-~]{1,512}").fullmatch


class Head:
    """`headers` have lower-case names. `credential` is what it shows, the secret in that and its digest, once read;
    `admits` is whom it was found to be good for. `echo` is the line by which the client finds its own id again."""

    __slots__ = ("admits", "chunked", "credential", "dialect", "echo", "expects_continue", "headers", "keep_alive")

    def __init__(self, dialect: Dialect, headers: dict[bytes, bytes], keep_alive: bool, chunked: bool) -> None:
        self.dialect, self.headers, self.keep_alive, self.chunked = dialect, headers, keep_alive, chunked
        self.expects_continue = b"expect" in headers and headers[b"expect"].lower() == b"100-continue"
        echo = headers.get(b"x-client-request-id")
        self.echo = b"x-client-request-id: %b\r\n" % echo if echo and _is_client_id(echo) else b""
        self.credential: Credential | None = None
        self.admits: Principal | None = None

    def known(self, data: bytes) -> KnownHead["Head"] | None:
        """This head by its bytes, which were parsed as one whole request; null if it says of its body or its connection
        more than a length."""
        headers = self.headers
        if not self.keep_alive or b"expect" in headers or b"transfer-encoding" in headers:
            return None
        learned = known_head(data, self)
        if learned is not None:
            del headers[b"content-length"]  # the next one's is another
        return learned

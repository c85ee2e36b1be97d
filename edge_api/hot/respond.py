"""Response heads of the hot path, as bytes. Nothing of the datacenter's own headers comes back."""

from uuid import UUID

from edge_api.errors import REASONS, Refusal

SSE_HEADERS = (b"content-type: text/event-stream; charset=utf-8\r\ncache-control: no-cache\r\n"
               b"x-accel-buffering: no\r\n")
CHUNKED = b"transfer-encoding: chunked\r\n"
LAST_CHUNK = b"0\r\n\r\n"
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


def generation_name(request_id: UUID) -> bytes:
    """What an answer is called, in its body and in its headers."""
    return b"gen_%032x" % request_id.int


def identity_headers(request_id: UUID, team_id: str) -> bytes:
    """Whose request it was and how to name it. `team_id` is empty before the key is known."""
    number = request_id.int
    billed = b"x-billed-team: %b\r\n" % team_id.encode("ascii", "replace") if team_id else b""
    # Anthropic's SDK reads `request-id`, OpenAI's `x-request-id`.
    return (b"x-request-id: req_%032x\r\nrequest-id: req_%032x\r\nx-generation-id: gen_%032x\r\n%b"
            % (number, number, number, billed))


def stream_head(common: bytes, chunked: bool) -> bytes:
    """The head of a stream; a client of HTTP/1.0 gets its body unframed."""
    return b"HTTP/1.1 200 OK\r\n" + SSE_HEADERS + (CHUNKED if chunked else b"") + common + b"\r\n"


def unary(named: bytes, common: bytes, body: bytes) -> bytes:
    """A whole JSON answer."""
    return (b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n%b%b\r\n%b"
            % (len(body), named, common, body))


def refusal(common: bytes, refused: Refusal, status: int, body: bytes) -> bytes:
    """A whole error answer; status and body are in the client's dialect."""
    extra = b"".join(b"%b: %b\r\n" % header for header in refused.headers())
    return (b"HTTP/1.1 %d %b\r\ncontent-type: application/json\r\ncontent-length: %d\r\n%b%b\r\n%b"
            % (status, REASONS.get(status, b"Error"), len(body), extra, common, body))


def chunk(data: bytes) -> bytes:
    """One chunk of a chunked body."""
    return b"%x\r\n%b\r\n" % (len(data), data)

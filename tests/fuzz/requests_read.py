"""How many requests some bytes are to a strict reader of RFC 9112: the most that an edge may make of them."""

import re

from edge_api.dialects.routes import HOT_ROUTES

_request_line = re.compile(rb"([A-Z]+) +([!-~]+) +HTTP/1\.([01])").fullmatch
_header = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):([\t\x20-\x7e\x80-\xff]*)").fullmatch
_chunk = re.compile(rb"([0-9A-Fa-f]{1,16})(?:;[^\r\n]*)?\r\n").match
_trailers = re.compile(rb"(?:[^\r\n]+\r\n)*\r\n").match


def hot_requests(data: bytes) -> int:
    """The whole requests for a hot route that stand in front of anything doubtful."""
    count, at = 0, 0
    while True:
        while data[at:at + 1] in (b"\r", b"\n"):  # line ends in front of a request are nothing
            at += 1
        end = data.find(b"\r\n\r\n", at)
        if end < 0:
            return count
        line, *fields = data[at:end].split(b"\r\n")
        asked, headers = _request_line(line), [_header(field) for field in fields]
        if asked is None or not all(headers):
            return count
        named = [(match[1].lower(), match[2].strip(b" ")) for match in headers if match]
        body_end = _body_end(data, end + 4, named, is_old=asked[3] == b"0")
        if body_end is None:
            return count
        path = asked[2].partition(b"?")[0]
        count += asked[1] == b"POST" and any(path.endswith(hot) for hot in HOT_ROUTES)
        at = body_end


def _body_end(data: bytes, at: int, headers: list[tuple[bytes, bytes]], is_old: bool) -> int | None:
    """Where the body ends; none, if it does not, or if nobody can say."""
    lengths = [value for name, value in headers if name == b"content-length"]
    codings = [value.lower() for name, value in headers if name == b"transfer-encoding"]
    if codings:
        return None if lengths or is_old or codings[-1] != b"chunked" else _chunks_end(data, at)
    if not lengths:
        return at
    if len(lengths) > 1 or not lengths[0].isdigit():
        return None
    end = at + int(lengths[0])
    return end if end <= len(data) else None


def _chunks_end(data: bytes, at: int) -> int | None:
    while (size := _chunk(data, at)) is not None:
        length = int(size[1], 16)
        if length == 0:
            trailers = _trailers(data, size.end())
            return None if trailers is None else trailers.end()
        at = size.end() + length + 2
        if data[at - 2:at] != b"\r\n":
            return None
    return None

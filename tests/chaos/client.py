"""One try of one request, as bytes on a connection of its own, and what its client makes of the answer.

Nothing is raised: whatever happens is a verdict. What may be tried again is what an SDK would try again: a connection
that was refused or broke, and an error that says so (`x-should-retry`, or `retryable` in a stream's error).
"""

import asyncio
import hashlib
import json
from dataclasses import dataclass, field, replace
from urllib.parse import urlsplit

from tests.chaos.history import Verdict
from tests.chaos.ways import Way, is_whole, text_of

READ_BYTES = 65_536
RETRIED_STATUSES = {408, 409, 429}  # and 5xx, where no header says otherwise


@dataclass(frozen=True)
class Heard:
    """What came back. Times are the event loop's."""

    verdict: Verdict
    retry: bool
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    tokens: int = 0
    digest: str = ""
    first_s: float | None = None
    fault: str = ""

    @property
    def wait_s(self) -> float | None:
        """How long the answer asks to wait before another try."""
        told_ms = self.headers.get("retry-after-ms")
        return float(told_ms) / 1000 if told_ms else None


class Answer:
    """The bytes of an answer while they come."""

    def __init__(self) -> None:
        self.head, self.body = b"", bytearray()
        self.first_s: float | None = None

    @property
    def status(self) -> int:
        return int(self.head.split(b" ", 2)[1]) if self.head else 0

    @property
    def headers(self) -> dict[str, str]:
        lines = self.head.decode("latin-1").split("\r\n")[1:]
        return {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines) if name}

    @property
    def is_chunked(self) -> bool:
        return self.headers.get("transfer-encoding") == "chunked"

    def content(self) -> bytes:
        """The body without its chunks' frames, as far as it came."""
        return dechunked(bytes(self.body)) if self.is_chunked else bytes(self.body)

    def is_complete(self) -> bool:
        """Whether HTTP says that all of it came."""
        if self.is_chunked:
            return self.body.endswith(b"0\r\n\r\n")
        return self.headers.get("content-length") == str(len(self.body))


async def ask(url: str, key: str, model: str, way: Way, question: str, tokens: int, deadline_s: float) -> Heard:
    """Asks once. Never raises."""
    answer = Answer()
    try:
        async with asyncio.timeout(deadline_s):
            await _exchange(url, key, {"model": model, **way.body(question, tokens)}, way.path, answer)
    except TimeoutError:
        return replace(judge(way, answer, tokens), verdict=Verdict.HUNG, retry=True, fault=f"silent for {deadline_s} s")
    except (OSError, asyncio.IncompleteReadError) as error:
        if not answer.head:
            refused = isinstance(error, ConnectionRefusedError)
            return Heard(Verdict.UNREACHED if refused else Verdict.CUT, True, fault=type(error).__name__)
        return replace(judge(way, answer, tokens), verdict=Verdict.CUT, retry=True, fault=type(error).__name__)
    return judge(way, answer, tokens)


def judge(way: Way, answer: Answer, wanted: int) -> Heard:
    """What the bytes amount to."""
    content, headers, status = answer.content(), answer.headers, answer.status
    if status != 200:
        return Heard(Verdict.REFUSED, may_retry(status, headers), status, headers, fault=error_code(content))
    heard = Heard(Verdict.FINISHED, False, status, headers, first_s=answer.first_s)
    if not answer.is_complete():
        return replace(heard, verdict=Verdict.CUT, retry=True, fault="ended early",
                       **counted(text_of(way, content) if way.streamed else ""))
    heard = replace(heard, **counted(text_of(way, content)))
    if way.streamed and b'"retryable":' in content:
        return replace(heard, verdict=Verdict.REFUSED, retry=b'"retryable":true' in content,
                       fault=f"in the stream: {error_code(content)}")
    if not is_whole(way, content):
        return replace(heard, verdict=Verdict.WRONG, fault="no end mark")
    if heard.tokens != wanted:
        return replace(heard, verdict=Verdict.WRONG, fault=f"{heard.tokens} tokens of {wanted}")
    return heard


def may_retry(status: int, headers: dict[str, str]) -> bool:
    """What an SDK decides by: the header if there is one, else the status."""
    told = headers.get("x-should-retry")
    if told is not None:
        return told == "true"
    return status in RETRIED_STATUSES or status >= 500


def error_code(content: bytes) -> str:
    """The code of an error, wherever in the answer it stands; its text is not worth a line in a history."""
    at = content.rfind(b'"code":"')
    return content[at + 8:].split(b'"', 1)[0].decode("latin-1") if at >= 0 else "no code"


def counted(text: str) -> dict[str, object]:
    """The fields that say what was delivered."""
    return {"tokens": len(text.split()), "digest": hashlib.sha256(text.encode()).hexdigest()[:16]}


def dechunked(body: bytes) -> bytes:
    """A chunked body's content; whatever follows the last whole chunk is taken as far as it came."""
    pieces, at = [], 0
    while (line_end := body.find(b"\r\n", at)) > 0:
        size = int(body[at:line_end], 16)
        pieces.append(body[line_end + 2:line_end + 2 + size])
        at = line_end + 2 + size + 2
    return b"".join(pieces)


async def _exchange(url: str, key: str, body: dict[str, object], path: str, answer: Answer) -> None:
    parts = urlsplit(url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    try:
        content = json.dumps(body).encode()
        writer.write((f"POST {path} HTTP/1.1\r\nhost: {parts.netloc}\r\nauthorization: Bearer {key}\r\n"
                      f"content-type: application/json\r\ncontent-length: {len(content)}\r\nconnection: close\r\n\r\n"
                      ).encode() + content)
        answer.head = (await reader.readuntil(b"\r\n\r\n"))[:-4]
        while piece := await reader.read(READ_BYTES):
            if answer.first_s is None:
                answer.first_s = asyncio.get_running_loop().time()
            answer.body += piece
    finally:
        writer.close()

"""Asks a datacenter for the token ids of a prompt, as its own template and tokenizer make them.

The frontend says them before the prefill when a stream asks for the annotation `token_ids`, so the question costs no
more than reading the prompt. The ids stay bytes, as JSON has them: a prompt of 140,000 tokens is never made into
integers.
"""

import re
from typing import NamedTuple

import msgspec
from msgspec import json

from edge_api.dialects.base import Upstream
from edge_api.resume.ask import FirstEvent, NoAnswer, ask
from edge_api.upstream.pool import Address, UpstreamPool

_is_ids = re.compile(rb"\d+(?:,\d+)*").fullmatch
_decode_object = json.Decoder(dict[str, msgspec.Raw]).decode
ANNOTATION = b"token_ids"
ASKED = {
    "stream": msgspec.Raw(b"true"),
    "max_tokens": msgspec.Raw(b"1"),  # should the end of the question come late, this is all that is generated
    "nvext": msgspec.Raw(b'{"annotations":["token_ids"]}'),
}
NOT_ASKED = ("max_completion_tokens", "min_tokens", "stream_options", "n", "best_of")


class PromptIds(NamedTuple):
    """`ids` are as JSON has them in a list, without brackets."""

    ids: bytes
    tokens: int


async def prompt_ids(pool: UpstreamPool, address: Address, upstream: Upstream, body: bytes, deadline_s: float,
                     headers: bytes = b"") -> PromptIds:
    """The ids of the prompt of `body`, a request as it goes upstream.

    Raises:
        NoAnswer: they could not be had. Its `status` and `body` are the datacenter's, if it refused.
    """
    event = await ask(pool, address, upstream, question(body), lambda: FirstEvent(ANNOTATION), deadline_s,
                      b"accept: text/event-stream\r\n" + headers)
    return read_event(event)


def question(body: bytes) -> bytes:
    """The request that asks for its own prompt's ids."""
    fields = _decode_object(body)
    for name in NOT_ASKED:
        fields.pop(name, None)
    return json.encode(fields | ASKED)


def read_event(event: bytes) -> PromptIds:
    """The ids in an annotation. It is a list as JSON, inside a string as JSON, in a comment: `: "[1,2]"`.

    Raises:
        NoAnswer: there are none.
    """
    _, _, said = event.rstrip(b"\n").rpartition(b"\n")
    quoted = said.partition(b":")[2].strip()
    ids = quoted.strip(b'"').strip(b"[]").replace(b" ", b"")
    if not _is_ids(ids):
        raise NoAnswer("the prompt's ids are not as expected", 200)
    return PromptIds(ids, ids.count(b",") + 1)


def written_ids(prompt: msgspec.Raw) -> bytes | None:
    """The ids of a prompt that its client wrote as ids; none if it did not."""
    listed = bytes(prompt).translate(None, b" \t\r\n")
    ids = listed[1:-1]
    return ids if listed.startswith(b"[") and _is_ids(ids) else None

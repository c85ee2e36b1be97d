"""Asks the grammar service beside an engine what is left of a grammar once a text was delivered."""

from urllib.parse import urlsplit

import msgspec
from msgspec import json

from edge_api.hot.fields import NOTHING
from edge_api.resume.ask import NoAnswer, WholeReply, ask
from edge_api.resume.demand import Constraint
from edge_api.upstream.pool import Address, UpstreamPool

PATH = "/v1/residual"


class NoGrammar(Exception):
    """There is no grammar of what is left, now or later: its kind is unknown, or the text does not fit it."""


class _Residual(msgspec.Struct, gc=False):
    grammar: str


_decode = json.Decoder(_Residual).decode


async def residual(pool: UpstreamPool, grammar_url: str, constraint: Constraint, delivered: str,
                   deadline_s: float) -> str:
    """The grammar of all that may follow `delivered`, as EBNF.

    Raises:
        NoGrammar: there is none.
        NoAnswer: the service is away.
    """
    body = question(constraint, delivered)
    try:
        answer: bytes = await ask(pool, address_of(grammar_url), PATH, body, WholeReply, deadline_s)
        return _decode(answer).grammar
    except NoAnswer as error:
        if 400 <= error.status < 500:
            raise NoGrammar(f"the grammar service answered {error.status}") from None
        raise
    except msgspec.DecodeError as error:
        raise NoAnswer("the grammar service's answer is none", 200) from error


def question(constraint: Constraint, delivered: str) -> bytes:
    """The body of the question."""
    fields: dict[str, object] = {"kind": constraint.kind, "delivered": delivered}
    if constraint.value is not NOTHING:
        fields["value"] = constraint.value
    return json.encode(fields)


def address_of(url: str) -> Address:
    """Where the service at a URL is reached."""
    parts = urlsplit(url)
    tls = parts.scheme == "https"
    return parts.hostname or "", parts.port or (443 if tls else 80), tls

"""Whether a request that an engine could not bear was longer than its model's context window.

Dynamo checks no window: what its workers cannot hold is a bare 500. Only a body with more bytes than the window has
tokens can be too long, and only after such a 500 is a datacenter asked for the exact count, which costs no prefill.
"""

from edge_api import errors
from edge_api.dialects.base import Upstream
from edge_api.errors import Refusal
from edge_api.hot.failure import Failure, FailureKind
from edge_api.hot.request import Prepared
from edge_api.hot.splice import salted
from edge_api.resume.ask import NoAnswer
from edge_api.resume.prompt import prompt_ids
from edge_api.routing.table import RoutedModel
from edge_api.upstream.pool import Address, UpstreamPool

DEADLINE_S = 20.0


def may_be_too_long(failure: Failure, prepared: Prepared, model: RoutedModel) -> bool:
    """Whether it is worth asking."""
    is_500 = failure.kind is FailureKind.BROKEN and failure.status == 500
    return is_500 and prepared.length > model.context_window


async def length_refusal(pool: UpstreamPool, address: Address, prepared: Prepared, model: RoutedModel,
                         salt: str, headers: bytes) -> Refusal | None:
    """The refusal of a prompt that leaves no room for an answer; none if that is not what is wrong, or nobody can say.
    `salt` keeps the team's cached prefixes apart, where the engine does.
    """
    body = b"".join(salted(prepared.pieces, salt) if salt else prepared.pieces)
    try:
        prompt = await prompt_ids(pool, address, prepared.asked.upstream, body, DEADLINE_S, headers)
    except NoAnswer:
        return None
    if prompt.tokens < model.context_window:
        return None
    param = "messages" if prepared.asked.upstream is Upstream.CHAT else "prompt"
    return Refusal(errors.CONTEXT_LENGTH_EXCEEDED, f"the prompt has {prompt.tokens} tokens; this model's context "
                   f"window is {model.context_window} tokens, prompt and answer together", param)

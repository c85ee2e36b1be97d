"""The fields of a chat request that the edge itself reads. All others stay bytes and go upstream untouched."""

from typing import Annotated

import msgspec

NOTHING = msgspec.Raw()


class ChatFields(msgspec.Struct, gc=False):
    """Types are checked here, so that a wrong one is a 400 that names its field; values are the engine's to judge.

    Big fields stay raw slices of the request's own bytes. `nvext` and `cache_salt` are read only to be taken out:
    what they say is between the edge and the engine.
    """

    model: str
    messages: Annotated[list[msgspec.Raw], msgspec.Meta(min_length=1)]
    stream: bool | None = None
    stream_options: msgspec.Raw = NOTHING
    tools: list[msgspec.Raw] | None = None
    n: int | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    seed: int | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    user: str | None = None
    prompt_cache_key: str | None = None
    session_id: str | None = None
    nvext: msgspec.Raw = NOTHING
    cache_salt: msgspec.Raw = NOTHING

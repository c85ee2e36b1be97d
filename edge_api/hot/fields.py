"""The fields of a chat request that the edge itself reads. All others stay bytes and go upstream untouched."""

from typing import Annotated

import msgspec

NOTHING = msgspec.Raw()


class ChatFields(msgspec.Struct, gc=False):
    """Types are checked here, so that a wrong one is a 400 that names its field; values are the engine's to judge.

    Big fields stay raw slices of the request's own bytes. `nvext` and `cache_salt` are read only to be taken out:
    what they say is between the edge and the engine. A limit that is null is one that was not named, but its key is
    there.
    """

    model: str
    messages: Annotated[list[msgspec.Raw], msgspec.Meta(min_length=1)]
    stream: bool | None = None
    stream_options: msgspec.Raw = NOTHING
    tools: list[msgspec.Raw] | None = None
    n: int | None = None
    max_tokens: int | msgspec.UnsetType | None = msgspec.UNSET
    max_completion_tokens: int | msgspec.UnsetType | None = msgspec.UNSET
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

    @property
    def has_limit(self) -> bool:
        """Whether the client said how long the answer may be."""
        return isinstance(self.max_tokens, int) or isinstance(self.max_completion_tokens, int)

    @property
    def has_null_limit(self) -> bool:
        return self.max_tokens is None or self.max_completion_tokens is None

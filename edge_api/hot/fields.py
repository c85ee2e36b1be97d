"""The fields of a request that the edge itself reads. All others stay bytes and go upstream untouched."""

import re
from typing import Annotated

import msgspec
from msgspec import json

NOTHING, NULL = msgspec.Raw(), msgspec.Raw(b"null")
_decode_list = json.Decoder(list[msgspec.Raw]).decode
_is_list_of_texts = re.compile(rb'\s*\[\s*["\[]').match


class Fields(msgspec.Struct, gc=False, kw_only=True):
    """What every kind of request has. Types are checked here, so that a wrong one is a 400 that names its field; values
    are the engine's to judge.

    Big fields stay raw slices of the request's own bytes. `nvext` and `cache_salt` are read only to be taken out:
    what they say is between the edge and the engine. A limit that is null is one that was not named, but its key is
    there. `provider` is the edge's own: where the request may be served. `usage` is how OpenRouter's clients ask for
    what every answer has.
    """

    model: str
    stream: bool | None = None
    stream_options: msgspec.Raw = NOTHING
    n: int | None = None
    max_tokens: int | msgspec.UnsetType | None = msgspec.UNSET
    max_completion_tokens: int | msgspec.UnsetType | None = msgspec.UNSET
    temperature: float | None = None
    top_p: float | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    seed: int | None = None
    top_logprobs: int | None = None
    user: str | None = None
    prompt_cache_key: str | None = None
    session_id: str | None = None
    nvext: msgspec.Raw = NOTHING
    cache_salt: msgspec.Raw = NOTHING
    provider: msgspec.Raw = NOTHING
    service_tier: str | None = None
    safety_identifier: str | None = None
    prompt_cache_retention: str | None = None
    usage: msgspec.Raw = NOTHING
    stop: msgspec.Raw = NOTHING
    response_format: msgspec.Raw = NOTHING
    guided_json: msgspec.Raw = NOTHING
    guided_regex: msgspec.Raw = NOTHING
    guided_grammar: msgspec.Raw = NOTHING
    guided_choice: msgspec.Raw = NOTHING

    @property
    def is_constrained(self) -> bool:
        """Whether a grammar may rule the answer's text."""
        return (self.response_format is not NOTHING or self.guided_json is not NOTHING
                or self.guided_regex is not NOTHING or self.guided_grammar is not NOTHING
                or self.guided_choice is not NOTHING)

    @property
    def limit(self) -> int | None:
        """How long the client said the answer may be, in tokens; null if it did not."""
        limit = self.max_completion_tokens if isinstance(self.max_completion_tokens, int) else self.max_tokens
        return limit if isinstance(limit, int) else None

    @property
    def has_null_limit(self) -> bool:
        return self.max_tokens is None or self.max_completion_tokens is None

    @property
    def texts(self) -> int:
        """How many prompts these are: each has an answer of its own, as long as the limit says."""
        return 1

    @property
    def not_served(self) -> str:
        """The field that asks for what engines would pass over without a word; empty if there is none."""
        return ""

    @property
    def opening(self) -> list[msgspec.Raw]:
        """What stays the same while a conversation grows begins with these."""
        return []


class ChatFields(Fields, gc=False, kw_only=True):
    """A chat request. `response_format`, `tool_choice` and the rest are read again when a stream has to be resumed."""

    messages: Annotated[list[msgspec.Raw], msgspec.Meta(min_length=1)]
    tools: list[msgspec.Raw] | None = None
    logprobs: bool | None = None
    modalities: list[str] | None = None
    web_search_options: msgspec.Raw = NOTHING

    @property
    def not_served(self) -> str:
        if self.modalities is not None and self.modalities != ["text"]:
            return "modalities"
        return "" if self.web_search_options in (NOTHING, NULL) else "web_search_options"

    @property
    def opening(self) -> list[msgspec.Raw]:
        return self.messages


class PromptFields(Fields, gc=False, kw_only=True):
    """A request to complete a prompt: text, token ids, or a list of either. Frontends read `max_tokens` alone here."""

    prompt: msgspec.Raw
    logprobs: int | None = None
    echo: bool | None = None
    suffix: str | None = None
    best_of: int | None = None

    @property
    def limit(self) -> int | None:
        return self.max_tokens if isinstance(self.max_tokens, int) else None

    @property
    def texts(self) -> int:
        return _texts(self.prompt)

    @property
    def not_served(self) -> str:
        if self.best_of is not None and self.best_of != (self.n or 1):
            return "best_of"
        return "echo" if self.echo else "suffix" if self.suffix else ""

    @property
    def opening(self) -> list[msgspec.Raw]:
        return [self.prompt]


class EmbeddingFields(Fields, gc=False, kw_only=True):
    """A request for embeddings."""

    input: msgspec.Raw

    @property
    def texts(self) -> int:
        return _texts(self.input)

    @property
    def opening(self) -> list[msgspec.Raw]:
        return [self.input]


def _texts(raw: msgspec.Raw) -> int:
    """How many texts, or lists of token ids, these are. One list of ids is one."""
    return max(1, len(_decode_list(raw))) if _is_list_of_texts(raw) else 1

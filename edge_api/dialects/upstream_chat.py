"""Chat as datacenters speak it: the request that a translated dialect sends, and what it reads of the answer."""

from collections.abc import Callable, Iterator
from typing import Literal, TypeVar

import msgspec
from msgspec import UNSET, Raw, UnsetType, json

from edge_api.dialects.base import Asked, StreamVoice, Upstream
from edge_api.hot.answer import BadAnswer
from edge_api.hot.fields import ChatFields
from edge_api.hot.sse import EVENT_END, payload
from edge_api.hot.usage import CompletionDetails, PromptDetails

Value = TypeVar("Value")

# the request


class ImageUrl(msgspec.Struct, omit_defaults=True):
    """`url` may be a data URL."""

    url: str
    detail: str | UnsetType = UNSET


class TextPart(msgspec.Struct, tag="text"):
    """Text in a message."""

    text: str


class ImagePart(msgspec.Struct, tag="image_url"):
    """An image in a message."""

    image_url: ImageUrl


Content = str | list[TextPart | ImagePart]


class CalledFunction(msgspec.Struct):
    """`arguments` are JSON in a string."""

    name: str
    arguments: str


class Call(msgspec.Struct, tag="function"):
    """A call that an assistant made."""

    id: str
    function: CalledFunction


class Message(msgspec.Struct, omit_defaults=True):
    """One message of a conversation. A null content is said as such."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: Content | UnsetType | None = UNSET
    reasoning_content: str | UnsetType = UNSET
    tool_calls: list[Call] | UnsetType = UNSET
    tool_call_id: str | UnsetType = UNSET


def assistant(thought: list[str], said: list[str], calls: list[Call]) -> Message:
    """One turn of an assistant's: its content is null where it only called."""
    return Message("assistant", "\n".join(said) if said or not calls else None,
                   reasoning_content="\n".join(thought) or UNSET, tool_calls=calls or UNSET)


class Function(msgspec.Struct, omit_defaults=True):
    """A function that the model may call; `parameters` is a JSON schema."""

    name: str
    description: str | UnsetType = UNSET
    parameters: Raw | UnsetType = UNSET
    strict: bool | UnsetType = UNSET


class Tool(msgspec.Struct, tag="function"):
    """A tool that is offered."""

    function: Function


class NamedFunction(msgspec.Struct):
    """The name of a function."""

    name: str


class NamedChoice(msgspec.Struct, tag="function"):
    """The one function that has to be called."""

    function: NamedFunction


class NamedSchema(msgspec.Struct, omit_defaults=True):
    """A JSON schema and its name."""

    name: str
    schema: Raw
    description: str | UnsetType = UNSET
    strict: bool | UnsetType = UNSET


class ResponseFormat(msgspec.Struct, omit_defaults=True):
    """What form the answer has."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: NamedSchema | UnsetType = UNSET


def given(value: Value | None) -> Value | UnsetType:
    """What a client said; null says nothing."""
    return UNSET if value is None else value


def says(raw: Raw) -> bool:
    """Whether a raw value is there and not null."""
    return bytes(raw) not in (b"", b"null")


def json_schema(schema: Raw) -> ResponseFormat:
    """Answers that keep to the schema, where its name says nothing."""
    return ResponseFormat("json_schema", NamedSchema("answer", schema, strict=True))


def content_of(parts: list[TextPart | ImagePart]) -> Content:
    """The parts as a message's content: one string where all are text, as every chat template takes it."""
    texts = [part.text for part in parts if isinstance(part, TextPart)]
    return "\n".join(texts) if len(texts) == len(parts) else parts


class TemplateArgs(msgspec.Struct):
    """Whether to reason, by both names that chat templates know. The frontend's own `thinking` would do as well, but it
    overrules these, and a stream that goes on elsewhere after its reasoning says there that it is over by these."""

    enable_thinking: bool
    thinking: bool


class Chat(msgspec.Struct, omit_defaults=True, kw_only=True):
    """A whole request. What is unset is not sent. `provider` and `session_id` are for the edge itself."""

    model: str
    messages: list[Message]
    stream: bool | UnsetType = UNSET
    max_tokens: int | UnsetType = UNSET
    min_tokens: int | UnsetType = UNSET
    ignore_eos: bool | UnsetType = UNSET
    temperature: float | UnsetType = UNSET
    top_p: float | UnsetType = UNSET
    top_k: int | UnsetType = UNSET
    stop: list[str] | UnsetType = UNSET
    include_stop_str_in_output: bool | UnsetType = UNSET
    logprobs: bool | UnsetType = UNSET
    top_logprobs: int | UnsetType = UNSET
    tools: list[Tool] | UnsetType = UNSET
    tool_choice: str | NamedChoice | UnsetType = UNSET
    parallel_tool_calls: bool | UnsetType = UNSET
    response_format: ResponseFormat | UnsetType = UNSET
    chat_template_args: TemplateArgs | UnsetType = UNSET
    reasoning_effort: str | UnsetType = UNSET
    user: str | UnsetType = UNSET
    prompt_cache_key: str | UnsetType = UNSET
    session_id: str | UnsetType = UNSET
    service_tier: str | UnsetType = UNSET
    provider: Raw | UnsetType = UNSET


_decode_fields = json.Decoder(ChatFields).decode


def asked_of(chat: Chat, voice: Callable[[], StreamVoice] | None = None,
             answer: Callable[[bytes], bytes] | None = None, counts: Callable[[int], bytes] | None = None) -> Asked:
    """The request as the edge goes on with it. A voice gets usage in every event: it tells the prompt's first."""
    body, is_stream = json.encode(chat), chat.stream is True
    return Asked(Upstream.CHAT, body, _decode_fields(body), streamed=is_stream, wants_usage=True,
                 wants_each_usage=is_stream, voice=voice, answer=answer, counts=counts)


# the answer


class CallFunction(msgspec.Struct, gc=False):
    """What of a function a fragment tells."""

    name: str | None = None
    arguments: str | None = None


class CallPiece(msgspec.Struct, gc=False):
    """A fragment of a call, or a whole one."""

    index: int | None = None
    id: str | None = None
    function: CallFunction | None = None


class Delta(msgspec.Struct, gc=False):
    """What a stream's event adds, or a whole message. Engines call reasoning by either name."""

    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[CallPiece] | None = None


class Logprobs(msgspec.Struct, gc=False):
    """The log probabilities of the tokens of a text, raw."""

    content: list[Raw] | None = None


class Choice(msgspec.Struct, gc=False):
    """One answer: what a delta adds to it, or its message."""

    delta: Delta | None = None
    message: Delta | None = None
    finish_reason: str | None = None
    logprobs: Logprobs | None = None


class ChatUsage(msgspec.Struct, gc=False):
    """Tokens, and what they cost: raw, so that no digit is lost."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    prompt_tokens_details: PromptDetails | None = None
    completion_tokens_details: CompletionDetails | None = None
    cost: Raw | UnsetType = UNSET
    cost_details: Raw | UnsetType = UNSET

    @property
    def cached_tokens(self) -> int:
        """Part of the prompt, whatever the engine says."""
        details = self.prompt_tokens_details
        return min(max((details and details.cached_tokens) or 0, 0), self.prompt_tokens)

    @property
    def reasoning_tokens(self) -> int:
        details = self.completion_tokens_details
        return (details and details.reasoning_tokens) or 0


class ChatAnswer(msgspec.Struct, gc=False):
    """A stream's event, or a whole answer."""

    created: int = 0
    service_tier: str | None = None
    choices: list[Choice] = msgspec.field(default_factory=list)
    usage: ChatUsage | None = None


NO_USAGE = ChatUsage()
_decode_answer = json.Decoder(ChatAnswer).decode


def read_answer(body: bytes) -> ChatAnswer:
    """Raises: BadAnswer."""
    try:
        return _decode_answer(body)
    except (msgspec.DecodeError, RecursionError) as error:
        raise BadAnswer(str(error)) from None


def read_events(events: bytes) -> Iterator[ChatAnswer]:
    """The answers in whole SSE events; comments are passed over.

    Raises:
        BadAnswer: at the first event that is no chat.
    """
    for event in events.split(EVENT_END):
        data = payload(event)
        if data:
            yield read_answer(data)

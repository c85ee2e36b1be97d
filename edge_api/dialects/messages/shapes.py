"""A Messages request as clients send it. Below its top level, fields that say nothing here are passed over: cache
marks, signatures, citations.

Source: the types of Anthropic's own client, 2.14.
"""

from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Raw, UnsetType

from edge_api.dialects.strict import MAX_TOOLS
from edge_api.hot.fields import NOTHING

Count = Annotated[int, msgspec.Meta(ge=0)]
AtLeastOne = Annotated[int, msgspec.Meta(ge=1)]
StopStrings = Annotated[list[str], msgspec.Meta(max_length=32)]  # as many as Dynamo takes


class Text(msgspec.Struct, tag="text"):
    """What somebody said."""

    text: str


class Base64Image(msgspec.Struct, tag="base64"):
    """An image's own bytes."""

    media_type: str
    data: str

    @property
    def url(self) -> str:
        """The same image as a URL."""
        return f"data:{self.media_type};base64,{self.data}"


class UrlImage(msgspec.Struct, tag="url"):
    """An image somewhere else."""

    url: str


class Image(msgspec.Struct, tag="image"):
    """An image that the model is to see."""

    source: Base64Image | UrlImage


class PlainText(msgspec.Struct, tag="text"):
    """A document's text."""

    data: str


class Document(msgspec.Struct, tag="document"):
    """Only one that is text already: the engine reads no PDF."""

    source: PlainText | Base64Image
    title: str | None = None
    context: str | None = None


class ToolUse(msgspec.Struct, tag="tool_use"):
    """`input` is a JSON object."""

    id: str
    name: str
    input: Raw


class ToolResult(msgspec.Struct, tag="tool_result"):
    """What came of a call."""

    tool_use_id: str
    content: str | list[Text | Image | Document] | None = None
    is_error: bool | None = None


class Thinking(msgspec.Struct, tag="thinking"):
    """What the model reasoned before."""

    thinking: str


class RedactedThinking(msgspec.Struct, tag="redacted_thinking"):
    """Another provider's; nothing of it can be read here."""


Block = Text | Image | Document | ToolUse | ToolResult | Thinking | RedactedThinking


class Turn(msgspec.Struct):
    """One message."""

    role: Literal["user", "assistant", "system"]
    content: str | list[Block]


class ToolSpec(msgspec.Struct):
    """A tool. Those with another `type` than `custom` are run by Anthropic or known to its models alone."""

    name: str = ""
    type: str | None = None
    description: str | UnsetType = UNSET
    input_schema: Raw | UnsetType = UNSET
    strict: bool | None = None


class ToolChoice(msgspec.Struct):
    """Whether tools are called, and which."""

    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


class ThinkingConfig(msgspec.Struct):
    """Whether the model reasons. `budget_tokens` is a target, in tokens."""

    type: Literal["enabled", "disabled", "adaptive", "between_tools"]
    budget_tokens: AtLeastOne | None = None
    display: Literal["summarized", "omitted"] | None = None


class OutputFormat(msgspec.Struct):
    """A JSON schema that the answer keeps to."""

    type: Literal["json_schema"]
    schema: Raw


class OutputConfig(msgspec.Struct):
    """How much the model tries, and what form its answer has."""

    effort: Literal["low", "medium", "high", "xhigh", "max"] | None = None
    format: OutputFormat | None = None


class Metadata(msgspec.Struct):
    """Who asks, in words of the client."""

    user_id: str | None = None


class ContextEdit(msgspec.Struct):
    """One way to shorten a conversation; its type ends with a date."""

    type: str


class ContextManagement(msgspec.Struct):
    """How a conversation that grows is shortened."""

    edits: list[ContextEdit] | None = None


class Counted(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What a request to count and a request to answer have in common: all but the length of the answer.

    `provider`, `session_id`, `ignore_eos` and `min_tokens` are not Anthropic's: they mean what they mean in chat.
    """

    model: str
    messages: Annotated[list[Turn], msgspec.Meta(min_length=1)]
    system: str | list[Text] | None = None
    metadata: Metadata | None = None
    stop_sequences: StopStrings | None = None
    stream: bool | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: Count | None = None
    tools: Annotated[list[ToolSpec], msgspec.Meta(max_length=MAX_TOOLS)] | None = None
    tool_choice: ToolChoice | None = None
    thinking: ThinkingConfig | None = None
    output_config: OutputConfig | None = None
    output_format: OutputFormat | None = None
    service_tier: Literal["auto", "standard_only"] | None = None
    cache_control: Raw = NOTHING
    container: Raw = NOTHING
    context_management: ContextManagement | None = None
    mcp_servers: list[Raw] | None = None
    inference_geo: str | None = None
    speed: Literal["standard"] | None = None
    diagnostics: Raw = NOTHING
    thread: Raw = NOTHING
    provider: Raw | UnsetType = UNSET
    session_id: str | None = None
    ignore_eos: bool | None = None
    min_tokens: Count | None = None


class CountRequest(Counted, kw_only=True):
    """A request to count its prompt's tokens."""

    max_tokens: AtLeastOne | None = None


class MessagesRequest(Counted, kw_only=True):
    """A request to answer."""

    max_tokens: AtLeastOne

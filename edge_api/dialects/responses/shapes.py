"""A Responses request as clients send it. Below its top level, fields that say nothing here are passed over.

Source: the types of OpenAI's own client, 3.57.
"""

from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Raw, UnsetType

from edge_api.dialects.strict import MAX_TOOLS
from edge_api.hot.fields import NOTHING

Count = Annotated[int, msgspec.Meta(ge=0)]
AtLeastOne = Annotated[int, msgspec.Meta(ge=1)]


class InputText(msgspec.Struct, tag="input_text"):
    """What somebody said."""

    text: str


class OutputText(msgspec.Struct, tag="output_text"):
    """What the model said before."""

    text: str


class Refused(msgspec.Struct, tag="refusal"):
    """What the model said instead of an answer."""

    refusal: str


class InputImage(msgspec.Struct, tag="input_image"):
    """`image_url` may be a data URL; nothing is stored here that a `file_id` could name."""

    image_url: str | None = None
    detail: str | None = None


class ReasoningText(msgspec.Struct, tag="reasoning_text"):
    """What the model reasoned before."""

    text: str


class SummaryText(msgspec.Struct, tag="summary_text"):
    """The same, shortened."""

    text: str


Part = InputText | OutputText | InputImage | Refused | ReasoningText


class Item(msgspec.Struct):
    """One item of the input, whatever its type: a message needs not name it."""

    type: str = "message"
    role: Literal["user", "assistant", "system", "developer"] | None = None
    content: str | list[Part] | None = None
    call_id: str | None = None
    name: str | None = None
    arguments: str | None = None
    output: str | list[Part] | None = None
    summary: list[SummaryText] | None = None


class ToolSpec(msgspec.Struct):
    """A function; tools of other types are read far enough to be named."""

    type: str
    name: str = ""
    description: str | None = None
    parameters: Raw = NOTHING
    strict: bool | None = None


class NamedTool(msgspec.Struct):
    """A tool that is named, not described."""

    type: str
    name: str = ""


class ToolChoice(msgspec.Struct, omit_defaults=True):
    """One function, or some: `mode` and `tools` belong to `allowed_tools`."""

    type: str
    name: str = ""
    mode: Literal["auto", "required"] | UnsetType = UNSET
    tools: list[NamedTool] | None = None


class TextFormat(msgspec.Struct):
    """What form the answer has; `name` and `schema` are those of a JSON schema."""

    type: Literal["text", "json_object", "json_schema"]
    name: str = ""
    schema: Raw = NOTHING
    description: str | UnsetType = UNSET
    strict: bool | None = None


class TextConfig(msgspec.Struct):
    """How the answer is written."""

    format: TextFormat | None = None
    verbosity: Literal["low", "medium", "high"] | None = None


class Reasoning(msgspec.Struct):
    """How much the model reasons."""

    effort: Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"] | None = None
    summary: Literal["auto", "concise", "detailed"] | None = None


Choosing = Literal["none", "auto", "required"] | ToolChoice


class ResponsesRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A whole request. `provider`, `session_id`, `ignore_eos`, `min_tokens` and `top_k` mean what they mean in chat."""

    model: str
    input: str | list[Item] | None = None
    instructions: str | None = None
    tools: Annotated[list[Raw], msgspec.Meta(max_length=MAX_TOOLS)] | None = None
    tool_choice: Choosing | None = None
    parallel_tool_calls: bool | None = None
    text: TextConfig | None = None
    reasoning: Reasoning | None = None
    max_output_tokens: AtLeastOne | None = None
    max_tool_calls: Count | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: Count | None = None
    top_logprobs: Count | None = None
    stream: bool | None = None
    stream_options: Raw = NOTHING
    metadata: dict[str, str] | None = None
    user: str | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    prompt_cache_retention: str | None = None
    prompt_cache_options: Raw = NOTHING
    client_metadata: Raw = NOTHING
    service_tier: Literal["auto", "default", "flex", "priority", "fast", "scale"] | None = None
    truncation: Literal["auto", "disabled"] | None = None
    include: list[str] | None = None
    store: bool | None = None
    background: bool | None = None
    previous_response_id: str | None = None
    conversation: Raw = NOTHING
    prompt: Raw = NOTHING
    context_management: list[Raw] | None = None
    provider: Raw | UnsetType = UNSET
    session_id: str | None = None
    ignore_eos: bool | None = None
    min_tokens: Count | None = None

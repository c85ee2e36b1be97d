"""Tells a chat answer as a response: its items, its status, what it used."""

from typing import Literal
from uuid import UUID

import msgspec
from msgspec import UNSET, Raw, UnsetType, json

from control_plane.contracts import ids
from edge_api.dialects.responses.shapes import Choosing, Reasoning, ResponsesRequest, TextConfig
from edge_api.dialects.tier import SERVED_TIER
from edge_api.dialects.turn import Part, PartKind, Turn
from edge_api.dialects.upstream_chat import NO_USAGE, ChatUsage, Choice, read_answer
from edge_api.hot.fields import NOTHING

PLAIN_TEXT = Raw(b'{"type":"text"}')
PREFIXES = {PartKind.TEXT: "msg", PartKind.REASONING: "rs", PartKind.CALL: "fc"}
CUT = {"length": "max_output_tokens", "content_filter": "content_filter"}

Status = Literal["in_progress", "completed", "incomplete"]


class OutputText(msgspec.Struct, tag="output_text"):
    """`logprobs` has an entry for each token, if they were asked for."""

    text: str
    annotations: tuple[()] = ()
    logprobs: list[Raw] = msgspec.field(default_factory=list)


class ReasoningText(msgspec.Struct, tag="reasoning_text"):
    """Reasoning in the model's own words."""

    text: str


class MessageItem(msgspec.Struct, tag="message"):
    """What the model said."""

    id: str
    status: Status
    content: list[OutputText]
    role: Literal["assistant"] = "assistant"


class ReasoningItem(msgspec.Struct, tag="reasoning"):
    """The model's reasoning as it is: there is no summary, and nothing is encrypted."""

    id: str
    status: Status
    content: list[ReasoningText]
    summary: tuple[()] = ()
    encrypted_content: None = None


class CallItem(msgspec.Struct, tag="function_call"):
    """`arguments` are the model's, byte for byte."""

    id: str
    status: Status
    call_id: str
    name: str
    arguments: str


Item = MessageItem | ReasoningItem | CallItem


class InputDetails(msgspec.Struct):
    """What of the input came from a cache."""

    cached_tokens: int
    cache_write_tokens: int = 0


class OutputDetails(msgspec.Struct):
    """What of the output was reasoning."""

    reasoning_tokens: int


class Usage(msgspec.Struct, omit_defaults=True):
    """What a response used, in tokens, and what that cost, in USD."""

    input_tokens: int
    input_tokens_details: InputDetails
    output_tokens: int
    output_tokens_details: OutputDetails
    total_tokens: int
    cost: Raw | UnsetType = UNSET
    cost_details: Raw | UnsetType = UNSET


class IncompleteDetails(msgspec.Struct):
    """Why a response was cut."""

    reason: str


class Failed(msgspec.Struct):
    """Why a response failed. `metadata` has our own code, as in our other dialects."""

    code: str
    message: str
    type: str
    param: str | None
    metadata: dict[str, str | float | bool]


class Response(msgspec.Struct, kw_only=True):
    """A whole response, or one that has only begun. Most of it says again what was asked."""

    id: str
    object: Literal["response"] = "response"
    created_at: int
    status: Literal["in_progress", "completed", "incomplete", "failed"] = "in_progress"
    background: bool = False
    error: Failed | None = None
    incomplete_details: IncompleteDetails | None = None
    instructions: str | None
    max_output_tokens: int | None
    max_tool_calls: int | None
    metadata: dict[str, str]
    model: str
    output: list[Item] = msgspec.field(default_factory=list)
    parallel_tool_calls: bool
    previous_response_id: None = None
    prompt_cache_key: str | None
    reasoning: Reasoning
    safety_identifier: str | None
    service_tier: str
    store: bool = False
    temperature: float
    text: dict[str, Raw | str]
    tool_choice: Choosing
    tools: list[Raw]
    top_logprobs: int
    top_p: float
    truncation: Literal["disabled"] = "disabled"
    usage: Usage | None = None
    user: str | None


def begun(asked: ResponsesRequest, request_id: UUID) -> Response:
    """The response before anything of it is there."""
    return Response(
        id=f"resp_{request_id.hex}",
        created_at=int(ids.uuid7_time_s(request_id)),
        instructions=asked.instructions,
        max_output_tokens=asked.max_output_tokens,
        max_tool_calls=asked.max_tool_calls,
        metadata=asked.metadata or {},
        model=asked.model,
        parallel_tool_calls=asked.parallel_tool_calls is not False,
        prompt_cache_key=asked.prompt_cache_key,
        reasoning=asked.reasoning or Reasoning(),
        safety_identifier=asked.safety_identifier,
        service_tier=SERVED_TIER,
        temperature=1.0 if asked.temperature is None else asked.temperature,
        text={"format": _format(asked.text), "verbosity": "medium"},
        tool_choice=asked.tool_choice or "auto",
        tools=asked.tools or [],
        top_logprobs=asked.top_logprobs or 0,
        top_p=1.0 if asked.top_p is None else asked.top_p,
        user=asked.user,
    )


def finished(response: Response, choice: Choice, items: list[Item], usage: ChatUsage, tier: str | None) -> Response:
    """The same response, with all that came of it."""
    reason = CUT.get(choice.finish_reason or "")
    response.status = "incomplete" if reason else "completed"
    response.incomplete_details = IncompleteDetails(reason) if reason else None
    response.output = items
    response.usage = usage_of(usage)
    response.service_tier = tier or SERVED_TIER
    return response


def tell_answer(body: bytes, response: Response, id_hex: str) -> bytes:
    """A whole chat answer as a response.

    Raises:
        BadAnswer: it is no chat.
    """
    answer = read_answer(body)
    choice = answer.choices[0] if answer.choices else Choice()
    turn = Turn()
    if choice.message is not None:
        turn.take(choice.message)
    turn.finish()
    logprobs = (choice.logprobs and choice.logprobs.content) or []
    items = [item_of(part, at, id_hex, status_of(choice, is_last=at == len(turn.parts) - 1), logprobs)
             for at, part in enumerate(turn.parts)]
    return json.encode(finished(response, choice, items, answer.usage or NO_USAGE, answer.service_tier))


def status_of(choice: Choice, *, is_last: bool) -> Status:
    """An item that was cut is incomplete; only the last one can be."""
    return "incomplete" if is_last and choice.finish_reason in CUT else "completed"


def item_of(part: Part, at: int, id_hex: str, status: Status, logprobs: list[Raw]) -> Item:
    """A part as an output item: as far as it has come."""
    own_id = item_id(part, at, id_hex)
    match part.kind:
        case PartKind.TEXT:
            return MessageItem(own_id, status, [OutputText(part.text, logprobs=logprobs)])
        case PartKind.REASONING:
            return ReasoningItem(own_id, status, [ReasoningText(part.text)])
        case PartKind.CALL:
            return CallItem(own_id, status, part.call_id or f"call_{id_hex}_{at}", part.name, part.text)


def item_id(part: Part, at: int, id_hex: str) -> str:
    """The id of the response's item at this place."""
    return f"{PREFIXES[part.kind]}_{id_hex}_{at}"


def usage_of(usage: ChatUsage) -> Usage:
    """Chat's usage in this dialect's words, with what it cost."""
    return Usage(
        input_tokens=usage.prompt_tokens,
        input_tokens_details=InputDetails(usage.cached_tokens),
        output_tokens=usage.completion_tokens,
        output_tokens_details=OutputDetails(usage.reasoning_tokens),
        total_tokens=usage.prompt_tokens + usage.completion_tokens,
        cost=usage.cost,
        cost_details=usage.cost_details,
    )


def _format(text: TextConfig | None) -> Raw:
    if text is None or text.format is None:
        return PLAIN_TEXT
    said_nothing = (None, "", UNSET, NOTHING)
    fields = {name: value for name, value in msgspec.structs.asdict(text.format).items() if value not in said_nothing}
    return Raw(json.encode(fields))

"""Tells a chat answer as a message: its blocks, why it stopped, what it used."""

from typing import Literal, NamedTuple

import msgspec
from msgspec import UNSET, Raw, UnsetType, json

from edge_api.dialects.messages.stops import StopWatch
from edge_api.dialects.turn import Part, PartKind, Turn, is_json_object
from edge_api.dialects.upstream_chat import NO_USAGE, ChatUsage, Choice, Delta, read_answer

NO_INPUT = Raw(b"{}")


class TextBlock(msgspec.Struct, tag="text"):
    """What the model said."""

    text: str


class ThinkingBlock(msgspec.Struct, tag="thinking"):
    """The signature is empty: reasoning that is sent back is taken as it is."""

    thinking: str
    signature: str = ""


class ToolUseBlock(msgspec.Struct, tag="tool_use"):
    """A call that the client is to make; `input` is a JSON object."""

    id: str
    name: str
    input: Raw


Block = TextBlock | ThinkingBlock | ToolUseBlock
StopReason = Literal["end_turn", "max_tokens", "stop_sequence", "tool_use", "refusal"]


class OutputDetails(msgspec.Struct):
    """What of the output was reasoning."""

    thinking_tokens: int


class Usage(msgspec.Struct, omit_defaults=True):
    """`input_tokens` are those that were not read from a cache: the prompt is their sum."""

    input_tokens: int
    cache_read_input_tokens: int
    output_tokens: int
    cache_creation_input_tokens: int | UnsetType = UNSET
    output_tokens_details: OutputDetails | UnsetType = UNSET
    service_tier: Literal["standard", "priority", "batch"] | UnsetType = UNSET
    cost: Raw | UnsetType = UNSET
    cost_details: Raw | UnsetType = UNSET


class Message(msgspec.Struct):
    """A whole message, or one that has only begun."""

    id: str
    model: str
    content: list[Block]
    stop_reason: StopReason | None
    stop_sequence: str | None
    usage: Usage
    type: Literal["message"] = "message"
    role: Literal["assistant"] = "assistant"


class Manner(NamedTuple):
    """What of a request its answer depends on: the model's name as it was asked for, whether reasoning is left out, and
    what the client's stop strings are."""

    model: str
    hides_thinking: bool
    stops: tuple[str, ...]


class Stop(msgspec.Struct):
    """Why a message ended; `stop_sequence` is the client's own string that ended it."""

    stop_reason: StopReason
    stop_sequence: str | None = None


def message_id(request_id_hex: str) -> str:
    return f"msg_{request_id_hex}"


def tell_answer(body: bytes, request_id_hex: str, manner: Manner) -> bytes:
    """A whole chat answer as a message.

    Raises:
        BadAnswer: it is no chat.
    """
    answer = read_answer(body)
    choice = answer.choices[0] if answer.choices else Choice()
    turn, watch = Turn(), StopWatch(manner.stops)
    for delta in watch.take(choice.message or Delta()) + watch.finish(choice.finish_reason):
        turn.take(delta)
    turn.finish()
    blocks = [block_of(part, at, request_id_hex) for at, part in enumerate(turn.parts)
              if not (manner.hides_thinking and part.kind is PartKind.REASONING)]
    stop = stop_of(choice, watch, turn)
    return json.encode(Message(message_id(request_id_hex), manner.model, blocks, stop.stop_reason, stop.stop_sequence,
                               usage_of(answer.usage or NO_USAGE, answer.service_tier)))


def block_of(part: Part, at: int, request_id_hex: str) -> Block:
    """A part that is whole."""
    if part.kind is PartKind.TEXT:
        return TextBlock(part.text)
    if part.kind is PartKind.REASONING:
        return ThinkingBlock(part.text)
    return ToolUseBlock(call_id_of(part, at, request_id_hex), part.name, _input_of(part.text))


def call_id_of(part: Part, at: int, request_id_hex: str) -> str:
    """The engine's own id of a call; where it gave none, one that is unique."""
    return part.call_id or f"toolu_{request_id_hex}_{at}"


def stop_of(choice: Choice, watch: StopWatch, turn: Turn) -> Stop:
    """Why the turn ended. A turn with calls that was not cut waits for their results, whatever the engine calls it."""
    if choice.finish_reason == "length":
        return Stop("max_tokens")
    if choice.finish_reason == "content_filter":
        return Stop("refusal")
    if watch.found is not None:
        return Stop("stop_sequence", watch.found)
    if turn.has_calls:
        return Stop("tool_use")
    return Stop("end_turn")


def usage_of(usage: ChatUsage, tier: str | None) -> Usage:
    """Chat's usage in this dialect's words, with what it cost."""
    reasoning = usage.reasoning_tokens
    return Usage(
        input_tokens=usage.prompt_tokens - usage.cached_tokens,
        cache_read_input_tokens=usage.cached_tokens,
        output_tokens=usage.completion_tokens,
        cache_creation_input_tokens=0,
        output_tokens_details=OutputDetails(reasoning) if reasoning else UNSET,
        service_tier="priority" if tier == "priority" else "standard",
        cost=usage.cost,
        cost_details=usage.cost_details,
    )


def _input_of(arguments: str) -> Raw:
    """A call's arguments byte for byte. Those that are no JSON object, because the answer was cut or the model erred,
    are told as a text, so that whoever runs the tool sees what is wrong with them."""
    if not arguments.strip():
        return NO_INPUT
    if is_json_object(arguments):
        return Raw(arguments.encode())
    return Raw(json.encode({"unparsed_arguments": arguments}))

"""Translates a Responses request into chat. Nothing is stored here, so whatever needs a stored response is refused."""

import msgspec
from msgspec import UNSET, Raw, UnsetType, json

from edge_api import errors
from edge_api.dialects import upstream_chat as chat
from edge_api.dialects.reading import wrong_field
from edge_api.dialects.responses.conversation import Conversation
from edge_api.dialects.responses.shapes import Item, ResponsesRequest, TextFormat, ToolChoice, ToolSpec
from edge_api.dialects.strict import check_parts, missing, unsupported
from edge_api.dialects.upstream_chat import given, says
from edge_api.errors import Refusal

LOGPROBS = "message.output_text.logprobs"
_decode_tool = json.Decoder(ToolSpec).decode


def translate(asked: ResponsesRequest) -> chat.Chat:
    """The same request as chat.

    Raises:
        Refusal: it names the field that cannot be served.
    """
    _check(asked)
    tools = _tools(asked)
    wants_logprobs = bool(asked.top_logprobs) or LOGPROBS in (asked.include or ())
    return chat.Chat(
        model=asked.model,
        messages=_messages(asked),
        stream=asked.stream or UNSET,
        max_tokens=given(asked.max_output_tokens),
        min_tokens=given(asked.min_tokens),
        ignore_eos=given(asked.ignore_eos),
        temperature=given(asked.temperature),
        top_p=given(asked.top_p),
        top_k=given(asked.top_k),
        logprobs=wants_logprobs or UNSET,
        top_logprobs=asked.top_logprobs or UNSET,
        tools=tools or UNSET,
        tool_choice=_tool_choice(asked, tools),
        parallel_tool_calls=given(asked.parallel_tool_calls) if tools else UNSET,
        response_format=_response_format(asked.text.format if asked.text else None),
        reasoning_effort=(asked.reasoning and asked.reasoning.effort) or UNSET,
        user=asked.user or asked.safety_identifier or UNSET,
        prompt_cache_key=given(asked.prompt_cache_key),
        session_id=given(asked.session_id),
        service_tier="priority" if asked.service_tier == "fast" else given(asked.service_tier),
        provider=asked.provider,
    )


def _check(asked: ResponsesRequest) -> None:
    needs_store = {
        "store": asked.store is True, "background": asked.background is True,
        "previous_response_id": asked.previous_response_id is not None, "conversation": says(asked.conversation),
        "prompt": says(asked.prompt)}
    for param, is_used in needs_store.items():
        if is_used:
            raise unsupported(param, "responses are not stored here; send the whole conversation as 'input'")
    if asked.truncation == "auto":
        raise unsupported("truncation", "only 'disabled' is supported")
    if asked.context_management:
        raise unsupported("context_management", "conversations are not compacted here")
    if asked.text and asked.text.verbosity in ("low", "high"):
        raise unsupported("text.verbosity", "only 'medium' is supported")


def _messages(asked: ResponsesRequest) -> list[chat.Message]:
    conversation = Conversation(asked.instructions)
    if isinstance(asked.input, str):
        conversation.say("user", asked.input)
    else:
        items = asked.input or []
        check_parts(len(items) + sum(_parts(item) for item in items), "input")
        for at, item in enumerate(items):
            conversation.add(item, f"input[{at}]")
    return conversation.messages() or _nothing_asked()


def _parts(item: Item) -> int:
    return sum(len(parts) for parts in (item.content, item.output, item.summary) if isinstance(parts, list))


def _nothing_asked() -> list[chat.Message]:
    raise missing("input")


def _tools(asked: ResponsesRequest) -> list[chat.Tool]:
    tools = [_tool(raw, f"tools[{at}]") for at, raw in enumerate(asked.tools or ())]
    choice = asked.tool_choice
    if isinstance(choice, ToolChoice) and choice.type == "allowed_tools":
        allowed = {tool.name for tool in choice.tools or ()}
        return [tool for tool in tools if tool.function.name in allowed]
    return tools


def _tool(raw: Raw, path: str) -> chat.Tool:
    try:
        tool = _decode_tool(raw)
    except msgspec.ValidationError as error:
        raise wrong_field(str(error), path) from None
    if tool.type != "function":
        raise unsupported(f"{path}.type", f"'{tool.type}' is not supported; only functions are")
    if not tool.name:
        raise missing(f"{path}.name")
    return chat.Tool(chat.Function(tool.name, given(tool.description),
                                   tool.parameters if says(tool.parameters) else UNSET, tool.strict or UNSET))


def _tool_choice(asked: ResponsesRequest, tools: list[chat.Tool]) -> str | chat.NamedChoice | UnsetType:
    choice = asked.tool_choice
    if isinstance(choice, ToolChoice):
        if choice.type == "allowed_tools":
            choice = choice.mode or "auto"
        elif choice.type != "function":
            raise unsupported("tool_choice.type", f"'{choice.type}' is not supported; only functions are")
        elif not choice.name:
            raise missing("tool_choice.name")
        else:
            return chat.NamedChoice(chat.NamedFunction(choice.name))
    if choice == "required" and not tools:
        raise Refusal(errors.INVALID_VALUE, "tool_choice: there are no tools to choose from", "tool_choice")
    return choice if choice and tools else UNSET


def _response_format(wanted: TextFormat | None) -> chat.ResponseFormat | UnsetType:
    if wanted is None or wanted.type == "text":
        return UNSET
    if wanted.type == "json_object":
        return chat.ResponseFormat("json_object")
    if not wanted.name or not says(wanted.schema):
        raise missing("text.format.schema" if wanted.name else "text.format.name")
    return chat.ResponseFormat("json_schema", chat.NamedSchema(
        wanted.name, wanted.schema, wanted.description, given(wanted.strict)))

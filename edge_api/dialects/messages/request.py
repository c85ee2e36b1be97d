"""Translates a Messages request into chat."""

from collections.abc import Iterable

from msgspec import UNSET, UnsetType

from edge_api import errors
from edge_api.dialects import upstream_chat as chat
from edge_api.dialects.messages.answer import Manner
from edge_api.dialects.messages.errors import THREAD
from edge_api.dialects.messages.shapes import (
    Counted,
    CountRequest,
    Document,
    Image,
    MessagesRequest,
    PlainText,
    RedactedThinking,
    Text,
    Thinking,
    ThinkingConfig,
    ToolResult,
    ToolUse,
    Turn,
)
from edge_api.dialects.strict import check_parts, missing, unsupported
from edge_api.dialects.upstream_chat import given
from edge_api.errors import Refusal
from edge_api.listings.aliases import resolve_alias

BILLING_MARK = "x-anthropic-billing-header:"
MAX_STOP_CHARACTERS = 1_000  # of all stop strings: each is looked for at the end of whatever is told
IGNORED_EDITS = ("clear_thinking_", "clear_tool_uses_")
ERROR_MARK = "Error: "

_Part = chat.TextPart | chat.ImagePart


def translate(asked: MessagesRequest | CountRequest) -> chat.Chat:
    """The same request as chat.

    Raises:
        Refusal: it names the field that cannot be served.
    """
    _check(asked)
    config = asked.output_config
    format_ = (config and config.format) or asked.output_format
    return chat.Chat(
        model=resolve_alias(asked.model),
        messages=[*_system(asked.system), *_conversation(asked.messages)],
        stream=asked.stream or UNSET,
        max_tokens=given(asked.max_tokens),
        min_tokens=given(asked.min_tokens),
        ignore_eos=given(asked.ignore_eos),
        temperature=given(asked.temperature),
        top_p=given(asked.top_p),
        top_k=given(asked.top_k),
        stop=asked.stop_sequences or UNSET,
        include_stop_str_in_output=bool(asked.stop_sequences) or UNSET,
        tools=_tools(asked),
        tool_choice=_tool_choice(asked),
        parallel_tool_calls=False if asked.tools and _wants_one_call(asked) else UNSET,
        response_format=chat.json_schema(format_.schema) if format_ else UNSET,
        chat_template_args=_thinking(asked.thinking),
        reasoning_effort=(config and config.effort) or UNSET,
        user=(asked.metadata and asked.metadata.user_id) or UNSET,
        session_id=given(asked.session_id),
        service_tier="default" if asked.service_tier == "standard_only" else UNSET,
        provider=asked.provider,
    )


def manner_of(asked: Counted) -> Manner:
    """How the client wants to be told."""
    return Manner(asked.model, asked.thinking is not None and asked.thinking.display == "omitted",
                  tuple(stop for stop in asked.stop_sequences or () if stop))


def _check(asked: MessagesRequest | CountRequest) -> None:
    check_parts(_parts(asked.messages), "messages")
    if sum(map(len, asked.stop_sequences or ())) > MAX_STOP_CHARACTERS:
        raise Refusal(errors.INVALID_VALUE, f"stop_sequences: more than {MAX_STOP_CHARACTERS} characters in all",
                      "stop_sequences")
    if asked.thinking and asked.thinking.type == "enabled" and asked.thinking.budget_tokens is None:
        raise missing("thinking.budget_tokens")
    if chat.says(asked.container):
        raise unsupported("container", "there are no containers here")
    if chat.says(asked.thread):
        raise unsupported(THREAD, "conversations are not held here; send the whole of it as 'messages'")
    if asked.mcp_servers:
        raise unsupported("mcp_servers", "MCP servers are not called from here; offer their tools in 'tools'")
    if asked.inference_geo not in (None, "global"):
        raise unsupported("inference_geo", "regions are chosen by 'provider'")
    for at, edit in enumerate((asked.context_management and asked.context_management.edits) or ()):
        if not edit.type.startswith(IGNORED_EDITS):
            raise unsupported(f"context_management.edits[{at}].type", f"'{edit.type}' is not supported")
    if isinstance(asked, MessagesRequest) and asked.messages[-1].role == "assistant":
        raise unsupported(f"messages[{len(asked.messages) - 1}].role", "the last message must be the user's: an "
                          "assistant's message is not continued")


def _parts(turns: list[Turn]) -> int:
    """How many messages there are, blocks in them, and parts of results."""
    blocks = [block for turn in turns if not isinstance(turn.content, str) for block in turn.content]
    return len(turns) + len(blocks) + sum(
        len(block.content) for block in blocks if isinstance(block, ToolResult) and isinstance(block.content, list))


def _system(system: str | list[Text] | None) -> list[chat.Message]:
    """Claude Code puts a line for Anthropic's accounting first, another one each time: with it no prompt would be found
    in a cache."""
    texts = [system] if isinstance(system, str) else [block.text for block in system or ()]
    text = "\n".join(text for text in texts if text and not text.startswith(BILLING_MARK))
    return [chat.Message("system", text)] if text else []


def _conversation(turns: list[Turn]) -> Iterable[chat.Message]:
    for at, turn in enumerate(turns):
        path = f"messages[{at}].content"
        if isinstance(turn.content, str):
            yield chat.Message(turn.role, turn.content)
        elif turn.role == "assistant":
            yield _assistant(turn, path)
        else:
            yield from _user(turn, path)


def _assistant(turn: Turn, path: str) -> chat.Message:
    said: list[str] = []
    thought: list[str] = []
    calls: list[chat.Call] = []
    for at, block in enumerate(turn.content):
        match block:
            case Text(text=text):
                said.append(text)
            case Thinking(thinking=text):
                thought.append(text)
            case ToolUse():
                calls.append(chat.Call(block.id, chat.CalledFunction(block.name, bytes(block.input).decode())))
            case RedactedThinking():
                pass
            case _:
                raise _misplaced(path, at, "an assistant's")
    return chat.assistant(thought, said, calls)


def _user(turn: Turn, path: str) -> Iterable[chat.Message]:
    """Results come first, as chat wants them. They are text: images in them follow in a message of the user's."""
    parts: list[_Part] = []
    shown: list[_Part] = []
    for at, block in enumerate(turn.content):
        match block:
            case Text() | Image() | Document():
                parts.append(_part(block, f"{path}[{at}]"))
            case ToolResult():
                result = _result_parts(block, f"{path}[{at}].content")
                shown += (part for part in result if isinstance(part, chat.ImagePart))
                texts = [part.text for part in result if isinstance(part, chat.TextPart)]
                yield chat.Message("tool", (ERROR_MARK if block.is_error else "") + "\n".join(texts),
                                   tool_call_id=block.tool_use_id)
            case _:
                raise _misplaced(path, at, f"a {turn.role}'s")
    content = chat.content_of(shown + parts)
    if content or not any(isinstance(block, ToolResult) for block in turn.content):
        yield chat.Message(turn.role, content)


def _result_parts(result: ToolResult, path: str) -> list[_Part]:
    if isinstance(result.content, str):
        return [chat.TextPart(result.content)]
    return [_part(block, f"{path}[{at}]") for at, block in enumerate(result.content or ())]


def _part(block: Text | Image | Document, path: str) -> _Part:
    if isinstance(block, Text):
        return chat.TextPart(block.text)
    if isinstance(block, Image):
        return chat.ImagePart(chat.ImageUrl(block.source.url))
    if not isinstance(block.source, PlainText):
        raise unsupported(f"{path}.source", "documents are read only as plain text")
    return chat.TextPart("\n".join(text for text in (block.title, block.context, block.source.data) if text))


def _misplaced(path: str, at: int, whose: str) -> Refusal:
    param = f"{path}[{at}].type"
    return Refusal(errors.INVALID_VALUE, f"{param}: such a block cannot be in {whose} message", param)


def _tools(asked: Counted) -> list[chat.Tool] | UnsetType:
    tools: list[chat.Tool] = []
    for at, tool in enumerate(asked.tools or ()):
        if tool.type not in (None, "custom"):
            raise unsupported(f"tools[{at}].type", f"'{tool.type}' is not supported; only tools with a schema of "
                              "their own are")
        for name, value in (("name", tool.name), ("input_schema", tool.input_schema)):
            if not value:
                raise missing(f"tools[{at}].{name}")
        tools.append(chat.Tool(chat.Function(tool.name, tool.description, tool.input_schema, tool.strict or UNSET)))
    return tools or UNSET


def _tool_choice(asked: Counted) -> str | chat.NamedChoice | UnsetType:
    choice = asked.tool_choice
    if choice is None:
        return UNSET
    if choice.type in ("any", "tool") and not asked.tools:
        raise Refusal(errors.INVALID_VALUE, "tool_choice: there are no tools to choose from", "tool_choice")
    if choice.type == "tool":
        if not choice.name:
            raise missing("tool_choice.name")
        return chat.NamedChoice(chat.NamedFunction(choice.name))
    return {"auto": "auto", "any": "required", "none": "none"}[choice.type]


def _thinking(config: ThinkingConfig | None) -> chat.TemplateArgs | UnsetType:
    """Whether to reason; where the client leaves it to the model, nothing is said. A budget is passed over: it is a
    target, and the bound is `max_tokens`."""
    if config is None or config.type not in ("enabled", "disabled"):
        return UNSET
    is_on = config.type == "enabled"
    return chat.TemplateArgs(is_on, is_on)


def _wants_one_call(asked: Counted) -> bool:
    return bool(asked.tool_choice and asked.tool_choice.disable_parallel_tool_use)

"""The structural tags that Dynamo makes of a request's tools, as its strict setting makes them.

Known for the formats that our models write: `hermes` (JSON between tags) and `glm47` (keys and values between tags).
"""

from typing import Literal

from pydantic import Field, JsonValue

from control_plane.contracts.wire import Wire

TRIGGER, END = "<tool_call>", "</tool_call>"
END_OF_THOUGHT = "</think>"
GLM_MARKS = ("<think>", END_OF_THOUGHT, TRIGGER, END, "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>")

Tag = dict[str, JsonValue]


class ToolFunction(Wire):
    """What a tool is called and takes."""

    name: str
    parameters: dict[str, JsonValue] = Field(default_factory=dict)


class Tool(Wire):
    """A tool as chat requests name it."""

    function: ToolFunction


class NamedFunction(Wire):
    """The tool that a choice names."""

    name: str


class NamedTool(Wire):
    """A `tool_choice` that names its tool."""

    function: NamedFunction


class ToolUse(Wire):
    """A request's tools. `in_thought`: the answer begins within a thought."""

    parser: Literal["hermes", "glm47"]
    tools: list[Tool] = Field(min_length=1, max_length=1_000)
    tool_choice: Literal["auto", "required"] | NamedTool = "auto"
    parallel_tool_calls: bool = True
    in_thought: bool = False


def structural_tag(use: ToolUse) -> Tag:
    """The tag that an answer with these tools has to fit."""
    choice = use.tool_choice
    named = choice.function.name if isinstance(choice, NamedTool) else None
    is_glm = use.parser == "glm47"
    tags = [_glm_tag(tool.function) if is_glm else _hermes_tag(tool.function)
            for tool in use.tools if named in (None, tool.function.name)]
    if is_glm and named is not None and tags:
        calls = tags[0]
    else:
        calls = {"type": "triggered_tags", "triggers": [TRIGGER], "tags": list[JsonValue](tags),
                 "at_least_one": choice != "auto", "stop_after_first": not use.parallel_tool_calls}
        if is_glm:
            calls["excludes"] = _all_but(TRIGGER)
    return {"type": "structural_tag", "format": _after_thought(calls, is_glm) if use.in_thought else calls}


def _hermes_tag(function: ToolFunction) -> Tag:
    return {"type": "tag", "begin": f'{TRIGGER}\n{{"name": "{function.name}", "arguments": ',
            "content": _arguments(function, "json"), "end": f"}}\n{END}"}


def _glm_tag(function: ToolFunction) -> Tag:
    return {"type": "tag", "begin": f"{TRIGGER}{function.name}", "content": _arguments(function, "glm_xml"),
            "end": END}


def _arguments(function: ToolFunction, style: str) -> Tag:
    return {"type": "json_schema", "json_schema": function.parameters, "style": style}


def _after_thought(calls: Tag, is_glm: bool) -> Tag:
    excludes = list[JsonValue](GLM_MARKS) if is_glm else []
    thought: Tag = {"type": "tag", "begin": "", "content": {"type": "any_text", "excludes": excludes},
                    "end": END_OF_THOUGHT}
    return {"type": "sequence", "elements": [thought, calls]}


def _all_but(mark: str) -> list[JsonValue]:
    return [other for other in GLM_MARKS if other != mark]

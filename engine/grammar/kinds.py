"""The grammars that engines make of what requests ask for, as text."""

import json
from enum import StrEnum
from typing import Annotated

from pydantic import Field, JsonValue, TypeAdapter, ValidationError

from engine.grammar import binding
from engine.grammar.binding import GrammarRefused
from engine.grammar.ebnf import literal
from engine.grammar.tools import ToolUse, structural_tag

CHOICES: TypeAdapter[list[str]] = TypeAdapter(Annotated[list[str], Field(min_length=1)])


class Kind(StrEnum):
    """What an answer is held to."""

    JSON_SCHEMA = "json_schema"
    JSON_OBJECT = "json_object"
    STRUCTURAL_TAG = "structural_tag"
    EBNF = "ebnf"
    REGEX = "regex"
    CHOICE = "choice"
    TOOLS = "tools"


def ebnf_of(kind: Kind, value: JsonValue) -> str:
    """The grammar as xgrammar prints it. A schema may come as JSON text, as some clients send it.

    Raises:
        GrammarRefused: no grammar can be made of it.
    """
    match kind, value:
        case Kind.JSON_OBJECT, _:
            return binding.of_json_schema({"type": "object"})
        case Kind.JSON_SCHEMA, str():
            return binding.of_json_schema(_json(value))
        case Kind.JSON_SCHEMA, dict() | bool():
            return binding.of_json_schema(value)
        case Kind.STRUCTURAL_TAG, dict():
            return binding.of_structural_tag(value)
        case Kind.EBNF, str():
            return binding.of_ebnf(value)
        case Kind.REGEX, str():
            return binding.of_regex(value)
    try:
        if kind is Kind.CHOICE:
            return binding.of_ebnf("root ::= " + " | ".join(map(literal, CHOICES.validate_python(value))))
        if kind is Kind.TOOLS:
            return binding.of_structural_tag(structural_tag(ToolUse.model_validate(value)))
    except ValidationError:
        pass  # its message quotes the input
    raise GrammarRefused(f"the value is none of kind {kind}")


def _json(text: str) -> JsonValue:
    try:
        found: JsonValue = json.loads(text)
    except ValueError:
        raise GrammarRefused("the schema is no JSON") from None
    return found

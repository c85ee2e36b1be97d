"""Whether the tool calls of one answer are in order.

Source: OpenRouter's definition. An answer is wrong if any call of it has arguments that are not JSON, a name that is
not in `tools`, or arguments that do not fit the tool's JSON schema under Draft 7. A schema that is missing or cannot be
compiled fits everything; so does one that refers to other documents, for nothing is fetched.

Clients write the schemas and models the arguments, so a judgement may take for ever: only a process that can be killed
judges (`child.py`).
"""

import json
import re
from collections.abc import Sequence
from enum import StrEnum
from functools import lru_cache
from typing import Any, NoReturn

import msgspec
from jsonschema import Draft7Validator
from jsonschema.exceptions import SchemaError, UnknownType
from referencing import Registry
from referencing.exceptions import Unresolvable

KEPT_SCHEMAS = 256
KEPT_SCHEMA_BYTES = 32 * 1024


class Verdict(StrEnum):
    """What is known of an answer's calls."""

    FINE = "fine"
    WRONG = "wrong"
    UNJUDGED = "unjudged"


class Called(msgspec.Struct, array_like=True, frozen=True):
    """One call; `arguments` should be JSON."""

    name: str
    arguments: str


class Case(msgspec.Struct, array_like=True, frozen=True):
    """The `tools` of a request, as it named them, and the calls of its answer."""

    tools: Sequence[msgspec.Raw]
    calls: Sequence[Called]


class _Function(msgspec.Struct, frozen=True, gc=False):
    name: str = ""
    parameters: msgspec.Raw = msgspec.Raw()


class _Tool(msgspec.Struct, frozen=True, gc=False):
    function: _Function = _Function()


class _Unreadable(Exception):
    """It is JSON, and too large or too deep to be looked at."""


_decode_tool = msgspec.json.Decoder(_Tool).decode


def judge(case: Case) -> Verdict:
    """The verdict on one answer."""
    offered = dict(_offered(case.tools))
    try:
        are_fine = all(call.name in offered and _fits(offered[call.name], call.arguments) for call in case.calls)
    except _Unreadable:
        return Verdict.UNJUDGED
    return Verdict.FINE if are_fine else Verdict.WRONG


def _offered(tools: Sequence[msgspec.Raw]) -> Sequence[tuple[str, bytes]]:
    """Names and schemas of the functions that are offered. A tool of another kind is none, and cannot be called."""
    found = []
    for raw in tools:
        try:
            function = _decode_tool(raw).function
        except msgspec.DecodeError:
            continue
        if function.name:
            found.append((function.name, bytes(function.parameters)))
    return found


def _fits(schema: bytes, arguments: str) -> bool:
    """Raises: _Unreadable."""
    try:
        value = json.loads(arguments, parse_constant=_refuse_constant)
    except json.JSONDecodeError:
        return False
    except (ValueError, RecursionError) as error:  # a number with too many digits, or too many brackets
        raise _Unreadable from error
    validator = _kept(schema) if len(schema) <= KEPT_SCHEMA_BYTES else _compiled(schema)
    try:
        return validator is None or bool(validator.is_valid(value))
    except (Unresolvable, UnknownType, RecursionError, ArithmeticError, ValueError, TypeError, AttributeError,
            LookupError, re.error):
        return True  # the schema is at fault, in a way that shows only when it is applied


def _compiled(schema: bytes) -> Any:
    """A validator; none if there is no schema that can be compiled."""
    if not schema:
        return None
    try:
        value = json.loads(schema)
        Draft7Validator.check_schema(value)
    except (SchemaError, ValueError, RecursionError, re.error):
        return None
    return Draft7Validator(value, registry=Registry())


_kept = lru_cache(KEPT_SCHEMAS)(_compiled)


def _refuse_constant(name: str) -> NoReturn:
    """Python reads `NaN` and `Infinity`, which are not JSON."""
    raise json.JSONDecodeError("not JSON", name, 0)

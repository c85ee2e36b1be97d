"""Whether a tool call's arguments fit their schema, where a grammar should have made them fit.

Clients write the schemas, and this runs where all requests run. So what could take long or reach out is not checked:
patterns, formats, and schemas with references, whose cost nothing bounds, or of more than `MAX_SCHEMA_BYTES`.
"""

import re
from typing import Any

import msgspec
from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError, UnknownType
from jsonschema.validators import extend
from msgspec import json
from referencing import Registry
from referencing.exceptions import Unresolvable

from edge_api.resume.demand import Demand

LEFT_OUT = ("pattern", "format", "uniqueItems")
UNCHECKED = re.compile(rb'"(?:patternProperties|\$ref|\$dynamicRef|\$recursiveRef)"|\\u')  # an escape could hide one
MAX_SCHEMA_BYTES = 32 * 1024
_checker: Any = extend(Draft202012Validator, dict.fromkeys(LEFT_OUT))  # type: ignore[no-untyped-call]


class _Function(msgspec.Struct, frozen=True, gc=False):
    name: str = ""
    parameters: Any = None
    strict: bool | None = None


class _Tool(msgspec.Struct, gc=False):
    function: _Function = _Function()


_decode_tool = json.Decoder(_Tool).decode


def schemas(demand: Demand) -> dict[str, Any]:
    """The schemas that calls must fit, by tool: of strict tools, and of all where a call must come."""
    found: dict[str, Any] = {}
    for raw in demand.tools or ():
        if len(raw) > MAX_SCHEMA_BYTES or UNCHECKED.search(raw):
            continue
        try:
            function = _decode_tool(raw).function
        except msgspec.DecodeError:
            continue  # a tool of another type: the engine took it, and its calls are not ours to judge
        if function.parameters is not None and (function.strict or demand.must_call):
            found[function.name] = function.parameters
    return found


def fits(schema: Any, arguments: str) -> bool:
    """Whether the arguments are JSON that fits the schema. A schema that cannot be understood fits all."""
    try:
        value = json.decode(arguments)
    except msgspec.DecodeError:
        return False
    try:
        return bool(_checker(schema, registry=Registry()).is_valid(value))
    except (SchemaError, UnknownType, Unresolvable, RecursionError, TypeError, ValueError, AttributeError):
        return True

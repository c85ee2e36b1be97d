"""Token counts as engines report them, and what they cost."""

import msgspec
from msgspec import json

from control_plane.contracts.pricing import Cost, Price, rate, units_text
from control_plane.contracts.usage import MeterSource


class PromptDetails(msgspec.Struct, gc=False):
    """Null counts as absent: then nothing is known to be cached, and all is billed in full."""

    cached_tokens: int | None = None


class CompletionDetails(msgspec.Struct, gc=False):
    """Reasoning tokens are part of the completion."""

    reasoning_tokens: int | None = None


class EngineUsage(msgspec.Struct, gc=False):
    """`usage` in an answer of the engine."""

    prompt_tokens: int
    completion_tokens: int = 0
    prompt_tokens_details: PromptDetails | None = None
    completion_tokens_details: CompletionDetails | None = None


class Counts(msgspec.Struct, frozen=True, gc=False):
    """What a request used. `cached` is part of `prompt`, `reasoning` of `completion`."""

    prompt: int
    cached: int
    completion: int
    reasoning: int
    meter: MeterSource


NOTHING_DELIVERED = Counts(0, 0, 0, 0, MeterSource.TOKEN_IDS)
UNKNOWN = Counts(0, 0, 0, 0, MeterSource.PROVISIONAL)

_decode = json.Decoder(EngineUsage).decode


def read_usage(raw: bytes | msgspec.Raw) -> EngineUsage | None:
    """The usage object in these bytes; none if they hold no such thing."""
    try:
        return _decode(raw)
    except msgspec.DecodeError:
        return None


def counts_of(usage: EngineUsage, meter: MeterSource, completion: int | None = None) -> Counts:
    """The counts of an engine's report, made possible where they are not: none negative, no more cached than asked.

    `completion` replaces the engine's count with one of our own.
    """
    prompt = usage.prompt_tokens
    completion = usage.completion_tokens if completion is None else completion
    cached = (usage.prompt_tokens_details and usage.prompt_tokens_details.cached_tokens) or 0
    reasoning = (usage.completion_tokens_details and usage.completion_tokens_details.reasoning_tokens) or 0
    if 0 <= cached <= prompt and 0 <= reasoning <= completion:
        return Counts(prompt, cached, completion, reasoning, meter)
    prompt, completion = max(prompt, 0), max(completion, 0)
    return Counts(prompt, min(max(cached, 0), prompt), completion, min(max(reasoning, 0), completion), meter)


def cost_of(price: Price, counts: Counts) -> Cost:
    """The exact cost of these counts."""
    return rate(price, counts.prompt, counts.cached, counts.completion)


def usage_of(counts: Counts) -> bytes:
    """A usage object of our own."""
    return json.encode({
        "prompt_tokens": counts.prompt, "completion_tokens": counts.completion,
        "total_tokens": counts.prompt + counts.completion, "prompt_tokens_details": {"cached_tokens": counts.cached},
        "completion_tokens_details": {"reasoning_tokens": counts.reasoning}})


def with_cost(usage: bytes, price: Price, cost: Cost) -> bytes:
    """A usage object's bytes, with the cost put in as its last fields. Digits are exact: no float on the way. `usage`
    was read, so it holds a field and ends with its brace."""
    input_units, cached_units, output_units, digits = cost
    added = (f',"cost":{cost.total_text},"cost_details":{{"input":{units_text(input_units, digits)},'
             f'"input_cached":{units_text(cached_units, digits)},"output":{units_text(output_units, digits)},'
             f'"currency":"USD","price_version":"{price.version}","multiplier":"1"}},"is_byok":false}}')
    return usage[:-1] + added.encode()

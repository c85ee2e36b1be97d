"""The request that continues a stream: the one that went upstream at first, with the prompt's and the delivered ids in
place of its prompt, and less of everything that an engine would count afresh."""

from collections.abc import Mapping

import msgspec
from msgspec import json

from edge_api.dialects.base import Upstream
from edge_api.resume.demand import Demand
from edge_api.resume.eligibility import Verdict
from edge_api.resume.journal import Reasoning, Seam

Values = dict[str, msgspec.Raw]

COUNTED_DOWN = ("max_tokens", "max_completion_tokens", "min_tokens")
THINKING_BUDGETS = ("thinking_token_budget", "max_thinking_tokens", "thinking_budget", "reasoning_budget")
REPLACED = ("response_format", "guided_json", "guided_regex", "guided_grammar", "guided_choice", "tools",
            "tool_choice", "parallel_tool_calls")
AUTO = msgspec.Raw(b'"auto"')

_decode_object = json.Decoder(Values).decode
_decode_number = json.Decoder(int).decode


def continuation(sent: bytes, upstream: Upstream, demand: Demand, seam: Seam, verdict: Verdict, prompt_ids: bytes,
                 grammar: str = "") -> bytes:
    """The body to send. `sent` is the body of the first attempt; `prompt_ids` are as JSON has them in a list, without
    brackets; `grammar` is what is left of the constraint, for `CONSTRAIN`.

    Raises:
        msgspec.DecodeError: `sent` is no object of the expected shape.
    """
    values = _decode_object(sent)
    values.pop("kv_transfer_params", None)
    _put_ids(values, upstream, b"%b,%b" % (prompt_ids, seam.ids) if seam.ids else prompt_ids)
    _count_down(values, seam)
    if seam.reasoning is Reasoning.ENDED and upstream is Upstream.CHAT:
        _stop_thinking(values)
    if demand.must_call and seam.calls:
        values["tool_choice"] = AUTO
    if verdict is Verdict.CONSTRAIN:
        _constrain(values, grammar)
    elif verdict is Verdict.FORCE:
        _constrain(values, beginning_with(seam.repeat.content))
    return json.encode(values)


def beginning_with(text: str) -> str:
    """The grammar of all text that begins so, as EBNF."""
    literal = "".join(f"\\u{ord(char):04x}" if ord(char) < 0x10000 else f"\\U{ord(char):08x}" for char in text)
    return f'root ::= "{literal}" rest\nrest ::= [\\u0000-\\U0010ffff]*\n'


def _put_ids(values: Values, upstream: Upstream, ids: bytes) -> None:
    listed = msgspec.Raw(b"[%b]" % ids)
    if upstream is Upstream.COMPLETIONS:
        values["prompt"] = listed
        return
    extras = _decode_object(values["nvext"]) if "nvext" in values else {}
    extras["token_data"] = listed
    values["nvext"] = msgspec.Raw(json.encode(extras))


def _count_down(values: Values, seam: Seam) -> None:
    """Less of what was delivered, where an engine counts from the start of its own answer. A budget of thinking is over
    with the thinking."""
    for name in COUNTED_DOWN:
        _take_off(values, name, seam.tokens)
    for name in THINKING_BUDGETS:
        if seam.reasoning is Reasoning.ENDED:
            values.pop(name, None)
        else:
            _take_off(values, name, seam.tokens)


def _take_off(values: Values, name: str, tokens: int) -> None:
    raw = values.get(name)
    if raw is not None and bytes(raw) != b"null":
        values[name] = msgspec.Raw(b"%d" % max(_decode_number(raw) - tokens, 0))


def _stop_thinking(values: Values) -> None:
    """Tells the frontend's parser that the answer is past its reasoning. The ids hold the reasoning all the same. A
    request's own `thinking` would win over the template's arguments, so it goes."""
    values.pop("thinking", None)
    name = "chat_template_kwargs" if "chat_template_kwargs" in values else "chat_template_args"
    raw = values.get(name)
    known: Mapping[str, msgspec.Raw] = {} if raw is None or bytes(raw) == b"null" else _decode_object(raw)
    switches = ("enable_thinking", "thinking") if "thinking" in known else ("enable_thinking",)
    values[name] = msgspec.Raw(json.encode({**known, **dict.fromkeys(switches, False)}))


def _constrain(values: Values, grammar: str) -> None:
    """Puts the grammar in place of what constrained the answer so far; a frontend takes only one."""
    for name in REPLACED:
        values.pop(name, None)
    values["guided_grammar"] = msgspec.Raw(json.encode(grammar))

"""What of a request decides whether and how its stream can go on elsewhere. Read only when a stream has broken, or once
at its start to know what must be watched."""

import msgspec
from msgspec import json

from edge_api.hot.fields import NOTHING, ChatFields, Fields
from edge_api.resume.journal import Watch

NULL = b"null"
SAMPLED_FROM_TEMPERATURE = 0.0


class Unreadable(Exception):
    """The body is no request whose stream could go on: an engine took what this cannot read."""


class Constraint(msgspec.Struct, frozen=True):
    """What the grammar service is asked about: `kind` and the value that belongs to it."""

    kind: str
    value: msgspec.Raw


class Demand(msgspec.Struct, gc=False):
    """The fields that matter, of a chat or a completions request. Null and absent are the same."""

    n: int | None = None
    best_of: int | None = None
    use_beam_search: bool | None = None
    echo: bool | None = None
    suffix: str | None = None
    prompt_logprobs: int | None = None
    prompt_embeds: msgspec.Raw = NOTHING
    temperature: float | None = None
    seed: int | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    stop: str | list[str] | None = None
    include_stop_str_in_output: bool | None = None
    tools: list[msgspec.Raw] | None = None
    tool_choice: msgspec.Raw = NOTHING
    response_format: msgspec.Raw = NOTHING
    guided_json: msgspec.Raw = NOTHING
    guided_regex: msgspec.Raw = NOTHING
    guided_grammar: msgspec.Raw = NOTHING
    guided_choice: msgspec.Raw = NOTHING
    messages: list[msgspec.Raw] | None = None
    prompt: msgspec.Raw = NOTHING

    @property
    def is_sampled(self) -> bool:
        """Whether the same request could give another text. An engine's default temperature is 1."""
        return self.temperature is None or self.temperature > SAMPLED_FROM_TEMPERATURE

    @property
    def limit(self) -> int | None:
        """How many tokens the answer may have, if the request says so."""
        return self.max_completion_tokens if self.max_completion_tokens is not None else self.max_tokens

    @property
    def stops(self) -> list[str]:
        """The stop strings."""
        found = [self.stop] if isinstance(self.stop, str) else self.stop or []
        return [stop for stop in found if stop]

    @property
    def has_tools(self) -> bool:
        """Whether the answer may call tools."""
        return bool(self.tools) and said(self.tool_choice) != b'"none"'

    @property
    def must_call(self) -> bool:
        """Whether a call is required, any or a named one."""
        choice = said(self.tool_choice)
        return self.has_tools and (choice == b'"required"' or choice.startswith(b"{"))

    def constraint(self) -> Constraint | None:
        """What the text of the answer has to fit, if anything.

        Raises:
            Unreadable: the response format says nothing that is known.
        """
        for kind, value in (("json_schema", self.guided_json), ("regex", self.guided_regex),
                            ("ebnf", self.guided_grammar), ("choice", self.guided_choice)):
            if said(value):
                return Constraint(kind, value)
        return _format_constraint(self.response_format) if said(self.response_format) else None

    def has_media(self) -> bool:
        """Whether a message holds anything but text: then the prompt is more than its token ids.

        Raises:
            Unreadable: a message is none.
        """
        try:
            return any(_is_media(message) for message in self.messages or ())
        except msgspec.DecodeError as error:
            raise Unreadable(str(error)) from None

    def has_several_prompts(self) -> bool:
        """Whether a completions request asks about more than one prompt."""
        raw = said(self.prompt)
        if not raw.startswith(b"["):
            return False
        try:
            items = json.decode(raw, type=list[msgspec.Raw])
        except msgspec.DecodeError:
            return True
        return len(items) > 1 and not bytes(items[0]).lstrip()[:1].isdigit()


class _Part(msgspec.Struct, gc=False):
    type: str = "text"


class _Message(msgspec.Struct, gc=False):
    content: str | list[_Part] | None = None


class _JsonSchema(msgspec.Struct, frozen=True, gc=False):
    schema: msgspec.Raw = NOTHING


class _Format(msgspec.Struct, gc=False):
    type: str = "text"
    json_schema: _JsonSchema = _JsonSchema()


_decode = json.Decoder(Demand).decode
_decode_message = json.Decoder(_Message).decode
_decode_format = json.Decoder(_Format).decode


def read(body: bytes) -> Demand:
    """What a request demands.

    Raises:
        Unreadable: the body is not read as an engine would.
    """
    try:
        return _decode(body)
    except msgspec.DecodeError as error:
        raise Unreadable(str(error)) from None


def watch_for(fields: Fields) -> Watch:
    """What of the stream must be looked at that a request asks for."""
    watch = Watch.CALLS if isinstance(fields, ChatFields) and fields.tools else Watch.NOTHING
    if fields.is_constrained:
        watch |= Watch.TEXT
    return watch if fields.stop is NOTHING else watch | Watch.STOPS


def said(raw: msgspec.Raw) -> bytes:
    """What a raw field says; nothing if it is absent or null."""
    value = bytes(raw)
    return b"" if value == NULL else value


def _is_media(message: msgspec.Raw) -> bool:
    content = _decode_message(message).content
    return isinstance(content, list) and any(part.type != "text" for part in content)


def _format_constraint(raw: msgspec.Raw) -> Constraint | None:
    try:
        asked = _decode_format(raw)
    except msgspec.DecodeError as error:
        raise Unreadable(str(error)) from None
    if asked.type == "text":
        return None
    if asked.type == "json_object":
        return Constraint("json_object", NOTHING)
    if asked.type == "json_schema" and said(asked.json_schema.schema):
        return Constraint("json_schema", asked.json_schema.schema)
    raise Unreadable(f"response_format of type {asked.type[:40]}")

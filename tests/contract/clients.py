"""The unmodified SDKs at one edge, and what each of them was told that a request used."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from typing import Any, NamedTuple
from uuid import UUID

from anthropic import Anthropic
from openai import OpenAI


class Clients(NamedTuple):
    """Both SDKs with one key. They retry nothing, so that a failure is seen."""

    openai: OpenAI
    anthropic: Anthropic


class Told(NamedTuple):
    """What a client was told. `cached` is part of `prompt`, `reasoning` of `completion`, in every dialect."""

    request_id: str
    prompt: int
    cached: int
    completion: int
    reasoning: int
    cost_usd: Decimal


@contextmanager
def clients_of(url: str, key: str) -> Iterator[Clients]:
    """Clients of the edge at `url`, which is without `/v1`."""
    with (OpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0) as openai,
          Anthropic(base_url=url, auth_token=key, max_retries=0) as anthropic):
        yield Clients(openai, anthropic)


def request_id_of(header: str) -> UUID:
    """The id in an `x-request-id` header."""
    return UUID(header.removeprefix("req_"))


def chat(clients: Clients, stream: bool, **asked: Any) -> Told:
    return _told_as_chat(clients.openai.chat.completions.with_raw_response.create, stream, asked)


def completions(clients: Clients, stream: bool, messages: list[Any], **asked: Any) -> Told:
    return _told_as_chat(clients.openai.completions.with_raw_response.create, stream,
                         {"prompt": messages[0]["content"], **asked})


def responses(clients: Clients, stream: bool, messages: list[Any], max_tokens: int, **asked: Any) -> Told:
    raw: Any = clients.openai.responses.with_raw_response.create(
        input=messages, max_output_tokens=max_tokens, **asked, stream=stream)
    answer = list(raw.parse())[-1].response if stream else raw.parse()
    usage = answer.usage
    return Told(raw.headers["x-request-id"], usage.input_tokens, usage.input_tokens_details.cached_tokens,
                usage.output_tokens, usage.output_tokens_details.reasoning_tokens, _usd(usage.to_dict()["cost"]))


def messages(clients: Clients, stream: bool, **asked: Any) -> Told:
    raw: Any = clients.anthropic.messages.with_raw_response.create(**asked, stream=stream)
    if stream:
        [usage] = [event.usage for event in raw.parse() if event.type == "message_delta"]
    else:
        usage = raw.parse().usage
    return Told(raw.headers["request-id"], usage.input_tokens + usage.cache_read_input_tokens,
                usage.cache_read_input_tokens, usage.output_tokens,
                usage.output_tokens_details.thinking_tokens if usage.output_tokens_details else 0,
                _usd(usage.to_dict()["cost"]))


DIALECTS: dict[str, Callable[..., Told]] = {
    "chat": chat, "completions": completions, "responses": responses, "messages": messages}


def _told_as_chat(create: Any, stream: bool, asked: dict[str, Any]) -> Told:
    if stream:
        asked = asked | {"stream_options": {"include_usage": True}}
    raw = create(**asked, stream=stream)
    answer = list(raw.parse())[-1] if stream else raw.parse()
    usage = answer.usage.to_dict()
    prompt, completion = usage.get("prompt_tokens_details") or {}, usage.get("completion_tokens_details") or {}
    return Told(raw.headers["x-request-id"], usage["prompt_tokens"], prompt.get("cached_tokens") or 0,
                usage["completion_tokens"], completion.get("reasoning_tokens") or 0, _usd(usage["cost"]))


def _usd(cost: float) -> Decimal:
    """The number as it stood in the JSON: its digits are fewer than a float keeps."""
    return Decimal(str(cost))

"""`meridian chat`: one question to a model, through the edge, as any client would ask it.

The answer's text goes to standard output as it comes. What it used and where it was served goes to standard error, so
that a pipe gets the text alone.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Annotated, Any

import httpx
import typer
from pydantic import BaseModel

from control_plane.cli import render
from control_plane.cli.client import describe
from control_plane.cli.errors import CommandFailed, Denied, Unfinished, Unreachable, UsageFault
from control_plane.cli.invocation import Invocation, command
from control_plane.cli.stack import EdgeAccess, edge_access
from control_plane.contracts.clock import SystemClock
from control_plane.contracts.pricing import usd_text

app = typer.Typer(add_completion=False)

CONNECT_DEADLINE_S = 2.0
SILENCE_DEADLINE_S = 120.0  # the longest that may pass between two pieces of an answer

Prompt = Annotated[str, typer.Argument(metavar="TEXT", help="What to say to the model.")]
ModelOption = Annotated[str, typer.Option("--model", "-m", help="Which model (default: the stack's).",
                                          show_default=False)]
Stream = Annotated[bool, typer.Option("--stream/--no-stream", help="Print the text as it comes, or all at the end.")]
MaxTokens = Annotated[int, typer.Option("--max-tokens", min=1, help="The longest answer.")]


class ChatAnswer(BaseModel):
    """What `-o json` prints. Durations are milliseconds; `usage` is as the edge sent it."""

    text: str
    model: str
    finish_reason: str | None
    usage: dict[str, Any] | None
    request_id: str | None
    datacenter: str | None
    ttft_ms: float | None
    duration_ms: float


@dataclass(slots=True)
class Heard:
    """What has come so far."""

    text: list[str] = field(default_factory=list)
    finish_reason: str | None = None
    usage: dict[str, Any] | None = None
    fault: str | None = None
    done: bool = False

    def take(self, event: dict[str, Any]) -> str:
        """Takes an event or a whole completion, and returns the text in it."""
        self.usage = event.get("usage") or self.usage
        if event.get("error"):
            self.fault = str(event["error"].get("message"))
        said = ""
        for choice in event.get("choices") or []:
            self.finish_reason = choice.get("finish_reason") or self.finish_reason
            said += (choice.get("delta") or choice.get("message") or {}).get("content") or ""
        self.text.append(said)
        return said


@command(app, "chat")
def chat(cli: Invocation, text: Prompt, model: ModelOption = "", stream: Stream = True,
         max_tokens: MaxTokens = 128) -> None:
    """Ask a model something, through the edge."""
    access = edge_access(cli.settings())
    if not (model or access.model):
        raise UsageFault("no model is known here: name one with --model")
    body: dict[str, Any] = {
        "model": model or access.model, "messages": [{"role": "user", "content": text}], "max_tokens": max_tokens}
    if stream:
        body |= {"stream": True, "stream_options": {"include_usage": True}}
    answer, heard = _ask(cli, access, body)
    if cli.is_json:
        cli.write(answer.model_dump_json(indent=2))
    else:
        cli.write("")
        cli.err.print(footer(answer), style=render.QUIET, highlight=False, markup=False, soft_wrap=True)
    if heard.fault:
        raise Unfinished(f"the answer broke off: {heard.fault}", code="stream_broken")
    if stream and not heard.done:
        raise Unfinished("the answer broke off without an end", code="stream_broken")


def footer(answer: ChatAnswer) -> str:
    """What the answer used, and where it came from."""
    usage = answer.usage or {}
    cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens")
    tokens = f"{render.count(usage.get('prompt_tokens'))} in" + (f" ({render.count(cached)} cached)" if cached else "")
    parts = [f"{tokens}, {render.count(usage.get('completion_tokens'))} out"]
    if usage.get("cost") is not None:
        parts.append(f"${usd_text(usage['cost'])}")
    parts.append(render.span(answer.duration_ms / 1000))
    parts += [part for part in (answer.datacenter, answer.request_id) if part]
    return " · ".join(parts)


def _ask(cli: Invocation, access: EdgeAccess, body: dict[str, Any]) -> tuple[ChatAnswer, Heard]:
    clock = SystemClock()
    began_s, first_s = clock.monotonic_s(), None
    heard = Heard()
    timeout = httpx.Timeout(SILENCE_DEADLINE_S, connect=CONNECT_DEADLINE_S)
    headers = {"authorization": f"Bearer {access.api_key}"}
    try:
        with (httpx.Client(trust_env=False, timeout=timeout, headers=headers) as client,
              client.stream("POST", f"{access.url}/chat/completions", json=body) as response):
            if not response.is_success:
                response.read()
                raise _denied(response)
            for event in _events(response, heard):
                said = heard.take(event)
                first_s = first_s or (clock.monotonic_s() if said else None)
                if said and not cli.is_json:
                    typer.echo(render.printable(said), nl=False)
    except httpx.InvalidURL as error:
        raise UsageFault(f"{access.url} is no address: {error}") from error
    except httpx.TransportError as error:
        if not heard.text:
            why = f"no answer from the edge at {access.url} ({describe(error)}): is the stack up?"
            raise Unreachable(why) from error
        heard.fault = describe(error)
    answer = ChatAnswer(
        text="".join(heard.text), model=str(body["model"]), finish_reason=heard.finish_reason, usage=heard.usage,
        request_id=response.headers.get("x-request-id"), datacenter=response.headers.get("x-meridian-datacenter"),
        ttft_ms=None if first_s is None else (first_s - began_s) * 1000,
        duration_ms=(clock.monotonic_s() - began_s) * 1000)
    return answer, heard


def _events(response: httpx.Response, heard: Heard) -> Iterator[dict[str, Any]]:
    """The events of a stream, or the one document of a plain answer. Decimals stay exact."""
    if "text/event-stream" not in response.headers.get("content-type", ""):
        response.read()
        yield _decode(response.text)
        return
    for line in response.iter_lines():
        if not line.startswith("data:"):
            continue
        data = line[5:].strip()
        if data == "[DONE]":
            heard.done = True
            return
        yield _decode(data)


def _decode(text: str) -> dict[str, Any]:
    try:
        event = json.loads(text, parse_float=Decimal)
    except ValueError as error:
        raise CommandFailed("the edge answered something that is no JSON: compare the versions",
                            code="bad_answer") from error
    return event if isinstance(event, dict) else {}


def _denied(response: httpx.Response) -> Denied:
    try:
        error = response.json()["error"]
        return Denied(str(error["message"]), code=str(error["code"]))
    except (ValueError, KeyError, TypeError):
        return Denied(f"the edge answered HTTP {response.status_code}", code=f"http_{response.status_code}")

"""litellm as a client: what OpenAI's and Anthropic's dialect are to it, for models that it does not know."""

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.contract.environments import litellm_client
from tests.contract.environments.install import environment
from tests.contract.guests import MODEL, Guest
from tests.contract.scripted import ScriptedEdge, call, compact, say, schema
from tests.engine.cluster import MODEL as SCRIPTED_MODEL

pytestmark = [pytest.mark.stack, pytest.mark.slow, pytest.mark.timeout(600)]
HELLO = [{"role": "user", "content": "hello there"}]
NASTY = 'if a < b && c: print("<b>&amp;</b>")\n\t\'漢字\' 😀 \\n'
TOOLS = [{"type": "function", "function": {"name": "write", "description": "Writes.",
                                           "parameters": schema(text="string")}}]
Ask = Callable[..., dict[str, Any]]


@pytest.fixture(scope="module")
def litellm() -> Iterator[Ask]:
    """Asks litellm, which runs in a process of its own."""
    environ = {"PATH": os.environ["PATH"], "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    with subprocess.Popen([environment("litellm") / "python", litellm_client.__file__], text=True, env=environ,
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        say_to, answers = process.stdin, process.stdout
        assert say_to
        assert answers

        def ask(**asked: Any) -> dict[str, Any]:
            say_to.write(json.dumps({"num_retries": 0, **asked}) + "\n")
            say_to.flush()
            told: dict[str, Any] = json.loads(answers.readline())
            return told

        yield ask
        say_to.close()


def at(edge: Guest | ScriptedEdge, provider: str) -> dict[str, str]:
    """Where litellm finds the edge. Its Anthropic provider adds the `/v1` itself."""
    return {"api_key": edge.key, "api_base": edge.url if provider == "anthropic" else f"{edge.url}/v1"}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("provider", "dialect"), [("openai", "chat"), ("anthropic", "messages")])
def test_an_answer_is_recorded_once_as_litellm_counts_it(
        litellm: Ask, guest: Guest, provider: str, dialect: str, stream: bool) -> None:
    with guest.one_record() as recorded:
        told = litellm(call="completion", model=f"{provider}/{MODEL}", messages=HELLO, max_tokens=5, stream=stream,
                       **at(guest, provider), **({"stream_options": {"include_usage": True}} if stream else {}))
    answer, usage = told["answer"], told["answer"]["usage"]
    assert len(answer["choices"][0]["message"]["content"].split()) == 5
    assert answer["choices"][0]["finish_reason"] == "length"
    [record] = recorded
    assert (usage["prompt_tokens"], usage["prompt_tokens_details"]["cached_tokens"], usage["completion_tokens"]) == (
        record["prompt_tokens"], record["cached_tokens"], record["completion_tokens"])
    assert (record["streamed"], guest.generation(record["request_id"])["api_type"]) == (stream, dialect)
    if provider == "openai":
        assert usage["cost"] == float(record["cost_usd"])


@pytest.mark.parametrize("stream", [False, True])
def test_a_response_is_answered(litellm: Ask, guest: Guest, stream: bool) -> None:
    """litellm itself cuts a stream out of a whole answer, for it does not know that the model can stream."""
    with guest.one_record() as recorded:
        told = litellm(call="responses", model=f"openai/{MODEL}", input="hello there", max_output_tokens=16,
                       stream=stream, **at(guest, "openai"))
    assert told["answer"]["status"] == "incomplete"
    assert len(told["answer"]["output"][0]["content"][0]["text"].split()) == 16
    [record] = recorded
    assert record["completion_tokens"] == 16


def test_a_completion_is_answered(litellm: Ask, guest: Guest) -> None:
    told = litellm(call="text_completion", model=f"text-completion-openai/{MODEL}", prompt="hello there",
                   max_tokens=5, **at(guest, "openai"))
    assert len(told["answer"]["choices"][0]["text"].split()) == 5


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("provider", ["openai", "anthropic"])
def test_tool_arguments_arrive_byte_exact(litellm: Ask, scripted: ScriptedEdge, provider: str, stream: bool) -> None:
    told = litellm(call="completion", model=f"{provider}/{SCRIPTED_MODEL}", tools=TOOLS, max_tokens=400, stream=stream,
                   messages=say(call("write", text=NASTY)), **at(scripted, provider))
    choice = told["answer"]["choices"][0]
    [made] = choice["message"]["tool_calls"]
    assert (choice["finish_reason"], made["function"]["name"]) == ("tool_calls", "write")
    assert json.loads(made["function"]["arguments"]) == {"text": NASTY}
    if (provider, stream) != ("anthropic", False):  # there litellm writes the object again, in a way of its own
        assert made["function"]["arguments"] == compact({"text": NASTY})


@pytest.mark.parametrize("provider", ["openai", "anthropic"])
def test_errors_are_of_the_kinds_that_litellm_tells_apart(litellm: Ask, guest: Guest, provider: str) -> None:
    place = at(guest, provider)
    none = litellm(call="completion", model=f"{provider}/sim/none", messages=HELLO, max_tokens=5, **place)
    assert (none["error"], none["status"]) == ("NotFoundError", 404)
    stranger = litellm(call="completion", model=f"{provider}/{MODEL}", messages=HELLO, max_tokens=5,
                       **{**place, "api_key": "sk-nobody"})
    assert (stranger["error"], stranger["status"]) == ("AuthenticationError", 401)
    wrong = litellm(call="completion", model=f"{provider}/{MODEL}", messages=HELLO, max_tokens=10_000_000, **place)
    assert (wrong["error"], wrong["status"]) == ("BadRequestError", 400)
    assert "max_tokens" in wrong["message"]

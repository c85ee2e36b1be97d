"""OpenAI's own client, unmodified: only its base URL and key are ours."""

import time
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import httpx2
import openai
import pytest
from openai import OpenAI

from tests.contract.clients import Clients
from tests.contract.guests import MODEL, Guest, invite
from tests.e2e.stack import LocalStack

pytestmark = pytest.mark.stack
HELLO: Any = [{"role": "user", "content": "hello there"}]


@pytest.fixture
def sdk(clients: Clients) -> OpenAI:
    return clients.openai


def client_of(guest: Guest, **options: Any) -> OpenAI:
    return OpenAI(**{"base_url": f"{guest.url}/v1", "api_key": guest.key, "max_retries": 0, **options})


def test_a_chat_is_answered_with_its_usage_and_its_cost(sdk: OpenAI) -> None:
    answer = sdk.chat.completions.create(model=MODEL, messages=HELLO, max_tokens=7)
    assert (answer.object, answer.model, answer.choices[0].finish_reason) == ("chat.completion", MODEL, "length")
    assert len((answer.choices[0].message.content or "").split()) == 7
    assert answer.usage
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + 7
    usage: dict[str, Any] = answer.usage.to_dict()
    assert usage["cost"] == pytest.approx(answer.usage.prompt_tokens * 0.6e-6 + 7 * 2.2e-6)
    assert (usage["cost_details"]["price_version"], usage["is_byok"]) == ("pv_1", False)


def test_a_stream_is_chunks_of_one_answer_and_its_usage_comes_to_who_asked(sdk: OpenAI) -> None:
    events = list(sdk.chat.completions.create(
        model=MODEL, messages=HELLO, max_tokens=6, stream=True, stream_options={"include_usage": True}))
    assert len({(event.id, event.created, event.model, event.object) for event in events}) == 1
    assert events[0].choices[0].delta.role == "assistant"
    assert [event.choices[0].finish_reason for event in events[:-1] if event.choices[0].finish_reason] == ["length"]
    assert (events[-1].choices, all(event.usage is None for event in events[:-1])) == ([], True)
    assert events[-1].usage
    assert events[-1].usage.completion_tokens == 6
    assert events[-1].usage.to_dict()["cost"]


def test_a_completion_continues_a_prompt(sdk: OpenAI) -> None:
    answer = sdk.completions.create(model=MODEL, prompt="once upon", max_tokens=5)
    assert (answer.object, len(answer.choices[0].text.split())) == ("text_completion", 5)
    assert answer.usage
    assert answer.usage.completion_tokens == 5
    events = list(sdk.completions.create(model=MODEL, prompt="once upon", max_tokens=5, stream=True))
    assert len("".join(event.choices[0].text for event in events).split()) == 5
    assert events[-1].choices[0].finish_reason == "length"


def test_a_response_is_answered(sdk: OpenAI) -> None:
    answer = sdk.responses.create(model=MODEL, input="hello there", max_output_tokens=16)
    assert (answer.object, answer.status, answer.to_dict()["store"]) == ("response", "incomplete", False)
    assert len(answer.output_text.split()) == 16
    assert answer.usage
    assert answer.usage.output_tokens == 16


def test_a_streamed_response_is_the_response_in_the_end(sdk: OpenAI) -> None:
    asked: Any = {"model": MODEL, "input": "hello there", "max_output_tokens": 16}
    types = [event.type for event in sdk.responses.create(**asked, stream=True)]
    assert types[:2] == ["response.created", "response.in_progress"]
    assert types[-1] == "response.incomplete"
    events = list(sdk.responses.create(**asked, stream=True))
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == (
        events[-1].response.output_text if events[-1].type == "response.incomplete" else None)


def test_a_conversation_goes_on_with_what_the_client_got(sdk: OpenAI) -> None:
    first = sdk.responses.create(model=MODEL, input="hello there", max_output_tokens=16)
    asked: Any = [{"role": "user", "content": "hello there"}, *first.output, {"role": "user", "content": "more"}]
    second = sdk.responses.create(model=MODEL, input=asked, max_output_tokens=16)
    assert first.usage
    assert second.usage
    assert second.usage.input_tokens > first.usage.input_tokens + 16


def test_tokens_of_a_response_are_counted_without_one(sdk: OpenAI, guest: Guest) -> None:
    counted = sdk.responses.input_tokens.count(model=MODEL, input="hello there", instructions="Be brief.").input_tokens
    answer = sdk.responses.create(model=MODEL, input="hello there", instructions="Be brief.", max_output_tokens=16)
    assert answer.usage
    assert answer.usage.input_tokens == counted


@pytest.mark.parametrize("asked", [{"store": True}, {"previous_response_id": "resp_1"}, {"background": True}])
def test_what_would_need_a_memory_is_refused_by_name(sdk: OpenAI, asked: dict[str, Any]) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        sdk.responses.create(model=MODEL, input="hello", **asked)
    assert refused.value.param == next(iter(asked))


def test_a_model_that_makes_no_embeddings_says_so(sdk: OpenAI) -> None:
    with pytest.raises((openai.BadRequestError, openai.NotFoundError), match="makes no embeddings") as refused:
        sdk.embeddings.create(model=MODEL, input="hello")
    assert refused.value.param == "model"


def test_models_are_listed_and_found_by_an_id_with_a_slash(sdk: OpenAI) -> None:
    assert [model.id for model in sdk.models.list()] == [MODEL]
    found: Any = sdk.models.retrieve(MODEL)
    assert (found.id, found.owned_by) == (MODEL, "meridian")
    assert found.pricing["unit_prices"]["prompt"] == "0.0000006"


def test_models_need_no_key(guest: Guest) -> None:
    with client_of(guest, api_key="none") as stranger:
        assert [model.id for model in stranger.models.list()] == [MODEL]


def test_every_answer_names_its_request(sdk: OpenAI) -> None:
    answers: list[Any] = [
        sdk.chat.completions.create(model=MODEL, messages=HELLO, max_tokens=2),
        sdk.completions.create(model=MODEL, prompt="hello", max_tokens=2),
        sdk.responses.create(model=MODEL, input="hello", max_output_tokens=16),
        sdk.models.retrieve(MODEL)]
    named = {answer._request_id for answer in answers}
    assert len(named) == len(answers)
    assert all(name.startswith("req_") for name in named)


def test_headers_tell_who_is_billed_and_how_the_request_is_called(sdk: OpenAI, guest: Guest) -> None:
    raw = sdk.chat.completions.with_raw_response.create(
        model=MODEL, messages=HELLO, max_tokens=2, extra_headers={"X-Client-Request-Id": "mine-1"})
    assert raw.headers["x-billed-team"] == guest.team_id
    assert raw.headers["x-generation-id"].removeprefix("gen_") == raw.headers["x-request-id"].removeprefix("req_")
    assert raw.headers["x-client-request-id"] == "mine-1"
    assert int(raw.headers["openai-processing-ms"]) >= 0
    assert not {"server", "set-cookie", "via"} & {name.lower() for name in raw.headers}


def test_a_key_of_nobody_is_an_authentication_error(guest: Guest) -> None:
    with client_of(guest, api_key="sk-nobody") as stranger, pytest.raises(openai.AuthenticationError) as refused:
        stranger.chat.completions.create(model=MODEL, messages=HELLO)
    assert (refused.value.code, refused.value.type) == ("invalid_api_key", "authentication_error")
    assert (refused.value.request_id or "").startswith("req_")


def test_a_foreign_team_is_a_permission_error_and_leaves_no_record(sdk: OpenAI, guest: Guest) -> None:
    with pytest.raises(openai.PermissionDeniedError) as refused:
        sdk.chat.completions.create(model=MODEL, messages=HELLO, extra_headers={"X-Prime-Team-ID": "team_other"})
    assert refused.value.code == "team_mismatch"
    assert refused.value.request_id
    own = sdk.chat.completions.with_raw_response.create(
        model=MODEL, messages=HELLO, max_tokens=2, extra_headers={"X-Prime-Team-ID": guest.team_id})
    guest.record_of(own.headers["x-request-id"])
    assert not guest.has_record_of(refused.value.request_id)


def test_a_model_that_there_is_not_is_not_found(sdk: OpenAI) -> None:
    for ask in (lambda: sdk.chat.completions.create(model="sim/none", messages=HELLO),
                lambda: sdk.responses.create(model="sim/none", input="hello"),
                lambda: sdk.models.retrieve("sim/none")):
        with pytest.raises(openai.NotFoundError) as refused:
            ask()
        assert (refused.value.code, refused.value.param) == ("model_not_found", "model")


def test_a_wrong_field_is_a_bad_request_that_names_it(sdk: OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        sdk.chat.completions.create(model=MODEL, messages=HELLO, max_tokens=10_000_000)
    assert (refused.value.param, refused.value.code) == ("max_tokens", "invalid_value")


class Attempts:
    """A client that retries as it does by default, and counts what it sent."""

    def __init__(self, guest: Guest) -> None:
        self.count = 0
        self.sdk = client_of(guest, max_retries=2, http_client=openai.DefaultHttpxClient(
            event_hooks={"request": [self._sent]}))

    def _sent(self, request: httpx2.Request) -> None:
        self.count += 1


@pytest.fixture
def broke(stack: LocalStack) -> Iterator[Attempts]:
    """A client of a prepaid team without money."""
    attempts = Attempts(invite(stack, ("teams", "billing", "TEAM", "--mode", "prepaid")))
    with attempts.sdk:
        yield attempts


def test_no_money_is_said_once_and_not_asked_again(broke: Attempts) -> None:
    with pytest.raises(openai.APIStatusError) as refused:
        broke.sdk.chat.completions.create(model=MODEL, messages=HELLO, max_tokens=5)
    assert refused.value.status_code == 402
    assert refused.value.response.json() == {"error": {
        "message": "Insufficient balance (including overdraft). Please add funds to continue.",
        "type": "insufficient_quota", "param": None, "code": "insufficient_funds"}}
    assert refused.value.response.headers["x-should-retry"] == "false"
    assert broke.count == 1


def test_a_limit_is_told_in_headers_and_then_by_a_rate_limit_error(stack: LocalStack) -> None:
    guest = invite(stack, ("limits", "set", "--team", "TEAM", "--rpm", "2", "--tpm", "300000"))
    with client_of(guest) as sdk:
        raw = sdk.chat.completions.with_raw_response.create(model=MODEL, messages=HELLO, max_tokens=2)
        told = {name: raw.headers[f"x-ratelimit-{name}"] for name in (
            "limit-requests", "remaining-requests", "reset-requests", "limit-tokens", "remaining-tokens")}
        assert (told["limit-requests"], told["remaining-requests"]) == ("2", "1")
        assert (told["limit-tokens"], int(told["remaining-tokens"]) < 300_000) == ("300000", True)
        assert told["reset-requests"].endswith("s")
        sdk.chat.completions.create(model=MODEL, messages=HELLO, max_tokens=2)
        with pytest.raises(openai.RateLimitError) as refused:
            sdk.chat.completions.create(model=MODEL, messages=HELLO, max_tokens=2)
    assert (refused.value.code, refused.value.type) == ("rate_limit_exceeded", "rate_limit_error")
    headers = refused.value.response.headers
    assert 0 < int(headers["retry-after"]) <= 120
    assert 0 < int(headers["retry-after-ms"]) <= 120_000
    assert headers["x-should-retry"] == "true"
    assert headers["x-ratelimit-remaining-requests"] == "0"


def test_the_client_waits_as_it_is_told_and_is_then_served(stack: LocalStack) -> None:
    guest = invite(stack, ("limits", "set", "--team", "TEAM", "--concurrency", "1"))
    attempts, began_s = Attempts(guest), time.monotonic()
    with attempts.sdk, client_of(guest) as other:
        held = other.chat.completions.create(model=MODEL, messages=HELLO, max_tokens=100, stream=True)
        next(held)
        answer = attempts.sdk.chat.completions.create(model=MODEL, messages=HELLO, max_tokens=2)
        assert answer.usage
        assert attempts.count > 1
        assert time.monotonic() - began_s < 20
        held.close()


def test_a_client_asks_about_its_key_and_its_spending(sdk: OpenAI, guest: Guest) -> None:
    raw = sdk.chat.completions.with_raw_response.create(model=MODEL, messages=HELLO, max_tokens=3)
    record = guest.record_of(raw.headers["x-request-id"])
    generation = guest.generation(raw.headers["x-generation-id"])
    assert (generation["total_cost"], generation["tokens_completion"]) == (float(record["cost_usd"]), 3)
    key = guest.get("/key").json()["data"]
    assert key["team_id"] == guest.team_id
    spent = sum(Decimal(each["cost_usd"]) for each in guest.records())
    assert key["usage"] == pytest.approx(float(spent))

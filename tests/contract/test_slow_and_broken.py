"""What unmodified clients make of an engine that is silent for long, and of one that dies midway."""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import anthropic
import openai
import pytest

from control_plane.contracts.usage import Outcome
from tests.contract.clients import Clients, clients_of
from tests.contract.scripted import ScriptedEdge, scripted_edge
from tests.engine.cluster import MODEL
from tests.engine.scripted import script

SILENT_S, CLIENT_PATIENCE_S = 24.0, 10.5
WORDS = "one two three four five six seven eight nine ten " * 4


def slow(**options: Any) -> list[Any]:
    return [{"role": "user", "content": script(WORDS, **options)}]


@pytest.mark.slow
def test_no_client_loses_patience_with_a_long_prefill(scripted: ScriptedEdge) -> None:
    """They give up when nothing comes for a little more than the edge may be silent."""
    asked: Any = {"model": MODEL, "stream": True}
    with clients_of(scripted.url, scripted.key) as clients:
        sdk = clients.openai.with_options(timeout=CLIENT_PATIENCE_S)
        other = clients.anthropic.with_options(timeout=CLIENT_PATIENCE_S)
        ways: list[Callable[[], Any]] = [
            lambda: sdk.chat.completions.create(**asked, messages=slow(wait_s=SILENT_S)),
            lambda: sdk.completions.create(**asked, prompt=slow(wait_s=SILENT_S)[0]["content"], max_tokens=400),
            lambda: sdk.responses.create(**asked, input=slow(wait_s=SILENT_S)),
            lambda: other.messages.create(**asked, messages=slow(wait_s=SILENT_S), max_tokens=400)]
        with ThreadPoolExecutor(len(ways)) as pool:
            began_s = time.monotonic()
            lengths = list(pool.map(lambda way: len(list(way())), ways))
    assert time.monotonic() - began_s > SILENT_S
    assert min(lengths) > 30


@pytest.fixture(scope="module")
def frail(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ScriptedEdge]:
    """An edge before an engine whose only worker will die."""
    with scripted_edge(tmp_path_factory.mktemp("frail")) as edge:
        yield edge


@pytest.fixture
def frail_clients(frail: ScriptedEdge) -> Iterator[Clients]:
    with clients_of(frail.url, frail.key) as clients:
        yield clients


def test_a_death_that_nobody_can_take_over_is_an_error_in_every_client(
        frail: ScriptedEdge, frail_clients: Clients) -> None:
    sdk, asked = frail_clients.openai, {"model": MODEL, "stream": True}
    chat: Any = sdk.chat.completions.with_raw_response.create(**asked, messages=slow(pace_s=0.3))  # type: ignore[call-overload]
    response: Any = sdk.responses.with_raw_response.create(**asked, input=slow(pace_s=0.3))  # type: ignore[call-overload]
    message: Any = frail_clients.anthropic.messages.with_raw_response.create(
        **asked, messages=slow(pace_s=0.3), max_tokens=400)  # type: ignore[call-overload]
    streams = [raw.parse() for raw in (chat, response, message)]
    for stream in streams:
        for _ in range(5):
            next(stream)
    with pytest.raises(openai.APIError):
        list(sdk.chat.completions.create(model=MODEL, messages=slow(die_after=3), stream=True))

    with pytest.raises(openai.APIError) as lost:
        list(streams[0])
    assert lost.value.code == "upstream_unavailable"
    last = list(streams[1])[-1]
    assert (last.type, last.response.status) == ("response.failed", "failed")
    assert last.response.error.code == "server_error"
    with pytest.raises(anthropic.APIStatusError) as broken:
        list(streams[2])
    assert broken.value.body["error"]["type"] == "api_error"  # type: ignore[index]

    for raw in (chat, response, message):
        record = frail.record_of(raw.headers["x-request-id"])
        assert record.outcome == Outcome.UPSTREAM_LOST
        assert 0 < record.completion_tokens < len(WORDS.split())
    assert len({record.request_id for record in frail.records()}) == len(frail.records()) == 4

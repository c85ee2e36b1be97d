"""An edge by itself: its one key, the models of its one server, and the room in its outbox."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from decimal import Decimal
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from control_plane.contracts import ids
from control_plane.contracts.clock import ManualClock
from control_plane.contracts.pricing import Price
from edge_api.main import CannotStart
from edge_api.metering.outbox import Outbox, segment_numbers
from edge_api.metrics import Metrics
from edge_api.routing.table import RoutedModel
from edge_api.standalone import (
    MAX_UNLISTED,
    UNKNOWN_WINDOW,
    AnyModel,
    OneKey,
    Options,
    StandaloneSettings,
    UpstreamModels,
    assemble,
    trim,
    upstream_url,
)
from tests.unit.edge_api.builders import usage_open, usage_record

PRICE = Price(version="pv_1", input_usd=Decimal("0.000001"), cached_input_usd=Decimal(0), output_usd=Decimal(0))


def models_of(url: str) -> UpstreamModels:
    return UpstreamModels(urlsplit(url), PRICE, ManualClock())


@asynccontextmanager
async def server(*answers: bytes) -> AsyncIterator[str]:
    """Answers one request a connection, with these bodies in turn; an empty one is a 500."""
    left = list(answers)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        body = left.pop(0)
        writer.write(b"HTTP/1.1 %d X\r\nconnection: close\r\ncontent-length: %d\r\n\r\n%b"
                     % (200 if body else 500, len(body), body))
        await writer.drain()
        writer.close()

    listening = await asyncio.start_server(answer, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    finally:
        listening.close()


async def test_one_key_is_known_and_no_other() -> None:
    keyring = OneKey("any-form-will-do")
    principal = keyring.cached(ids.secret_digest("any-form-will-do"))
    assert principal is not None
    assert (principal.limits, principal.money_scopes) == ([], [])
    assert keyring.cached(ids.secret_digest("any-form-will-d0")) is None
    assert await keyring.find(ids.secret_digest("any-form-will-d0"), "127.0.0.1") is None


async def test_models_are_those_that_the_server_lists() -> None:
    async with server(b'{"data":[{"id":"org/m","created":7,"owned_by":"org","max_model_len":4096}]}') as url:
        models = models_of(url)
        async with httpx.AsyncClient() as client:
            assert await models.read(client)
    table = models.holder.current
    assert table is not None
    assert list(table.models) == ["org/m"]
    model = table.models["org/m"]
    assert (model.context_window, model.listing.created_s, model.listing.owned_by) == (4096, 7, "org")
    assert model.price == PRICE
    assert [route.weight for route in model.routes] == [100]


@pytest.mark.parametrize("body", [b"", b"<html>", b'{"data":[{"name":"no id"}]}'])
async def test_a_server_that_lists_nothing_is_served_all_the_same(body: bytes) -> None:
    async with server(body) as url:
        models = models_of(url)
        async with httpx.AsyncClient() as client:
            assert not await models.read(client)
    assert models.holder.current is not None
    assert models.holder.current.models.get("some/model") is not None


async def test_a_server_that_is_away_is_no_error() -> None:
    async with server() as url:
        pass
    async with httpx.AsyncClient() as client:
        assert not await models_of(url).read(client)


async def test_an_unknown_model_has_the_list_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edge_api.standalone.LIST_AGAIN_S", 0.0)
    async with server(b'{"data":[]}', b'{"data":[{"id":"new"}]}') as url:
        models = models_of(url)
        reading = asyncio.create_task(models.run())
        async with asyncio.timeout(5):
            while models.holder.current is None or not list(models.holder.current.models):
                await asyncio.sleep(0.01)
                if models.holder.current is not None:
                    models.holder.current.models.get("new")
        reading.cancel()
    assert list(models.holder.current.models) == ["new"]


def test_a_name_that_no_record_could_hold_is_no_models() -> None:
    models = AnyModel({}, lambda _: pytest.fail("it would be kept"), lambda: pytest.fail("the list is asked for it"))
    assert models.get("x" * 513) is None


def test_an_unlisted_model_goes_to_the_server_and_stays_unlisted() -> None:
    models = models_of("http://127.0.0.1:8000").holder.current
    assert models is not None
    made = models.models.get("ft:mine")
    assert made is not None
    assert (made.id, made.max_output_tokens, made.price) == ("ft:mine", UNKNOWN_WINDOW, PRICE)
    assert [(route.host, route.port) for route in made.routes] == [("127.0.0.1", 8000)]
    assert models.models.get("ft:mine") is made
    assert list(models.models) == []


def test_made_up_names_fill_no_memory() -> None:
    made: list[str] = []

    def make(model_id: str) -> RoutedModel:
        made.append(model_id)
        return whatever

    whatever = AnyModel({}, models_of("http://h:1")._unlisted, lambda: None).get("x")
    models = AnyModel({}, make, lambda: None)
    for number in range(MAX_UNLISTED + 1):
        models.get(str(number))
    models.get(str(MAX_UNLISTED))
    assert len(made) == MAX_UNLISTED + 1
    models.get("0")
    assert made[-1] == "0"


@pytest.mark.parametrize(("text", "netloc"), [
    ("http://127.0.0.1:8000", "127.0.0.1:8000"), ("https://engine.internal/v1/", "engine.internal"),
    ("http://[::1]:8000/v1", "[::1]:8000")])
def test_the_server_may_be_named_with_its_v1(text: str, netloc: str) -> None:
    assert upstream_url(text).netloc == netloc


@pytest.mark.parametrize("text", ["", "engine:8000", "ftp://engine", "http://engine/other", "http://u:p@engine",
                                  "http://engine?x=1", "http://engine:99999"])
def test_what_is_no_server_is_refused_before_anything_starts(text: str) -> None:
    with pytest.raises((CannotStart, ValueError)):
        upstream_url(text)


def test_a_small_outbox_still_has_segments_enough_to_drop_one(tmp_path: Path) -> None:
    settings = StandaloneSettings(state_dir=tmp_path, outbox_max_bytes=1 << 20)
    options = Options("http://127.0.0.1:1", "k", 0, "127.0.0.1", tmp_path, output_usd=Decimal("0.000002"))
    edge = assemble(upstream_url(options.upstream), options, settings, ManualClock())
    for _ in range(300):
        edge.outbox.record(usage_record())
    assert len(segment_numbers(edge.outbox.directory)) > 1
    edge.outbox.close()


async def test_the_oldest_usage_makes_room_for_the_newest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edge_api.standalone.TRIM_S", 0.001)
    metrics = Metrics()
    outbox = Outbox(tmp_path, 10_000, 80_000, metrics)
    still_open = usage_open()
    outbox.open(still_open)
    trimming = asyncio.create_task(trim(outbox))
    for _ in range(400):
        outbox.record(usage_record())
        await outbox.sync()
        await asyncio.sleep(0.002 if outbox.size_bytes > 70_000 else 0)
    trimming.cancel()
    outbox.close()
    assert outbox.size_bytes <= 80_000
    assert min(segment_numbers(tmp_path)) > 1
    assert still_open.request_id in outbox.unresolved
    assert (metrics.registry.get_sample_value("meridian_edge_outbox_dropped_bytes_total") or 0) > 100_000

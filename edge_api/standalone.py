"""`meridian edge --upstream URL --key KEY`: one edge by itself before one server, without a control plane.

The hot path is the same; only what a control plane would tell is known from the start: one key, which nothing limits,
one place, and the models that the server itself lists. Every request is metered into the outbox as ever. Nobody
collects it: it stays on this disk up to the outbox's bound, and then the oldest segments make room, counted and
logged. What a process that died left open is closed at the next start, for no witness will ever settle it.
"""

import asyncio
import gc
import ssl
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple, cast
from urllib.parse import SplitResult, urlsplit

import httpx
import msgspec
import structlog
from pydantic import Field

from control_plane.contracts import ids, logs
from control_plane.contracts.clock import Clock, SystemClock
from control_plane.contracts.keys import Principal, Scope
from control_plane.contracts.pricing import Price, usd_text
from control_plane.contracts.snapshot import Snapshot, SnapshotDatacenter, SnapshotModel, SnapshotRoute, TrafficState
from control_plane.contracts.usage import UsageRecord
from edge_api.admission.unlimited import NoAdmission
from edge_api.app import ColdParts
from edge_api.background import running
from edge_api.dialects.routes import HOT_ROUTES
from edge_api.hot.hotpath import HotPath
from edge_api.hot.services import Services
from edge_api.listings.quality import Quality
from edge_api.main import CannotStart, authorities, hold_state_dir
from edge_api.metering.frames import Unreadable, decode, scan
from edge_api.metering.outbox import Outbox, segment_numbers, segment_path
from edge_api.metering.recovery import open_outbox
from edge_api.metrics import Metrics
from edge_api.open_requests import OpenRequests
from edge_api.routing.choose import Chooser
from edge_api.routing.health import Health
from edge_api.routing.retry import RetryBudget
from edge_api.routing.session import session_key
from edge_api.routing.table import RoutedModel, RoutingTable, build_table
from edge_api.serving import leave_on_signals, limits_of, listen
from edge_api.settings import Settings
from edge_api.snapshot.holder import TableHolder
from edge_api.tool_calls.judge import CallJudge

NO_CONTROL_PLANE = "none: this edge stands by itself"
PLACE = "upstream"
UNKNOWN_WINDOW = 1 << 20  # tokens; the server knows its own bound and tells whoever passes it
MAX_UNLISTED = 1_000
MAX_NAME = 512
LIST_DEADLINE_S = 5.0
LIST_AGAIN_S = 10.0
TRIM_S = 0.2
SEGMENTS = 16  # at least: dropping the oldest must never be dropping nearly all

log = structlog.get_logger()


class Options(NamedTuple):
    """What the command line says. Prices are USD per token, for every model alike."""

    upstream: str
    key: str
    port: int
    host: str
    state_dir: Path
    input_usd: Decimal = Decimal(0)
    cached_input_usd: Decimal = Decimal(0)
    output_usd: Decimal = Decimal(0)


class StandaloneSettings(Settings):
    """An edge's settings, but for what only a control plane makes sense of."""

    control_plane_urls: list[str] = Field(default=[], description="Not used.")


class OneKey:
    """A keyring of one key, whatever it looks like."""

    def __init__(self, key: str) -> None:
        self._digest = ids.secret_digest(key)
        self._principal = Principal(key_id="key_standalone", team_id="team_standalone", key_name="standalone",
                                    scopes=[Scope.INFERENCE])

    def cached(self, digest: str) -> Principal | None:
        return self._principal if digest == self._digest else None

    async def find(self, digest: str, client_address: str) -> Principal | None:
        return self.cached(digest)


class AnyModel(dict[str, RoutedModel]):
    """The models that the server lists, by id; one that it does not list is sent on all the same, for the server to
    judge, and `unknown` is called so that the list is read again."""

    def __init__(self, listed: dict[str, RoutedModel], make: Callable[[str], RoutedModel],
                 unknown: Callable[[], None]) -> None:
        super().__init__(listed)
        self._make, self._unknown = make, unknown
        self._unlisted: dict[str, RoutedModel] = {}

    def get(self, model_id: str, default: Any = None, /) -> RoutedModel:
        """The model; there is always one, but of a name that no usage record could hold."""
        listed = super().get(model_id)
        if listed is not None:
            return listed
        if len(model_id) > MAX_NAME:
            return cast(RoutedModel, default)
        self._unknown()
        known = self._unlisted.get(model_id)
        if known is None:
            if len(self._unlisted) >= MAX_UNLISTED:
                self._unlisted.clear()
            known = self._unlisted[model_id] = self._make(model_id)
        return known


class Listed(msgspec.Struct):
    """One model in the server's own list."""

    id: str
    created: int = 0
    owned_by: str = ""
    max_model_len: int | None = None


class ModelList(msgspec.Struct):
    """`GET /v1/models` of the server."""

    data: list[Listed]


_decode_list = msgspec.json.Decoder(ModelList).decode


class UpstreamModels:
    """Owns the routing table: one place, and the models that it lists, read at the start and again when somebody asks
    for another one. What a table needs of a control plane is made up here."""

    def __init__(self, upstream: SplitResult, price: Price, clock: Clock) -> None:
        self._url, self._price, self._clock = upstream.geturl(), price, clock
        self._wanted = asyncio.Event()
        self._version = 0
        self._listed: list[Listed] = []
        self.holder = TableHolder()
        self.holder.current = self._table([])

    async def run(self) -> None:
        """Reads the list, and again whenever an unknown model was asked for, no more often than `LIST_AGAIN_S`."""
        async with httpx.AsyncClient(timeout=LIST_DEADLINE_S) as client:
            while True:
                self._wanted.clear()
                await self.read(client)
                await asyncio.sleep(ids.jitter(LIST_AGAIN_S))
                await self._wanted.wait()

    async def read(self, client: httpx.AsyncClient) -> bool:
        """Reads the list once. A server that gives none is served all the same."""
        try:
            async with asyncio.timeout(LIST_DEADLINE_S):
                answer = await client.get(f"{self._url}/v1/models")
            models = _decode_list(answer.raise_for_status().content).data
        except (httpx.HTTPError, TimeoutError, msgspec.MsgspecError) as error:
            log.warning("models_not_listed", error=type(error).__name__)
            return False
        if models != self._listed:
            self.holder.current = self._table(models)
            log.info("models_listed", count=len(models))
        return True

    def _table(self, models: list[Listed]) -> RoutingTable:
        self._listed = models
        self._version += 1
        table = build_table(self._snapshot(models))
        return RoutingTable(table.lineage, table.version, AnyModel(table.models, self._unlisted, self._wanted.set))

    def _unlisted(self, model_id: str) -> RoutedModel:
        return build_table(self._snapshot([Listed(model_id)])).models[model_id]

    def _snapshot(self, models: list[Listed]) -> Snapshot:
        route = SnapshotRoute(deployment_id=PLACE, fleet_id=PLACE, datacenter_id=PLACE, ingress_url=self._url)
        return Snapshot(
            lineage=1, version=self._version, built_at_s=self._clock.time_s(),
            datacenters=[SnapshotDatacenter(id=PLACE, region="local", state=TrafficState.ACTIVE, weight=100)],
            models=[
                SnapshotModel(
                    id=model.id, display_name=model.id, created_s=model.created, owned_by=model.owned_by,
                    context_window=model.max_model_len or UNKNOWN_WINDOW,
                    max_output_tokens=model.max_model_len or UNKNOWN_WINDOW, price=self._price, routes=[route])
                for model in models])


def run(options: Options) -> None:
    """Runs the edge until it is told to stop. What cannot be done is one line, and exit code 1."""
    try:
        upstream = upstream_url(options.upstream)
        leave_on_signals()
        logs.configure("edge")
        settings = StandaloneSettings(host=options.host, port=options.port, state_dir=options.state_dir)
        hold_state_dir(settings.state_dir)
        edge = assemble(upstream, options, settings, SystemClock())
    except (CannotStart, OSError, ValueError) as error:
        sys.exit(f"meridian edge: {error}")
    serve(edge)


def records(state_dir: Path) -> Iterator[UsageRecord]:
    """Every usage record on disk, oldest first; an edge may be writing more of them meanwhile.

    Raises:
        OSError: they cannot be read.
    """
    directory = state_dir / "outbox"
    for number in segment_numbers(directory):
        try:
            content = segment_path(directory, number).read_bytes()
        except FileNotFoundError:
            continue  # it made room meanwhile
        for stretch in scan(content, at_end=True):
            try:
                usage = decode(stretch.payload or b"")
            except Unreadable:
                continue  # damage, which an edge sets aside at its next start
            if isinstance(usage, UsageRecord):
                yield usage


@dataclass(frozen=True, slots=True)
class StandaloneEdge:
    """Everything that lives as long as the process."""

    settings: Settings
    models: UpstreamModels
    open_requests: OpenRequests
    outbox: Outbox
    metrics: Metrics
    quality: Quality
    judge: CallJudge
    services: Services
    upstream_tls: ssl.SSLContext | None


def assemble(upstream: SplitResult, options: Options, settings: Settings, clock: Clock) -> StandaloneEdge:
    """The edge, with the outbox that its disk holds. Opens no connection.

    Raises:
        CannotStart, OSError: the state directory or the file of authorities cannot be used.
    """
    usd = (options.input_usd, options.cached_input_usd, options.output_usd)
    price = Price(version="_".join(["pv", *map(usd_text, usd)]), input_usd=usd[0], cached_input_usd=usd[1],
                  output_usd=usd[2])
    metrics, open_requests, models = Metrics(), OpenRequests(), UpstreamModels(upstream, price, clock)
    segment_bytes = min(settings.outbox_segment_bytes, settings.outbox_max_bytes // SEGMENTS)
    outbox = open_outbox(settings.state_dir / "outbox", segment_bytes, settings.outbox_max_bytes, clock, metrics,
                         keeps_newest=True)
    quality = Quality(clock)
    judge = CallJudge(metrics, quality.note_calls)
    return StandaloneEdge(settings, models, open_requests, outbox, metrics, quality, judge, Services(
        table=models.holder, keyring=OneKey(options.key), chooser=Chooser(Health(clock), metrics),
        retries=RetryBudget(), outbox=outbox, open_requests=open_requests, clock=clock, limits=limits_of(settings),
        metrics=metrics, session_key=session_key, admission=NoAdmission(), client_address=lambda peer, _: peer,
        judge=judge),
        authorities(settings.upstream_ca_file))


def serve(edge: StandaloneEdge) -> None:
    """Serves until a signal."""

    @asynccontextmanager
    async def living() -> AsyncIterator[None]:
        tasks = {"fsync": edge.outbox.run, "trim": lambda: trim(edge.outbox), "models": edge.models.run,
                 "judge": edge.judge.run}
        gc.freeze()  # what was made to start lives on
        log.info("edge_started", host=edge.settings.host, port=edge.settings.port)
        async with running(tasks, edge.metrics):
            yield
        await edge.outbox.sync()
        edge.outbox.close()
        log.info("edge_stopped")

    hot_routes = [path.decode() for path in HOT_ROUTES]
    listen(edge.settings, HotPath(edge.services, edge.upstream_tls), ColdParts(
        edge.models.holder, edge.open_requests, edge.metrics, lambda: NO_CONTROL_PLANE, hot_routes,
        quality=edge.quality), living)


async def trim(outbox: Outbox) -> None:
    """Keeps room in the outbox, for ever: above 7/8 of its bound the oldest segments go, so that what is still open in
    them has time to become durable elsewhere."""
    while True:
        await asyncio.sleep(TRIM_S)
        outbox.drop_oldest(outbox.max_bytes - outbox.max_bytes // 8)


def upstream_url(text: str) -> SplitResult:
    """The server's address; a `/v1` at its end is understood.

    Raises:
        CannotStart: it is none.
    """
    url = urlsplit(text.rstrip("/").removesuffix("/v1"))
    _ = url.port  # it says itself when that is no port
    if url.scheme not in ("http", "https") or not url.hostname or url.path or url.query or url.username:
        raise CannotStart(f"{text!r} is no URL of a server, such as http://127.0.0.1:8000/v1")
    return url

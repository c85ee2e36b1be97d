"""The edge's process: what it is made of, the order in which it starts, and the order in which it stops.

Start: disk first (identity, snapshot, keys, outbox), then the network. Nothing above this process has to be there.
Stop: no new connections, open requests finish, usage is made durable and shipped as far as a few seconds allow.
"""

import fcntl
import gc
import os
import ssl
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import structlog
from pydantic import ValidationError

from control_plane.contracts import ids, logs
from control_plane.contracts.clock import Clock, SystemClock
from control_plane.contracts.usage import UsageRecord
from edge_api import identity
from edge_api.account.desk import AccountDesk
from edge_api.admission.build import AdmissionParts, build_admission
from edge_api.app import ColdParts
from edge_api.auth import Keyring
from edge_api.background import running
from edge_api.client_address import Network, client_address
from edge_api.dialects.routes import HOT_ROUTES
from edge_api.hot.hotpath import HotPath
from edge_api.hot.services import Services
from edge_api.identity import ControlPlaneLink, Renewal
from edge_api.key_store import KeyStore
from edge_api.listings.quality import Quality
from edge_api.metering.outbox import Outbox
from edge_api.metering.recovery import open_outbox
from edge_api.metering.shipped import ShippedSegments
from edge_api.metering.shipper import Shipper
from edge_api.metrics import Metrics
from edge_api.open_requests import OpenRequests
from edge_api.override.board import Overrides
from edge_api.override.routes import OverrideDesk
from edge_api.override.store import OrderStore
from edge_api.quality.evidence import Evidence
from edge_api.quality.minutes import Minutes
from edge_api.routing.choose import Chooser
from edge_api.routing.evacuation import Evacuator
from edge_api.routing.health import Health
from edge_api.routing.probes import Prober
from edge_api.routing.retry import RetryBudget
from edge_api.routing.session import session_key
from edge_api.serving import leave_on_signals, limits_of, listen
from edge_api.settings import Settings
from edge_api.snapshot.client import SyncClient
from edge_api.snapshot.holder import TableHolder
from edge_api.snapshot.store import SnapshotStore
from edge_api.tool_calls.judge import CallJudge

log = structlog.get_logger()


class CannotStart(Exception):
    """The edge cannot run as it is set up; the message is one line for whoever started it."""


@dataclass(frozen=True, slots=True)
class Edge:
    """Everything that lives as long as the process."""

    settings: Settings
    link: ControlPlaneLink
    holder: TableHolder
    open_requests: OpenRequests
    keyring: Keyring
    outbox: Outbox
    shipper: Shipper
    sync: SyncClient
    metrics: Metrics
    quality: Quality
    judge: CallJudge
    admission: AdmissionParts
    hot: HotPath
    prober: Prober
    evacuator: Evacuator
    overrides: Overrides

    def problem(self) -> str:
        """What keeps this edge from its control plane; empty if nothing does."""
        return self.link.problem or self.sync.problem


def main() -> None:
    """Runs one edge until it is told to stop."""
    leave_on_signals()
    logs.configure("edge")
    try:
        settings = Settings()
        hold_state_dir(settings.state_dir)
        edge = assemble(settings, SystemClock(), ids.new_id("boot"))
    except ValidationError as error:
        faults = "; ".join(f"MERIDIAN_{str(fault['loc'][0]).upper()}: {fault['msg']}" for fault in error.errors())
        sys.exit(f"meridian edge: {faults}")
    except (CannotStart, OSError, ValueError) as error:
        sys.exit(f"meridian edge: {error}")
    serve(edge)


def hold_state_dir(state_dir: Path) -> int:
    """Makes the state directory this process's alone; the lock lasts as long as the returned descriptor.

    Raises:
        CannotStart: another edge has it.
    """
    state_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    descriptor = os.open(state_dir / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(descriptor)
        raise CannotStart(f"another edge runs with the state directory {state_dir}") from error
    return descriptor


def assemble(settings: Settings, clock: Clock, boot_id: str) -> Edge:
    """The edge with all that its disk remembers. Opens no connection.

    Raises:
        CannotStart, OSError, ValueError: the state directory or the file of authorities cannot be used.
    """
    state_dir, metrics, upstream_tls = settings.state_dir, Metrics(), authorities(settings.upstream_ca_file)
    link, holder, open_requests = ControlPlaneLink(settings.control_plane_urls, clock), TableHolder(), OpenRequests()
    store = SnapshotStore(state_dir / "snapshot.json")
    known = identity.load(state_dir)
    if known is not None:
        link.use(known)
        last_good = store.load(known.control_plane_keys)
        if last_good is not None:
            holder.take(last_good)
            metrics.snapshot_in_use(last_good)
            log.info("stored_snapshot_in_use", lineage=last_good.lineage, version=last_good.version)
    overrides = Overrides(holder, OrderStore(state_dir / "overrides.json"), clock, metrics.registry,
                          lambda: link.identity.name if link.identity else "")
    overrides.restore()
    keyring = Keyring(link, KeyStore(state_dir / "keys.json"), clock, metrics, settings.key_cache_size,
                      settings.key_refresh_s)
    keyring.restore()
    if holder.snapshot is not None:
        keyring.follow(holder.snapshot.lineage)
    kept = ShippedSegments(state_dir / "outbox" / "shipped", settings.outbox_kept_s, settings.outbox_kept_bytes, clock)
    outbox = open_outbox(state_dir / "outbox", settings.outbox_segment_bytes, settings.outbox_max_bytes, clock, metrics,
                         kept=kept)
    quality, minutes = Quality(clock), Minutes(clock, lambda: shipper.shipped < outbox.written)
    judge = CallJudge(metrics, quality.note_calls)

    def stored(record: UsageRecord) -> None:
        quality.note(record)
        minutes.note(record)

    shipper = Shipper(outbox, link, boot_id, clock, metrics, stored, kept)
    sync = SyncClient(link, holder, store, keyring, open_requests, boot_id, settings.poll_wait_s, metrics, Renewal(
        link, state_dir, settings.enrolment_token_file, settings.control_plane_urls), overrides, settings.override_url,
        shipper.ship_again)
    admission = build_admission(
        None if settings.valkey_url is None else settings.valkey_url.get_secret_value(), link, boot_id, clock,
        live_edges=lambda: sync.live_edges, written=lambda: outbox.written, shipped=lambda: shipper.shipped,
        registry=metrics.registry)
    health = Health(clock)
    chooser = Chooser(health, metrics, open_requests.by_deployment)
    hot = HotPath(Services(
        table=holder, keyring=keyring, chooser=chooser,
        retries=RetryBudget(), outbox=outbox, open_requests=open_requests, clock=clock, limits=limits_of(settings),
        metrics=metrics, session_key=session_key, admission=admission.gate,
        client_address=partial(_client_address, settings.trusted_proxies), judge=judge), upstream_tls)
    prober = Prober(holder, health, metrics, hot.lost, settings.probe_timeout_s, upstream_tls)
    sync.evidence = Evidence(clock, holder, health, prober, minutes, hot.open_streams, chooser.sessions)
    return Edge(
        settings=settings, link=link, holder=holder, open_requests=open_requests, keyring=keyring, outbox=outbox,
        metrics=metrics, quality=quality, judge=judge, shipper=shipper, sync=sync, admission=admission, hot=hot,
        prober=prober, evacuator=Evacuator(holder, hot.open_at), overrides=overrides)


def serve(edge: Edge) -> None:
    """Serves until a signal, then stops in order."""
    services = edge.hot.services
    desk = AccountDesk(edge.keyring, edge.link, services.clock, services.client_address)
    listen(edge.settings, edge.hot, ColdParts(
        edge.holder, edge.open_requests, edge.metrics, edge.problem, [path.decode() for path in HOT_ROUTES],
        account=desk, quality=edge.quality, override=OverrideDesk(
            edge.overrides, edge.holder, edge.link, services.clock, edge.problem)), lambda: living(edge))


@asynccontextmanager
async def living(edge: Edge) -> AsyncIterator[None]:
    """The background tasks, and the last things to do once no request is open any more."""
    settings = edge.settings

    async def follow() -> None:
        if edge.link.identity is None:
            await identity.enrol_until_done(
                edge.link, settings.state_dir, settings.enrolment_token_file, settings.control_plane_urls)
        await edge.sync.run()

    tasks = {
        "follow": follow, "fsync": edge.outbox.run, "ship": edge.shipper.run,
        "save_keys": edge.keyring.run_save, "refresh_keys": edge.keyring.run_refresh,
        "probe": edge.prober.run, "evacuate": edge.evacuator.run,
        "override": edge.overrides.run, "judge": edge.judge.run, **edge.admission.tasks(),
    }
    gc.freeze()  # what was made to start lives on: looking through it again and again finds nothing
    log.info("edge_started", host=settings.host, port=settings.port)
    async with running(tasks, edge.metrics):
        yield
    try:
        await edge.shipper.ship_rest(settings.last_ship_s)
        await edge.admission.aclose()
        await edge.keyring.save()
    except OSError as error:
        log.error("last_write_failed", error=str(error))
    finally:
        edge.outbox.close()
        await edge.link.aclose()
    log.info("edge_stopped")


def authorities(file: Path | None) -> ssl.SSLContext | None:
    """Whom to trust upstream, if that is not left to this machine."""
    try:
        return None if file is None else ssl.create_default_context(cafile=file)
    except OSError as error:
        raise CannotStart(f"MERIDIAN_UPSTREAM_CA_FILE: no certificates can be read from {file}: {error}") from error


def _client_address(trusted: Sequence[Network], peer: str, forwarded_for: bytes) -> str:
    return client_address(peer, forwarded_for.decode("ascii", "replace"), trusted)

"""Bugs to plant, each a change of one function: the simulation is only worth something if it catches them."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from control_plane.contracts import ids
from control_plane.routing import repository as routing
from edge_api.hot.settle import RequestJournal
from edge_api.metering.shipper import Shipper
from edge_api.snapshot.client import SyncClient
from fleet_agent import core
from tests.simulation.database import Session
from tests.simulation.standins import STANDINS


def _accepts_any(*_: Any) -> str:
    return ""


def _no_acks(_: core.AgentState) -> list[Any]:
    return []


def _unsaved(_before: core.AgentState, _after: core.AgentState, actions: list[core.Action]) -> list[core.Action]:
    return actions


def _restamped(settle: Callable[..., None]) -> Callable[..., None]:
    def settle_anew(journal: RequestJournal, *arguments: Any, **named: Any) -> None:
        journal._request_id = ids.uuid7()
        settle(journal, *arguments, **named)

    return settle_anew


def _unsynced(read: Callable[..., Any]) -> Callable[..., Any]:
    def read_all(shipper: Shipper, cursor: Any, _durable: Any) -> Any:
        return read(shipper, cursor, shipper._outbox.written)

    return read_all


def _believed(_client: SyncClient, signed: Any) -> Any:
    from control_plane.contracts.snapshot import Snapshot

    return Snapshot.model_validate_json(signed.body)


async def _unlocked(session: Session) -> tuple[int, int]:
    await session.statement()
    row = session.find("routing_head", True, anew=True)
    return row.lineage, row.version


def _setting(owner: Any, name: str, planted: Any) -> Callable[[], Callable[[], None]]:
    """Plants an attribute; calling what comes back takes it out again."""
    def plant() -> Callable[[], None]:
        sound = getattr(owner, name)
        setattr(owner, name, planted)
        return lambda: setattr(owner, name, sound)

    return plant


def _unlocking() -> Callable[[], None]:
    sound = STANDINS[routing, "lock_head"]
    STANDINS[routing, "lock_head"] = _unlocked
    return lambda: STANDINS.update({(routing, "lock_head"): sound})


PLANTS: dict[str, Callable[[], Callable[[], None]]] = {
    "stale-epoch": _setting(core, "_refusal", _accepts_any),
    "dropped-ack": _setting(core.AgentState, "acks", _no_acks),
    "act-before-save": _setting(core, "_saving", _unsaved),
    "re-stamped-id": _setting(RequestJournal, "settle", _restamped(RequestJournal.settle)),
    "ship-before-fsync": _setting(Shipper, "_read", _unsynced(Shipper._read)),
    "skipped-lock": _unlocking,
    "unchecked-snapshot": _setting(SyncClient, "_open", _believed),
}
"""What is planted. `skipped-lock` publishes without holding the head of the snapshots."""


@contextmanager
def planted(name: str) -> Iterator[None]:
    """The bug is in the product inside this block."""
    take_out = PLANTS[name]()
    try:
        yield
    finally:
        take_out()

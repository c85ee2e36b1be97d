"""Puts admission together: the gate, its line to Valkey and its bank, and what has to run beside them.

    admission = build_admission(...)
    admission.gate       the `Admission` of the hot path
    admission.tasks()    to run in the background
    await admission.aclose()    once no request is open and the outbox was shipped as far as it can be
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from prometheus_client import CollectorRegistry

from control_plane.contracts.clock import Clock
from edge_api.admission.bank import Bank
from edge_api.admission.figures import AdmissionFigures
from edge_api.admission.gate import Gate
from edge_api.admission.grants import OpenGrants
from edge_api.admission.line import Line, connect
from edge_api.identity import ControlPlaneLink
from edge_api.metering.frames import Position

LONGEST_REQUEST_S = 4 * 3600.0
LAST_WORDS_S = 2.0


@dataclass(frozen=True, slots=True)
class AdmissionParts:
    """Admission as it runs."""

    gate: Gate
    line: Line
    bank: Bank

    def tasks(self) -> Mapping[str, Callable[[], Awaitable[None]]]:
        """What runs in the background, by name, for ever."""
        return {"valkey": self.line.run, "limits": self.gate.run, "money": self.gate.run_bank}

    async def aclose(self) -> None:
        """Gives back what this edge holds, within `LAST_WORDS_S`: others may have it at once."""
        try:
            async with asyncio.timeout(LAST_WORDS_S):
                self.gate.put_back()
                await self.bank.aclose()
                await self.line.aclose()
        except TimeoutError:
            return  # slots and blocks expire by themselves; leases are closed by the next boot


def build_admission(
        valkey_url: str | None, link: ControlPlaneLink, boot_id: str, clock: Clock, live_edges: Callable[[], int],
        written: Callable[[], Position], shipped: Callable[[], Position], registry: CollectorRegistry,
        longest_request_s: float = LONGEST_REQUEST_S) -> AdmissionParts:
    """Admission for one boot of an edge. Opens no connection. To be called once the outbox is repaired: what is
    written by then is what earlier boots left. `live_edges` is what the last sync said; without a `valkey_url` each
    edge enforces its own share of every limit.

    Raises:
        ValueError: the URL is none of a Valkey.
    """
    figures = AdmissionFigures(registry)
    line = Line(None if valkey_url is None else connect(valkey_url), clock, figures)
    bank = Bank(link, boot_id, clock, written, shipped, figures)
    edge = boot_id if link.identity is None else link.identity.name
    gate = Gate(line, bank, clock, edge, live_edges, OpenGrants(clock, longest_request_s, figures), figures)
    return AdmissionParts(gate, line, bank)

"""What the control plane believes after a run, read from its database and its own status: the other half of a proof."""

import asyncio
import contextlib
import time
from collections.abc import Sequence
from decimal import Decimal
from typing import Any
from uuid import UUID

import asyncpg
import msgspec

from tests.e2e.stack import LocalStack

POLL_S = 0.5


class Record(msgspec.Struct, frozen=True):
    """A stored usage record, as far as a client can know better. `attempts` are the datacenters that were asked, in
    turn, with whether they let it down."""

    request_id: str
    team: str
    outcome: str
    tokens: int
    cost_usd: Decimal
    opened_s: float
    edge: str
    resumes: int
    attempts: list[tuple[str, bool]]


class Spent(msgspec.Struct, frozen=True):
    """A booked sum: what one team or key spent in one window."""

    scope: str
    scope_id: str
    interval: str
    usd: Decimal


class Operation(msgspec.Struct, frozen=True):
    """An operation as it stands."""

    id: str
    kind: str
    state: str


class Event(msgspec.Struct, frozen=True):
    """An audit event, and the operation that it tells of."""

    id: str
    action: str
    operation: str | None


class Evidence(msgspec.Struct):
    """All of it. `open_requests` are openings without a record, `quarantine` the reasons for which frames were set
    aside. `unconverged` says in words what did not come to rest, `converged_s` how long it took."""

    records: list[Record]
    spent: list[Spent]
    rollup_requests: int
    open_requests: int
    quarantine: list[str]
    operations: list[Operation]
    audit: list[Event]
    audit_verified: bool | None = None
    unconverged: str = ""
    converged_s: float = 0.0


async def gather(database_url: str, teams: Sequence[str]) -> Evidence:
    """Reads everything about these teams, and everything about operations."""
    connection = await asyncpg.connect(database_url.replace("+asyncpg", ""), timeout=10)
    try:
        return Evidence(
            records=[_record(row) for row in await connection.fetch(
                "SELECT id, team_id, outcome, completion_tokens, cost_usd, opened_at, edge_id, resumes, attempts "
                "FROM usage_record WHERE team_id = ANY($1)", teams)],
            spent=[Spent(row["scope"], row["scope_id"], row["interval"], row["spent_usd"]) for row in
                   await connection.fetch(
                       'SELECT scope, scope_id, "interval", spent_usd FROM spend WHERE team_id = ANY($1)', teams)],
            rollup_requests=int(await connection.fetchval(
                "SELECT coalesce(sum(requests), 0) FROM usage_rollup_hourly WHERE team_id = ANY($1)", teams)),
            open_requests=await connection.fetchval("SELECT count(*) FROM usage_open WHERE team_id = ANY($1)", teams),
            quarantine=[row["reason"] for row in await connection.fetch("SELECT reason FROM usage_quarantine")],
            operations=[Operation(row["id"], row["kind"], row["state"]) for row in
                        await connection.fetch("SELECT id, kind, state FROM operation ORDER BY id")],
            audit=[Event(row["id"], row["action"], row["operation"]) for row in await connection.fetch(
                "SELECT id, action, after->>'operation' AS operation FROM audit_event ORDER BY id")])
    finally:
        await connection.close()


def run(database_url: str, teams: Sequence[str]) -> Evidence:
    """`gather`, for whoever has no event loop."""
    return asyncio.run(gather(database_url, teams))


def stored_ids(database_url: str, teams: Sequence[str]) -> tuple[set[str], int]:
    """The ids of the records that are there, and how many openings wait for theirs."""
    async def look() -> tuple[set[str], int]:
        connection = await asyncpg.connect(database_url.replace("+asyncpg", ""), timeout=10)
        try:
            rows = await connection.fetch("SELECT id FROM usage_record WHERE team_id = ANY($1)", teams)
            waiting = await connection.fetchval("SELECT count(*) FROM usage_open WHERE team_id = ANY($1)", teams)
            return {row["id"].hex for row in rows}, waiting
        finally:
            await connection.close()

    return asyncio.run(look())


def wait_settled(stack: LocalStack, teams: Sequence[str], wanted: set[str], deadline_s: float) -> None:
    """Returns once every wanted id has its record and no opening waits, or when it is hopeless to wait longer."""
    ends_s = time.monotonic() + deadline_s
    while time.monotonic() < ends_s:
        with contextlib.suppress(OSError, asyncpg.PostgresError, TimeoutError):
            found, waiting = stored_ids(stack.facts["database_url"], teams)
            if wanted <= found and not waiting:
                return
        time.sleep(POLL_S)


def unconverged(status: dict[str, Any]) -> str:
    """What of a status is not at rest, in words; empty when all of it is."""
    faults = [f"{edge['id']} is {edge['behind']} versions behind" for edge in status["edges"]
              if edge["live"] and edge["behind"]]
    faults += [f"{edge['id']} refused a snapshot" for edge in status["edges"] if edge["nack"]]
    for place in status["datacenters"]:
        if place["traffic_state"] != "active":
            faults.append(f"{place['id']} is {place['traffic_state']}")
        faults += [f"the agent of {fleet['id']} has no lease" for fleet in place["fleets"] if not fleet["lease_live"]]
        faults += [f"{one['id']} is {one['phase']} at generation {one['observed_generation']} of {one['generation']}"
                   for one in place["deployments"]
                   if one["phase"] != "ready" or one["observed_generation"] != one["generation"]]
    return "; ".join(faults)


def _record(row: Any) -> Record:
    attempts = row["attempts"]
    listed = msgspec.json.decode(attempts) if isinstance(attempts, str) else attempts
    found: UUID = row["id"]
    return Record(
        found.hex, row["team_id"], row["outcome"], row["completion_tokens"], row["cost_usd"],
        row["opened_at"].timestamp(), row["edge_id"], row["resumes"],
        [(one["datacenter_id"], bool(one.get("failed"))) for one in listed])

"""What the agent must not forget, in one SQLite file: fences, desired state, commands, the plan and its processes.

Everything is written before it is acted on, so that an agent that is killed at any point finds out at its next start
what it was about to do. The fences are kept here too and not only in memory: a write that would lower the epoch, the
generation or the sequence number is refused by the statement itself. Writes are a few a minute, so each one is synced
to the disk and done on the event loop.
"""

import json
import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from control_plane.contracts.agent_sync import Command, CommandState, DesiredState
from control_plane.contracts.launch import LaunchPlan, LaunchProcess
from fleet_agent.core import AgentState, TrackedCommand

SCHEMA_VERSION = 2
SCHEMA = """
CREATE TABLE fence (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    epoch INTEGER NOT NULL,
    generation INTEGER NOT NULL,
    last_seq INTEGER NOT NULL,
    desired TEXT,
    lineage INTEGER NOT NULL DEFAULT 1
);
CREATE TABLE command (
    id TEXT PRIMARY KEY, body TEXT NOT NULL, deadline_at_s REAL NOT NULL, state TEXT NOT NULL, result TEXT NOT NULL
);
CREATE TABLE accepted (id INTEGER PRIMARY KEY CHECK (id = 1), desired TEXT NOT NULL, plan TEXT NOT NULL);
CREATE TABLE retired (deployment_id TEXT PRIMARY KEY);
CREATE TABLE was_ready (deployment_id TEXT PRIMARY KEY);
CREATE TABLE process (name TEXT PRIMARY KEY, spec TEXT NOT NULL, token TEXT NOT NULL, pid INTEGER, started TEXT);
INSERT INTO fence (id, epoch, generation, last_seq) VALUES (1, 0, 0, 0);
"""
UPGRADES = {1: "ALTER TABLE fence ADD COLUMN lineage INTEGER NOT NULL DEFAULT 1;"}
"""What makes each older format the next one."""


class Fenced(Exception):
    """The write would lower the epoch, the generation or the sequence number."""


class WrongStore(Exception):
    """The file cannot be used: it is damaged, or a newer release wrote it."""


@dataclass(frozen=True, slots=True)
class Accepted:
    """The plan that the agent drives and the desired state that it was made from."""

    desired: DesiredState
    plan: LaunchPlan


@dataclass(frozen=True, slots=True)
class ProcessRow:
    """A process that was, or was about to be, started. `token` is in its environment; `started` tells it from a
    later process with the same pid. Both `pid` and `started` are null until the start is known to have worked."""

    spec: LaunchProcess
    token: str
    pid: int | None = None
    started: str | None = None


class Store:
    """The open file; one agent holds it at a time (see the lock in `main`)."""

    def __init__(self, path: Path) -> None:
        """Opens or creates the file.

        Raises:
            WrongStore: damaged, or written by a newer release.
        """
        path.touch(mode=0o600)
        self._db = sqlite3.connect(path, isolation_level=None)
        try:
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = FULL")
            (found,) = self._db.execute("PRAGMA user_version").fetchone()
            if found == 0:
                self._db.executescript(f"BEGIN; {SCHEMA} PRAGMA user_version = {SCHEMA_VERSION}; COMMIT;")
            for older in range(found or SCHEMA_VERSION, SCHEMA_VERSION):
                self._db.executescript(f"BEGIN; {UPGRADES[older]} PRAGMA user_version = {older + 1}; COMMIT;")
            if found > SCHEMA_VERSION:
                raise WrongStore(f"{path} has format {found}, this release reads {SCHEMA_VERSION}")
        except (sqlite3.DatabaseError, WrongStore) as error:
            self._db.close()
            raise error if isinstance(error, WrongStore) else WrongStore(f"{path} cannot be read: {error}") from error

    def close(self) -> None:
        self._db.close()

    def load(self) -> AgentState:
        """The state as it was last saved."""
        lineage, epoch, generation, last_seq, desired = self._db.execute(
            "SELECT lineage, epoch, generation, last_seq, desired FROM fence").fetchone()
        rows = self._db.execute("SELECT body, deadline_at_s, state, result FROM command ORDER BY rowid").fetchall()
        return AgentState(
            lineage=lineage,
            epoch=epoch,
            generation=generation,
            desired=DesiredState.model_validate_json(desired) if desired else None,
            last_seq=last_seq,
            commands=tuple(
                TrackedCommand(Command.model_validate_json(body), deadline_at_s, CommandState(state), result)
                for body, deadline_at_s, state, result in rows),
        )

    def save(self, state: AgentState) -> None:
        """Makes the state durable, whole or not at all.

        Raises:
            Fenced: its lineage is lower than what is stored, or one of its numbers within the same lineage.
        """
        desired = state.desired.model_dump_json() if state.desired else None
        numbers = (state.lineage, state.epoch, state.generation, state.last_seq)
        with _Transaction(self._db):
            self._db.execute(  # the plan in force is of no generation of a new lineage, so that any may replace it
                "UPDATE accepted SET desired = json_set(desired, '$.generation', 0)"
                " WHERE (SELECT lineage FROM fence) < ?", (state.lineage,))
            changed = self._db.execute(
                "UPDATE fence SET lineage = ?1, epoch = ?2, generation = ?3, last_seq = ?4, desired = ?5"
                " WHERE lineage < ?1 OR lineage = ?1 AND epoch <= ?2 AND generation <= ?3 AND last_seq <= ?4",
                (*numbers, desired)).rowcount
            if not changed:
                raise Fenced(f"lineage, epoch, generation and sequence number {numbers} are behind what is stored")
            self._db.execute("DELETE FROM command")
            self._db.executemany(
                "INSERT INTO command VALUES (?, ?, ?, ?, ?)",
                [(t.command.id, t.command.model_dump_json(), t.deadline_at_s, t.state, t.result)
                 for t in state.commands])

    def accepted(self) -> Accepted | None:
        """The plan that is being driven, None before the first."""
        row = self._db.execute("SELECT desired, plan FROM accepted").fetchone()
        return row and Accepted(DesiredState.model_validate_json(row[0]), LaunchPlan.model_validate_json(row[1]))

    def accept(self, accepted: Accepted) -> None:
        """Makes this the plan to drive. Deployments that it no longer has are remembered as retired.

        Raises:
            Fenced: it is of an older generation than the one that is being driven.
        """
        before = self.accepted()
        if before and accepted.desired.generation < before.desired.generation:
            raise Fenced(f"generation {accepted.desired.generation} is behind {before.desired.generation}")
        kept = {deployment.deployment_id for deployment in accepted.desired.deployments}
        gone = {deployment.deployment_id for deployment in before.desired.deployments} - kept if before else set()
        retired = (gone or set(self.retired())) - kept  # of the last removal only, so that the list stays short
        with _Transaction(self._db):
            self._db.execute(
                "INSERT OR REPLACE INTO accepted VALUES (1, ?, ?)",
                (accepted.desired.model_dump_json(), accepted.plan.model_dump_json()))
            self._db.execute("DELETE FROM retired")
            self._db.executemany("INSERT INTO retired VALUES (?)", [(name,) for name in retired])
            self._db.execute(
                "DELETE FROM was_ready WHERE deployment_id NOT IN (SELECT value FROM json_each(?))",
                (json.dumps(sorted(kept)),))

    def retired(self) -> list[str]:
        """Deployments that the last removal took away."""
        return [name for (name,) in self._db.execute("SELECT deployment_id FROM retired ORDER BY deployment_id")]

    def was_ready(self) -> set[str]:
        """Deployments that were ready since they were last stopped on purpose."""
        return {name for (name,) in self._db.execute("SELECT deployment_id FROM was_ready")}

    def remember_ready(self, deployment_ids: Iterable[str]) -> None:
        self._db.executemany("INSERT OR IGNORE INTO was_ready VALUES (?)", [(name,) for name in deployment_ids])

    def forget_ready(self) -> None:
        """Nothing is ready any more, and on purpose."""
        self._db.execute("DELETE FROM was_ready")

    def processes(self) -> list[ProcessRow]:
        rows = self._db.execute("SELECT spec, token, pid, started FROM process ORDER BY rowid").fetchall()
        return [ProcessRow(LaunchProcess.model_validate_json(spec), *rest) for spec, *rest in rows]

    def put_process(self, row: ProcessRow) -> None:
        self._db.execute(
            "INSERT OR REPLACE INTO process VALUES (?, ?, ?, ?, ?)",
            (row.spec.name, row.spec.model_dump_json(), row.token, row.pid, row.started))

    def delete_process(self, name: str) -> None:
        self._db.execute("DELETE FROM process WHERE name = ?", (name,))


class _Transaction:
    """All or nothing, taken for writing at once."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def __enter__(self) -> None:
        self._db.execute("BEGIN IMMEDIATE")

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._db.execute("ROLLBACK" if kind else "COMMIT")

"""What stands for Postgres: rows in memory, transactions at READ COMMITTED, row locks that are waited for.

It keeps the promises that the product builds on, and no others: a transaction is whole or not at all; another one's
changes are seen once they are committed; whoever changes a row holds it to the end; a key is there once; hints go out
at the commit. Between two statements others may run, so a lock that is missing shows. It is not SQL: the product's
queries are answered by `standins`.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from datetime import datetime
from random import Random
from typing import Any

from sqlalchemy.exc import DBAPIError
from sqlalchemy.sql.elements import ClauseElement

from control_plane.contracts.clock import utc
from control_plane.db import DEADLOCK, Database
from tests.simulation.loop import VirtualLoop
from tests.simulation.process import EPOCH_S, Process
from tests.simulation.story import Story

Key = tuple[str, Any]
UNIQUE = "23505"


class UnknownQuery(Exception):
    """The product asked the database for something that nothing in `tests/simulation/standins` stands for."""


class Away(ConnectionRefusedError):
    """The database does not answer."""


class Fault(Exception):
    """What a driver raises, with Postgres' code."""

    def __init__(self, sqlstate: str, words: str) -> None:
        super().__init__(words)
        self.sqlstate = sqlstate


def refused(sqlstate: str, words: str) -> DBAPIError:
    """An error as SQLAlchemy tells it."""
    return DBAPIError(words, None, Fault(sqlstate, words))


class Row:
    """A row of a table, its columns as attributes."""

    def __init__(self, **columns: Any) -> None:
        self.__dict__.update(columns)


class Copy(Row):
    """A session's own copy of a row, which notes in `touched` that one of its columns was set."""

    __slots__ = ("key", "touched")

    def __init__(self, key: Key, touched: dict[Key, Row], columns: dict[str, Any]) -> None:
        object.__setattr__(self, "key", key)
        object.__setattr__(self, "touched", touched)
        self.__dict__.update(columns)

    def __setattr__(self, name: str, value: Any) -> None:
        self.touched[self.key] = self
        self.__dict__[name] = value


class Tables:
    """Owns what is committed, and who holds what. `columns` are each table's, `keys` its primary key."""

    def __init__(self, loop: VirtualLoop, chance: Random, story: Story) -> None:
        self.loop, self.chance, self.story = loop, chance, story
        self.rows: dict[str, dict[Any, Row]] = {}
        self.holders: dict[Key, Session] = {}
        self.listeners: list[Callable[[str], None]] = []
        self.on_commit: list[Callable[[Session], None]] = []
        self.is_away = False
        self.latency_share = 0.25

    def now(self) -> datetime:
        """The database's clock, which is nobody else's."""
        return utc(EPOCH_S + self.loop.now_s)

    def table(self, name: str) -> dict[Any, Row]:
        return self.rows.setdefault(name, {})


class Session:
    """One transaction. Rows that were read are this session's own copies until they are read anew; `written` are those
    that it changed, which it holds."""

    def __init__(self, tables: Tables, process: Process) -> None:
        self.tables, self.process = tables, process
        self.info: dict[str, Any] = {}
        self.copies: dict[Key, Any] = {}
        self._read: dict[Key, dict[str, Any]] = {}
        self._new: list[tuple[str, Any]] = []
        self._made: dict[Key, Any] = {}
        self._touched: dict[Key, Row] = {}
        self.written: dict[Key, Any] = {}
        self.deleted: set[Key] = set()
        self.hints: list[str] = []
        self._held: list[Key] = []
        self._waits_for: Session | None = None
        self.began = tables.now()

    # what services call

    def add(self, made: Any) -> None:
        self._new.append((made.__tablename__, made))

    def add_all(self, made: Iterable[Any]) -> None:
        for one in made:
            self.add(one)

    async def flush(self) -> None:
        """Writes what was changed or added, by key; waits for whoever holds one of the rows."""
        if self._new:
            new, self._new = self._new, []
            for table, made in new:
                self._insert(table, made)
        if not (self._touched or self._made):
            return
        changed = {**self._touched, **self._made}
        self._touched.clear()
        for key in sorted(changed):
            row = changed[key]
            now = _columns(row)
            self._resolve(row, now)
            if now != self._read[key] and key not in self.deleted:
                await self.hold(key)
                self._read[key] = now
                self.written[key] = row

    async def delete(self, row: Any) -> None:
        key = next(key for key, copy in self.copies.items() if copy is row)
        await self.hold(key)
        self.deleted.add(key)

    async def get(self, entity: Any, ident: Any) -> Any:
        await self.statement()
        return self.find(entity.__tablename__, ident)

    async def execute(self, statement: Any, *_: Any) -> Any:
        raise UnknownQuery(f"the simulator never passes over a query: give it a stand-in: {statement}")

    # what stand-ins for repositories call

    async def statement(self) -> None:
        """Begins a statement: others may run before it does, and changes so far are seen by it."""
        if not self.process.alive or self.tables.is_away:
            raise Away("no database")
        if self.tables.chance.random() < self.tables.latency_share:
            await asyncio.sleep(0.0005 + 0.004 * self.tables.chance.random())
        await self.flush()

    async def hold(self, key: Key) -> None:
        """Locks a row to the end of the transaction.

        Raises:
            DBAPIError: somebody who is waited for waits for this one.
        """
        holders = self.tables.holders
        while (holder := holders.get(key)) is not self:
            if holder is None:
                holders[key] = self
                self._held.append(key)
                return
            self._waits_for = holder
            if self._is_waited_for_by(holder):
                self._waits_for = None
                self.tables.story.reach("the database broke a deadlock")
                raise refused(DEADLOCK, f"deadlock at {key}")
            await asyncio.sleep(0.001)
            self._waits_for = None

    def scan(self, table: str, anew: bool = True) -> list[Any]:
        """All rows of a table as this transaction sees them, by key. `anew`: rows that were read before are read again,
        unless this transaction changed them."""
        stored, found = self.tables.table(table), {}
        for pk in stored:
            if (row := self._see((table, pk), anew)) is not None:
                found[pk] = row
        for (name, pk), copy in self.written.items():
            if name == table and pk not in stored and (table, pk) not in self.deleted:
                found[pk] = copy
        return [found[pk] for pk in sorted(found)]

    def find(self, table: str, pk: Any, anew: bool = False) -> Any:
        """One row as this transaction sees it, None if there is none."""
        key = (table, pk)
        if key in self.written and key not in self.deleted:
            return self.written[key]
        return self._see(key, anew) if pk in self.tables.table(table) else None

    async def put(self, table: str, pk: Any, **columns: Any) -> None:
        """INSERT ... ON CONFLICT DO UPDATE."""
        key = (table, pk)
        await self.hold(key)
        row = self.find(table, pk, anew=True)
        if row is None:
            self._write_new(key, Row(**self._now_for(columns)))
            return
        row.__dict__.update(self._now_for(columns))
        self._read[key] = _columns(row)
        self.written[key] = row

    async def insert_missing(self, table: str, pk: Any, **columns: Any) -> bool:
        """INSERT ... ON CONFLICT DO NOTHING; whether it is new. Waits for whoever is inserting the same."""
        await self.hold((table, pk))
        if self.find(table, pk, anew=True) is not None:
            return False
        self._write_new((table, pk), Row(**self._now_for(columns)))
        return True

    async def remove(self, table: str, pk: Any) -> None:
        await self.hold((table, pk))
        self.deleted.add((table, pk))

    # how it ends

    def commit(self) -> None:
        if not self.process.alive or self.tables.is_away:
            raise Away("no database")
        for key, row in self.written.items():
            if key not in self.deleted:
                self.tables.table(key[0])[key[1]] = Row(**_columns(row))
        for table, pk in self.deleted:
            self.tables.table(table).pop(pk, None)
        for look in self.tables.on_commit:
            look(self)
        hints = dict.fromkeys(self.hints)
        for channel in hints:
            for listener in self.tables.listeners:
                listener(channel)

    def close(self) -> None:
        for key in self._held:
            if self.tables.holders.get(key) is self:
                del self.tables.holders[key]
        self._held.clear()

    # its own business

    def _insert(self, table: str, made: Any) -> None:
        for name, column in made.__table__.c.items():
            if made.__dict__.get(name) is None:
                default = None if column.server_default is None else DEFAULTS.get((table, name), self.tables.now())
                setattr(made, name, default)
        columns = _columns(made)
        self._resolve(made, columns)
        pk = tuple(columns[column.name] for column in made.__table__.primary_key)
        key = (table, pk if len(pk) > 1 else pk[0])
        for unique in UNIQUES.get(table, ()):
            value = tuple(columns[name] for name in unique)
            if None not in value and any(tuple(getattr(one, name) for name in unique) == value
                                         for one in self.scan(table)):
                raise refused(UNIQUE, f"{table} has {value} already")
        self._write_new(key, made)

    def _write_new(self, key: Key, made: Any) -> None:
        holder = self.tables.holders.get(key)
        is_stored = key[1] in self.tables.table(key[0]) and key not in self.deleted
        if is_stored or (holder is not None and holder is not self):
            raise refused(UNIQUE, f"{key} is there already")
        if holder is None:
            self.tables.holders[key] = self
            self._held.append(key)
        self.copies[key] = self.written[key] = self._made[key] = made
        self._read[key] = _columns(made)
        self.deleted.discard(key)

    def _see(self, key: Key, anew: bool) -> Any:
        if key in self.deleted:
            return None
        copy = self.copies.get(key)
        if copy is None:
            base = self.tables.rows[key[0]][key[1]].__dict__
            copy = self.copies[key] = Copy(key, self._touched, base)
            self._read[key] = base
        elif anew and key not in self.written:
            base = self.tables.rows[key[0]][key[1]].__dict__
            copy.__dict__.update(base)
            self._read[key] = base
        return copy

    def _resolve(self, row: Any, columns: dict[str, Any]) -> None:
        """Expressions of the database's clock become its time."""
        for name, value in columns.items():
            if isinstance(value, ClauseElement):
                columns[name] = row.__dict__[name] = self.tables.now()

    def _now_for(self, columns: dict[str, Any]) -> dict[str, Any]:
        return {name: self.tables.now() if isinstance(value, ClauseElement) else value
                for name, value in columns.items()}

    def _is_waited_for_by(self, other: "Session | None") -> bool:
        seen = 0
        while other is not None and seen < 100:
            if other is self:
                return True
            other, seen = other._waits_for, seen + 1
        return False


def _columns(row: Any) -> dict[str, Any]:
    """A row's columns, whether it is one of ours or the product's."""
    columns = dict(row.__dict__)
    columns.pop("_sa_instance_state", None)
    return columns


DEFAULTS: dict[tuple[str, str], Any] = {
    ("operation", "arguments"): {}, ("operation", "undo"): {}, ("operation", "automatic"): False,
    ("operation_step", "detail"): "", ("command", "deployment_id"): "", ("command", "round"): 0,
    ("command", "result"): "",
}
UNIQUES: dict[str, tuple[tuple[str, ...], ...]] = {
    "operation": (("requested_by", "idempotency_key"),),
    "command": (("fleet_id", "seq"), ("operation_id", "fleet_id", "kind", "deployment_id", "round")),
}


class SimulatedDatabase(Database):
    """One replica's way to the tables; its retries of deadlocks are the product's."""

    def __init__(self, tables: Tables, process: Process) -> None:
        self.tables, self.process = tables, process

    @asynccontextmanager
    async def begin(self) -> AsyncIterator[Any]:
        session = Session(self.tables, self.process)
        try:
            yield session
            await session.statement()
            for last in session.info.pop("before_commit", []):
                await last(session)
            await session.flush()
            session.commit()
        finally:
            session.close()
        for hook in session.info.pop("after_commit", []):
            hook()

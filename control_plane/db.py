"""The database: its engine, the base of all tables, and the unit of work that holds the only commit.

A slice opens a session with `Database.begin()`; leaving the block commits, an exception rolls back. Nothing inside
the block may call the network. What must happen after the commit is handed to `after_commit`.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from typing import Any, ClassVar, TypeVar

from sqlalchemy import ARRAY, BigInteger, DateTime, Enum, MetaData, Numeric, Text, func, select
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase

from control_plane.contracts import ids

Result = TypeVar("Result")

USD = Numeric(38, 12)
DEADLOCK, SERIALISATION = "40P01", "40001"
RETRIES = 6
RETRY_BASE_S = 0.01
CONNECT_TIMEOUT_S = 5.0
POOL_TIMEOUT_S = 5.0
WAKEUP_CHANNEL = "meridian"
PING = "SELECT 1"
_AFTER_COMMIT, _BEFORE_COMMIT = "after_commit", "before_commit"


class Base(DeclarativeBase):
    """All tables. Constraint names are fixed, so that a migration can name what it changes."""

    metadata = MetaData(naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
        "pk": "pk_%(table_name)s",
    })
    type_annotation_map: ClassVar[dict[Any, Any]] = {
        str: Text(),
        int: BigInteger(),
        datetime: DateTime(timezone=True),
        Decimal: USD,
        dict[str, Any]: JSONB(),
        list[dict[str, Any]]: JSONB(),
        list[str]: ARRAY(Text()),
    }


def enum_text(kind: type[StrEnum]) -> Enum:
    """A column that holds a `StrEnum`'s values as text, checked by the database."""
    return Enum(kind, name=kind.__name__.lower(), native_enum=False, length=32, create_constraint=True,
                values_callable=lambda members: [member.value for member in members])


class Database:
    """A pool of connections to one Postgres."""

    def __init__(self, url: str, *, statement_timeout_s: float = 10.0, lock_timeout_s: float = 5.0,
                 pool_size: int = 10) -> None:
        self.url = url
        self.engine: AsyncEngine = create_async_engine(
            url, pool_size=pool_size, max_overflow=pool_size, pool_timeout=POOL_TIMEOUT_S, pool_pre_ping=True,
            connect_args={
                "timeout": CONNECT_TIMEOUT_S,
                "server_settings": {
                    "application_name": "meridian",
                    "statement_timeout": str(int(statement_timeout_s * 1000)),
                    "lock_timeout": str(int(lock_timeout_s * 1000)),
                    "idle_in_transaction_session_timeout": str(int(statement_timeout_s * 2000)),
                },
            })
        self._sessions = async_sessionmaker(self.engine, expire_on_commit=False)

    @asynccontextmanager
    async def begin(self) -> AsyncIterator[AsyncSession]:
        """One transaction, READ COMMITTED: committed when the block ends well, rolled back when it does not."""
        async with self._sessions() as session, session.begin():
            yield session
            for last in session.info.pop(_BEFORE_COMMIT, []):
                await last(session)
        for hook in session.info.pop(_AFTER_COMMIT, []):
            hook()

    async def run(self, work: Callable[[AsyncSession], Awaitable[Result]]) -> Result:
        """`work` in a transaction of its own, done again (at most 6 times in all) when Postgres broke a deadlock."""
        attempt = 0
        while True:
            try:
                async with self.begin() as session:
                    return await work(session)
            except DBAPIError as error:
                attempt += 1
                if attempt >= RETRIES or sqlstate(error) not in (DEADLOCK, SERIALISATION):
                    raise
            await asyncio.sleep(ids.jitter(RETRY_BASE_S * 2**attempt, share=0.5))

    async def is_reachable(self, deadline_s: float) -> bool:
        """Whether Postgres answers a query within `deadline_s`."""
        try:
            async with asyncio.timeout(deadline_s), self.engine.connect() as connection:
                await connection.execute(select(1))
        except (DBAPIError, OSError, TimeoutError):
            return False
        return True

    async def aclose(self) -> None:
        await self.engine.dispose()


def sqlstate(error: DBAPIError) -> str:
    """Postgres' five-character error code, empty if it gave none."""
    return str(getattr(error.orig, "sqlstate", None) or "")


def before_commit(session: AsyncSession, work: Callable[[AsyncSession], Awaitable[None]]) -> None:
    """Has `work` done as the last of this session's transaction, and not at all if the transaction fails before."""
    session.info.setdefault(_BEFORE_COMMIT, []).append(work)


def after_commit(session: AsyncSession, hook: Callable[[], None]) -> None:
    """Runs `hook` once this session's transaction is committed, and never if it is not."""
    session.info.setdefault(_AFTER_COMMIT, []).append(hook)


async def notify(session: AsyncSession, channel: str) -> None:
    """Wakes who waits for `channel` in any replica, when this transaction commits. A hint: see `wakeup`."""
    await session.execute(select(func.pg_notify(WAKEUP_CHANNEL, channel)))


async def database_time(session: AsyncSession) -> datetime:
    """The database's clock, the same for all replicas; the time at which the transaction began."""
    return (await session.execute(select(func.now()))).scalar_one()

"""The schema's history, run in process: every replica upgrades at start, one at a time under an advisory lock."""

import asyncio
from collections.abc import Callable
from pathlib import Path

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection, text
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

ADVISORY_LOCK = 7_263_410_001
SCRIPTS = Path(__file__).parent


async def upgrade(database_url: str, revision: str = "head") -> None:
    """Brings the database to `revision`; does nothing if it is there already."""
    await _run(database_url, lambda config: command.upgrade(config, revision))


async def downgrade(database_url: str, revision: str) -> None:
    """Takes the database back to `revision` (`base` for nothing)."""
    await _run(database_url, lambda config: command.downgrade(config, revision))


async def check(database_url: str) -> None:
    """Compares the database with the models.

    Raises:
        alembic.util.CommandError: they differ; the message says in what.
    """
    await _run(database_url, command.check)


async def _run(database_url: str, work: Callable[[Config], None]) -> None:
    engine = create_async_engine(database_url, poolclass=NullPool)
    try:
        async with engine.connect() as connection:
            await connection.run_sync(_locked, work)
    finally:
        await asyncio.shield(engine.dispose())


def _locked(connection: Connection, work: Callable[[Config], None]) -> None:
    """A session-level lock: it outlives the transactions of the single migrations, and a lost connection frees it."""
    connection.execute(text("SELECT pg_advisory_lock(:key)"), {"key": ADVISORY_LOCK})
    connection.commit()
    try:
        config = Config()
        config.set_main_option("script_location", str(SCRIPTS))
        config.attributes["connection"] = connection
        work(config)
        connection.commit()
    finally:
        if not connection.closed:
            connection.rollback()
            connection.execute(text("SELECT pg_advisory_unlock(:key)"), {"key": ADVISORY_LOCK})
            connection.commit()

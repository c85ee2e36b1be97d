"""The real servers that tests run on: one Postgres and one Valkey a session, a database a test."""

from collections.abc import Iterator
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

from infra.local import postgres
from infra.local.postgres import Postgres
from infra.local.valkey import Valkey
from tests import throwaway

TEMPLATE = "migrated"


class WholeFiles(LoadScopeScheduling):
    """Spreads files over the workers, not tests: a file's clusters start once. The whole stack is one unit."""

    def _split_scope(self, nodeid: str) -> str:
        path = nodeid.split("::", 1)[0]
        return "tests/e2e" if path.startswith("tests/e2e/") else path


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> WholeFiles:
    """What `./dev test` runs side by side."""
    return WholeFiles(config, log)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Postgres]:
    """One Postgres server for the session."""
    with throwaway.postgres_server() as server:
        yield server


@pytest.fixture(scope="session")
def migrated_template(postgres_server: Postgres) -> str:
    """The name of a database with every migration applied, to copy from."""
    import migrations

    upgrade: Any = migrations.upgrade
    throwaway.run(postgres.ensure_database(postgres_server, TEMPLATE))
    throwaway.run(upgrade(postgres_server.url(TEMPLATE)))
    return TEMPLATE


@pytest.fixture
def database_url(postgres_server: Postgres, migrated_template: str) -> Iterator[str]:
    """A fresh database with every migration applied."""
    with throwaway.database(postgres_server, migrated_template) as url:
        yield url


@pytest.fixture
def empty_database_url(postgres_server: Postgres) -> Iterator[str]:
    """A fresh database without a table."""
    with throwaway.database(postgres_server) as url:
        yield url


@pytest.fixture(scope="session")
def valkey_server() -> Iterator[Valkey]:
    """One Valkey server for the session."""
    with throwaway.valkey_server() as server:
        yield server


@pytest.fixture
async def valkey_url(valkey_server: Valkey) -> str:
    """The session's Valkey, empty."""
    from redis.asyncio import Redis

    async with Redis.from_url(valkey_server.url) as client:
        await client.flushall()
    return valkey_server.url

"""The real servers that tests run on: one Postgres and one Valkey a session, a database a test."""

from collections.abc import Iterator
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

from infra.local import postgres
from infra.local.postgres import Postgres
from infra.local.valkey import Valkey
from tests import throwaway
from tests.e2e.stack import LocalStack, state_directory

TEMPLATE = "migrated"
ON_THE_STACK = ("tests/contract/", "tests/e2e/", "tests/chaos/test_scenarios.py")


class WholeFiles(LoadScopeScheduling):
    """Spreads files over the workers, not tests: a file's clusters start once. All on the whole stack is one unit."""

    def _split_scope(self, nodeid: str) -> str:
        path = nodeid.split("::", 1)[0]
        return "the stack" if path.startswith(ON_THE_STACK) else path


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


@pytest.fixture(scope="session")
def running_stack() -> Iterator[LocalStack]:
    """A whole local stack, started once a session; afterwards it must end with Ctrl-C and leave nothing behind."""
    with state_directory() as state:
        stack = LocalStack(state)
        try:
            stack.start()
            yield stack
            assert stack.stop() == 0
            assert stack.processes() == []
        finally:
            stack.kill_all()


@pytest.fixture
def stack(running_stack: LocalStack) -> LocalStack:
    """The stack, with every datacenter ready and no operation under way."""
    running_stack.settle()
    return running_stack

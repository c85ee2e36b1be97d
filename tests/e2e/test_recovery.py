"""Postgres is lost and an older copy of it takes its place: one command, and everything follows it again."""

import asyncio
from typing import Any

import asyncpg
import httpx
import pytest

from infra.local import postgres
from infra.local.layout import Layout
from infra.local.postgres import Postgres
from tests import throwaway
from tests.e2e.stack import LocalStack, until

pytestmark = pytest.mark.stack
MODEL, DATACENTER = "sim/glm-5.3", "us-east-1"
COPY, LOST = "copy", "lost"


def order(stack: LocalStack, *arguments: str) -> None:
    done = stack.meridian(*arguments)
    assert done.returncode == 0, done.stdout + done.stderr


def server_of(stack: LocalStack) -> Postgres:
    layout = Layout(stack.state)
    secrets = layout.read_secrets()
    port = int(stack.facts["database_url"].rsplit(":", 1)[1].split("/")[0])
    return Postgres(data_dir=layout.postgres_data, port=port, log_path=layout.log("postgres"),
                    superuser_password=secrets.postgres_superuser, role_password=secrets.postgres_role)


async def copied(server: Postgres) -> None:
    """Makes a copy of the database as it is now."""
    connection = await postgres.connect(server)
    try:
        await without_sessions(connection, f"CREATE DATABASE {COPY} TEMPLATE meridian OWNER meridian")
    finally:
        await connection.close()


async def put_back(server: Postgres) -> None:
    """Puts the copy in the place of the database."""
    connection = await postgres.connect(server)
    try:
        await without_sessions(connection, f"ALTER DATABASE meridian RENAME TO {LOST}")
        await connection.execute(f"ALTER DATABASE {COPY} RENAME TO meridian")
    finally:
        await connection.close()


async def without_sessions(connection: Any, statement: str) -> None:
    await connection.execute("ALTER DATABASE meridian ALLOW_CONNECTIONS false")
    for _ in range(100):
        await connection.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 'meridian'")
        try:
            await connection.execute(statement)
            break
        except asyncpg.ObjectInUseError:  # by a session that is about to end
            await asyncio.sleep(0.1)
    for name in ("meridian", LOST):
        if await connection.fetchval("SELECT 1 FROM pg_database WHERE datname = $1", name):
            await connection.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS true")


def ask(stack: LocalStack, secret: str = "") -> httpx.Response:
    headers = {"authorization": f"Bearer {secret or stack.facts['api_key']}"}
    body = {"model": MODEL, "messages": [{"role": "user", "content": "hi"}], "max_tokens": 2}
    return httpx.post(f"{stack.facts['edge_url']}/chat/completions", json=body, headers=headers, timeout=60,
                      trust_env=False)


class Client:
    """Asks, and remembers what was answered."""

    def __init__(self, stack: LocalStack) -> None:
        self._stack, self.answered = stack, list[str]()

    def ask(self, secret: str = "") -> int:
        answer = ask(self._stack, secret)
        if answer.status_code == 200:
            self.answered.append(answer.headers["x-request-id"].removeprefix("req_"))
        return answer.status_code

    def missing(self) -> set[str]:
        """The answered requests that have no usage record."""
        return set(self.answered) - {
            record["request_id"].replace("-", "") for record in self._stack.generations(500)}

    def is_recorded(self) -> bool:
        return not self.missing()


def new_key(stack: LocalStack) -> tuple[str, str]:
    made = stack.json("keys", "create", stack.facts["team"], "--name", "ci")
    return made["id"], made["secret"]


def test_an_older_copy_of_the_database_is_followed_after_one_command(stack: LocalStack) -> None:
    server, client = server_of(stack), Client(stack)
    key_id, secret = new_key(stack)
    assert client.ask(secret) == 200
    throwaway.run(copied(server))
    until(lambda: stack.meridian("status").returncode == 0, 60, "a control plane")
    order(stack, "drain", DATACENTER, "--reason", "test", "--wait", "-y")
    order(stack, "restore", DATACENTER, "--reason", "test", "--wait", "-y")
    order(stack, "keys", "revoke", key_id, "-y")
    until(lambda: client.ask(secret) == 401, 15, "the revocation")
    stack.kill("meridian", "agent", "eu-north-1")
    assert {client.ask() for _ in range(5)} == {200}
    until(client.is_recorded, 30, "a record for each request")
    throwaway.run(put_back(server))
    ahead = until(lambda: seen_ahead(stack), 60, "a machine that is ahead")
    assert "edge" in {one["kind"] for one in ahead}
    assert client.missing(), "the copy holds what was recorded after it was made"
    order(stack, "recover", "--reason", "the disk died", "--wait", "-y")
    status = stack.json("status")
    assert (status["lineage"], status["ahead"], {edge["behind"] for edge in status["edges"]}) == (2, [], {0})
    stack.settle()
    assert client.ask() == 200
    until(client.is_recorded, 60, "the records of the time that was lost, and of the new request")
    assert client.ask(secret) == 401
    order(stack, "drain", DATACENTER, "--reason", "after", "--wait", "-y")
    order(stack, "restore", DATACENTER, "--reason", "after", "--wait", "-y")
    assert stack.meridian("audit", "verify").returncode == 0


def seen_ahead(stack: LocalStack) -> Any:
    done = stack.meridian("status", "-o", "json")
    return done.returncode == 0 and httpx.Response(200, content=done.stdout).json()["ahead"]

"""Refusals as HTTP answers, and which failures mean that the database is away."""

import asyncpg
import httpx
import pytest
from fastapi import FastAPI
from pydantic import BaseModel
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError, ProgrammingError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from control_plane import errors
from control_plane.errors import Conflict, DatabaseAway, Forbidden, NotFound, Refusal, Unauthenticated, UnsafeChange


class Coded(Exception):
    """An error of a driver, with Postgres' code."""

    def __init__(self, sqlstate: str | None) -> None:
        super().__init__("driver")
        self.sqlstate = sqlstate


class Body(BaseModel):
    """What the route below takes."""

    count: int


def raising(error: Exception) -> FastAPI:
    app = FastAPI()
    errors.install(app)

    @app.post("/")
    async def fail(body: Body) -> None:
        raise error

    return app


async def ask(error: Exception, body: object = None) -> httpx.Response:
    transport = httpx.ASGITransport(raising(error), raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://here") as client:
        return await client.post("/", json={"count": 1} if body is None else body)


@pytest.mark.parametrize(("error", "status", "code"), [
    (Refusal("no"), 400, "bad_request"), (Unauthenticated("no"), 401, "unauthenticated"),
    (Forbidden("no"), 403, "forbidden"), (NotFound("no", code="unknown_key"), 404, "unknown_key"),
    (Conflict("no"), 409, "conflict"), (DatabaseAway("no"), 503, "database_away")])
async def test_a_refusal_is_answered_with_its_status_and_code(error: Refusal, status: int, code: str) -> None:
    answer = await ask(error)
    assert (answer.status_code, answer.json()) == (
        status, {"code": code, "message": "no", "rule": None, "numbers": {}})


async def test_a_safety_rule_is_named_with_its_numbers() -> None:
    body = (await ask(UnsafeChange("the last one", rule="last_datacenter", numbers={"healthy": "1"}))).json()
    assert (body["rule"], body["numbers"]) == ("last_datacenter", {"healthy": "1"})


async def test_who_is_refused_for_now_is_told_when_to_come_back() -> None:
    assert (await ask(DatabaseAway("away"))).headers["retry-after"] == "1"


async def test_a_body_that_does_not_fit_names_the_field_and_not_its_value() -> None:
    answer = await ask(Refusal("unused"), body={"count": "s3cret"})
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid")
    assert "count" in answer.json()["message"]
    assert "s3cret" not in answer.text


async def test_a_bug_is_answered_without_its_details() -> None:
    answer = await ask(RuntimeError("the password is hunter2"))
    assert (answer.status_code, answer.json()["code"]) == (500, "internal")
    assert "hunter2" not in answer.text


async def test_a_value_that_postgres_cannot_hold_is_the_callers_fault() -> None:
    answer = await ask(DBAPIError("INSERT", None, Coded("22021")))
    assert (answer.status_code, answer.json()["code"]) == (400, "bad_value")


async def test_a_wrong_statement_is_a_bug_and_not_the_databases_absence() -> None:
    assert (await ask(ProgrammingError("SELECT", None, Coded("42P01")))).status_code == 500


@pytest.mark.parametrize("error", [
    ConnectionRefusedError(), TimeoutError(), PoolTimeout(), InterfaceError("SELECT", None, Coded(None)),
    OperationalError("SELECT", None, Coded("57P01")), DBAPIError("SELECT", None, Coded("08006")),
    DBAPIError("SELECT", None, Coded(None), connection_invalidated=True)])
async def test_a_database_that_does_not_answer_is_503(error: Exception) -> None:
    assert errors.is_database_away(error)
    assert (await ask(error)).json()["code"] == "database_away"


@pytest.mark.parametrize("error", [
    DBAPIError("SELECT", None, Coded("23505")), DBAPIError("SELECT", None, Coded("40P01")), ValueError()])
def test_other_failures_are_not_an_absent_database(error: Exception) -> None:
    assert not errors.is_database_away(error)


def test_the_drivers_own_code_is_the_one_that_is_read() -> None:
    assert asyncpg.AdminShutdownError.sqlstate.startswith(errors.CONNECTION_LOST)

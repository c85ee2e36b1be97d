"""Pages of usage cost the same however much there is: what they ask of the database never reads whole tables."""

from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import event

from tests.integration.control_plane.usage.conftest import Metered

DAYS, ROWS_A_DAY, TEAMS = 4, 20_000, 50
FILL = """
    INSERT INTO usage_record ({columns})
    SELECT {values} FROM usage_record, generate_series(0, {days} - 1) AS back, generate_series(1, {rows}) AS number
"""


async def fill(metered: Metered) -> None:
    """Many copies of one record, spread over days and teams."""
    await metered.ship(metered.maker.record(metered.now_s))
    names = [row[0] for row in await metered.rows(
        "SELECT column_name FROM information_schema.columns WHERE table_name = 'usage_record' ORDER BY 1")]
    other = {"id": "uuidv7(make_interval(days => -back))", "day": "day - back",
             "team_id": f"CASE WHEN number % {TEAMS} = 0 THEN team_id ELSE 'team_' || number % {TEAMS} END"}
    statement = FILL.format(columns=", ".join(names), values=", ".join(other.get(name, name) for name in names),
                            days=DAYS, rows=ROWS_A_DAY)
    async with metered.replica.context.db.engine.begin() as connection:
        await connection.exec_driver_sql("ALTER TABLE usage_record DROP CONSTRAINT IF EXISTS usage_record_team_id_fkey")
        await connection.exec_driver_sql(statement)
    async with metered.replica.context.db.engine.begin() as connection:
        await connection.exec_driver_sql("ANALYZE usage_record")


@pytest.fixture
def asked(metered: Metered) -> Iterator[list[tuple[str, Any]]]:
    """What is asked of the table, with its parameters."""
    statements: list[tuple[str, Any]] = []
    engine = metered.replica.context.db.engine.sync_engine

    def note(connection: Any, cursor: Any, statement: str, parameters: Any, context: Any, many: bool) -> None:
        if statement.lstrip().startswith("SELECT") and "FROM usage_record" in statement:
            statements.append((statement, parameters))

    event.listen(engine, "before_cursor_execute", note)
    yield statements
    event.remove(engine, "before_cursor_execute", note)


async def test_no_question_about_usage_reads_the_whole_table(
        metered: Metered, asked: list[tuple[str, Any]]) -> None:
    await fill(metered)
    asked.clear()
    headers, team = await metered.replica.operator(), metered.maker.team_id
    for query in ("limit=50", f"limit=50&team={team}"):
        answer = await metered.replica.client.get(f"/operator/v1/generations?{query}", headers=headers)
        assert answer.status_code == 200
        page = answer.json()
        assert len(page["data"]) == 50
        after = await metered.replica.client.get(
            f"/operator/v1/generations?{query}&cursor={page['next_cursor']}", headers=headers)
        assert len(after.json()["data"]) == 50
    assert len(asked) == 4
    for statement, parameters in asked:
        plan = await explained(metered, statement, parameters)
        assert "Seq Scan" not in plan, plan


async def explained(metered: Metered, statement: str, parameters: Any) -> str:
    """How the database goes about it."""
    async with metered.replica.context.db.engine.connect() as connection:
        rows = await connection.exec_driver_sql(f"EXPLAIN {statement}", tuple(parameters))
        return "\n".join(row[0] for row in rows)

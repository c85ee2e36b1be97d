"""The schema's history: it equals the models, it goes down and up again on data, and replicas run it one at a time."""

import asyncio
from typing import Any

from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

import migrations
from control_plane.audit import service as audit
from control_plane.audit.chain import Tip
from control_plane.contracts import ids
from control_plane.db import Database

SEED = (
    "INSERT INTO team (id, slug, name) VALUES ('team_1', 'acme', 'Acme')",
    "INSERT INTO api_key (id, team_id, name, digest, hint, scopes, created_by) "
    "VALUES ('key_1', 'team_1', 'ci', 'd', 'h', '{inference}', 'test')",
    "INSERT INTO key_revocation (seq, key_id, digest) VALUES (1, 'key_1', 'd')",
    "INSERT INTO identity (id, kind, subject, public_key) VALUES ('edge_1', 'edge', 'us-east-1', 'k')",
    "INSERT INTO enrolment_token (digest, kind, subject, expires_at, spent_by, spent_at) "
    "VALUES ('d', 'edge', 'us-east-1', now(), 'edge_1', now())",
    "INSERT INTO operator_token (id, name, digest, scopes, expires_at) VALUES ('t', 'olga', 'd', '{admin}', now())",
    "INSERT INTO price (version, model_id, input_usd, cached_input_usd, output_usd) VALUES ('pv_1', 'm', 1, 1, 1)",
    "INSERT INTO outbox (topic, key, payload) VALUES ('t', 'k', '{}')",
    "INSERT INTO usage_record (day, id, edge_id, team_id, key_id, model_id, datacenter_id, price_version, outcome, "
    "meter, streamed, http_status, prompt_tokens, cached_tokens, completion_tokens, reasoning_tokens, cost_usd, "
    "attempts, opened_at, duration_ms, finish_reason, body_sha) VALUES (current_date, gen_random_uuid(), 'edge_1', "
    "'team_1', 'key_1', 'm', 'dc', 'pv_1', 'completed', 'engine', true, 200, 1, 0, 1, 0, 1, '[]', now(), 1, 's', '')",
)
EVENT = "INSERT INTO audit_event (id, actor, action, target) VALUES ('a', 'olga', 'team.create', 'team:team_1')"
CHAINED_EVENT = ("INSERT INTO audit_event (id, actor, action, target, seq, prev_hash, hash) "
                 "VALUES ('a', 'olga', 'team.create', 'team:team_1', 1, '', '')")
MONEY = (
    "INSERT INTO money_scope (scope, scope_id, team_id, mode) VALUES ('team', 'team_1', 'team_1', 'prepaid')",
    "INSERT INTO credit (id, team_id, amount_usd, reason, actor) VALUES ('credit_1', 'team_1', 5, 'test', 'olga')",
    "INSERT INTO budget (scope, scope_id, interval, limit_usd) VALUES ('team', 'team_1', 'daily', 5)",
    "INSERT INTO money_lease (id, edge_id, boot_id, scope, scope_id, granted_nusd) "
    "VALUES ('lease_1', 'edge_1', 'boot_1', 'team', 'team_1', 5)",
)


async def run(url: str, *statements: str) -> list[Any]:
    """The rows of the last statement."""
    engine: AsyncEngine = create_async_engine(url)
    try:
        async with engine.begin() as connection:
            for statement in statements:
                result = await connection.exec_driver_sql(statement)
            return list(result.all()) if result.returns_rows else []
    finally:
        await engine.dispose()


async def tables(url: str) -> set[str]:
    return {name for (name,) in await run(
        url, "SELECT tablename FROM pg_tables WHERE schemaname = 'public' AND tablename <> 'alembic_version'")}


async def functions(url: str) -> list[Any]:
    return await run(url, "SELECT proname FROM pg_proc WHERE pronamespace = 'public'::regnamespace")


async def test_the_models_equal_the_migrated_database(database_url: str) -> None:
    await migrations.check(database_url)


async def test_partitions_made_by_code_are_no_difference(database_url: str) -> None:
    await run(database_url, "CREATE TABLE usage_record_p20261130 PARTITION OF usage_record "
                            "FOR VALUES FROM ('2026-11-30') TO ('2026-12-01')")
    await migrations.check(database_url)


async def test_an_upgraded_database_with_data_goes_down_to_nothing_and_up_again(empty_database_url: str) -> None:
    await migrations.upgrade(empty_database_url)
    expected = await tables(empty_database_url)
    await run(empty_database_url, *SEED, CHAINED_EVENT)
    await migrations.downgrade(empty_database_url, "base")
    assert (await tables(empty_database_url), await functions(empty_database_url)) == (set(), [])
    await migrations.upgrade(empty_database_url)
    assert await tables(empty_database_url) == expected
    await migrations.check(empty_database_url)


async def test_data_of_the_first_migration_survives_the_later_ones_both_ways(empty_database_url: str) -> None:
    await migrations.upgrade(empty_database_url, "0001")
    await run(empty_database_url, *SEED, EVENT)
    await migrations.upgrade(empty_database_url)
    await migrations.downgrade(empty_database_url, "0001")
    await migrations.upgrade(empty_database_url)
    assert await run(empty_database_url, "SELECT count(*) FROM usage_record, api_key, audit_event, price") == [(1,)]


async def test_what_older_records_cost_is_booked_when_money_comes(empty_database_url: str) -> None:
    await migrations.upgrade(empty_database_url, "0002")
    await run(empty_database_url, *SEED, SEED[-1].replace("current_date", "date '2026-11-29'"))
    await migrations.upgrade(empty_database_url)
    assert await run(
        empty_database_url, "SELECT interval, sum(spent_usd) FROM spend WHERE scope = 'team' AND scope_id = 'team_1' "
        "GROUP BY interval ORDER BY interval") == [("daily", 2), ("lifetime", 2), ("monthly", 2), ("weekly", 2)]
    assert await run(
        empty_database_url, "SELECT count(*) FROM spend WHERE scope_id = 'key_1' AND (interval, window_start) IN ("
        "('daily', '2026-11-29 00:00Z'), ('weekly', '2026-11-23 00:00Z'), ('monthly', '2026-11-01 00:00Z'), "
        "('lifetime', '1970-01-01 00:00Z'))") == [(4,)]
    assert await run(empty_database_url, "SELECT DISTINCT dialect, session, service_tier, resumes FROM usage_record"
                     ) == [("chat", "", "default", 0)]


async def test_money_goes_down_and_up_again_on_data(empty_database_url: str) -> None:
    await migrations.upgrade(empty_database_url)
    await run(empty_database_url, *SEED, CHAINED_EVENT, *MONEY)
    await migrations.downgrade(empty_database_url, "0002")
    assert await run(empty_database_url, "SELECT count(*) FROM usage_record, api_key, audit_event, price") == [(1,)]
    await migrations.upgrade(empty_database_url)
    assert await run(empty_database_url, "SELECT sum(spent_usd) FROM spend WHERE interval = 'lifetime'") == [(2,)]


async def test_limits_go_down_and_up_again_on_data_and_a_grace_ends_with_them(empty_database_url: str) -> None:
    await migrations.upgrade(empty_database_url, "0004")
    await run(
        empty_database_url, *SEED,
        "INSERT INTO api_key (id, team_id, name, digest, hint, scopes, created_by, rotated_from, allowed_models) "
        "VALUES ('key_2', 'team_1', 'ci', 'd2', 'h', '{inference}', 'test', 'key_1', '{m}')",
        "UPDATE api_key SET revoke_at = now() + interval '1 hour' WHERE id = 'key_1'",
        "INSERT INTO key_revocation (seq, key_id, digest, effective_at) VALUES (2, 'key_1', 'd', now())",
        "INSERT INTO rate_limit (id, team_id, concurrency) VALUES ('limit_1', 'team_1', 5)")
    await migrations.downgrade(empty_database_url, "0003")
    assert await run(empty_database_url, "SELECT seq FROM key_revocation") == [(2,)]
    assert await run(empty_database_url, "SELECT id FROM api_key WHERE revoked_at IS NULL") == [("key_2",)]
    await migrations.upgrade(empty_database_url)
    await migrations.check(empty_database_url)


async def test_what_was_noted_before_there_was_a_chain_is_chained_in_order_of_time(empty_database_url: str) -> None:
    await migrations.upgrade(empty_database_url, "0006")
    await run(empty_database_url, "INSERT INTO audit_event (id, at, actor, action, target, after) "
              "SELECT 'event_' || name, timestamptz '2026-11-30' + interval '1 s' * at, 'olga', 'test.note', "
              "'thing:1', '{\"share\": 1.0}' FROM (VALUES ('c', 1), ('a', 2), ('b', 2)) AS noted (name, at)")
    await migrations.upgrade(empty_database_url)
    assert await run(empty_database_url, "SELECT id FROM audit_event ORDER BY seq") == [
        ("event_c",), ("event_a",), ("event_b",)]
    db = Database(empty_database_url)
    try:
        view = await audit.verify(db, Tip(), 100)
    finally:
        await db.aclose()
    assert (view.seq, view.is_complete, view.fault) == (3, True, None)


async def test_upgrading_again_changes_nothing(database_url: str) -> None:
    before = await tables(database_url)
    await migrations.upgrade(database_url)
    assert await tables(database_url) == before


async def test_replicas_that_start_at_once_migrate_once(empty_database_url: str) -> None:
    await asyncio.gather(*(migrations.upgrade(empty_database_url) for _ in range(3)))
    await migrations.check(empty_database_url)


async def test_the_lock_is_free_after_a_migration_that_failed(empty_database_url: str) -> None:
    await run(empty_database_url, f"CREATE TABLE team (id int)  -- {ids.nonce()}")
    failures = await asyncio.gather(migrations.upgrade(empty_database_url), return_exceptions=True)
    await run(empty_database_url, "DROP TABLE team")
    async with asyncio.timeout(30):
        await migrations.upgrade(empty_database_url)
    assert "already exists" in str(failures[0])

import asyncpg


async def test_a_fresh_database_answers(empty_database_url: str) -> None:
    connection = await asyncpg.connect(empty_database_url.replace("+asyncpg", ""))
    try:
        assert await connection.fetchval("select uuid_extract_version(uuidv7())") == 7
    finally:
        await connection.close()


async def test_valkey_answers(valkey_url: str) -> None:
    from redis.asyncio import Redis

    async with Redis.from_url(valkey_url) as client:
        assert await client.set("a", "b")

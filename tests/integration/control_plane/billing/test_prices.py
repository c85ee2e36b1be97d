"""Prices: versions that never change."""

from decimal import Decimal

import pytest
from sqlalchemy.exc import DBAPIError

from control_plane.billing import service as billing
from control_plane.contracts.topology import PriceDocument
from control_plane.db import sqlstate
from control_plane.errors import Conflict
from tests.integration.control_plane.replica import MODEL, PRICE, Replica


async def ensure(replica: Replica, price: PriceDocument, model_id: str = MODEL) -> bool:
    async with replica.context.db.begin() as session:
        return await billing.ensure_price(session, model_id, price)


async def test_a_version_is_new_once(replica: Replica) -> None:
    assert [await ensure(replica, PRICE), await ensure(replica, PRICE)] == [True, False]


async def test_a_stored_price_comes_back_exactly(replica: Replica) -> None:
    await ensure(replica, PRICE)
    async with replica.context.db.begin() as session:
        found = await billing.prices_of(session, ["pv_1", "pv_unknown"])
    assert list(found) == ["pv_1"]
    model_id, price = found["pv_1"]
    assert (model_id, price.cached_input_usd) == (MODEL, Decimal("0.00000011"))


async def test_the_same_version_with_other_numbers_is_refused_and_says_what_is_stored(replica: Replica) -> None:
    await ensure(replica, PRICE)
    with pytest.raises(Conflict) as refused:
        await ensure(replica, PRICE.model_copy(update={"output_usd": Decimal("0.000003")}))
    assert refused.value.code == "price_immutable"
    assert refused.value.numbers["output_usd"] == "0.0000022"


async def test_a_version_belongs_to_one_model(replica: Replica) -> None:
    await ensure(replica, PRICE)
    with pytest.raises(Conflict):
        await ensure(replica, PRICE, "sim/other")


async def test_the_same_numbers_spelled_otherwise_are_the_same_version(replica: Replica) -> None:
    await ensure(replica, PRICE)
    assert not await ensure(replica, PRICE.model_copy(update={"output_usd": Decimal("0.00000220")}))


@pytest.mark.parametrize("statement", ["UPDATE price SET output_usd = 0", "DELETE FROM price", "TRUNCATE price"])
async def test_the_database_refuses_to_change_a_price(replica: Replica, statement: str) -> None:
    await ensure(replica, PRICE)
    with pytest.raises(DBAPIError) as refused:
        async with replica.context.db.engine.begin() as connection:
            await connection.exec_driver_sql(statement)
    assert sqlstate(refused.value) == "42501"

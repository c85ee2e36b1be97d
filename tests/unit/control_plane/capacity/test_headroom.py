"""Ready capacity against peaks and reservations, per model and region set."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from control_plane.capacity.headroom import (
    EVERYWHERE,
    Holding,
    Need,
    PoolCapacity,
    headrooms,
    requests_held,
    required,
    without,
)
from control_plane.capacity.reservations import Reservation
from control_plane.contracts.deployment import PoolRole

GLM = "z-ai/glm-5.3"


def holding(datacenter: str, requests: int | None, *, serves: bool = True, model: str = GLM) -> Holding:
    return Holding(f"{datacenter}-{model}", model, datacenter, datacenter.rpartition("-")[0], requests, serves)


def reserved(requests: int, *regions: str) -> Reservation:
    return Reservation(f"res-{requests}-{'-'.join(regions)}", GLM, requests, frozenset(regions))


@given(st.integers(min_value=0, max_value=10**12))
def test_required_is_1_2_times_rounded_up_and_exact(requests: int) -> None:
    assert required(requests) * 10 >= requests * 12 > (required(requests) - 1) * 10


def test_only_decode_and_aggregated_replicas_hold_requests() -> None:
    pools = [PoolCapacity(PoolRole.PREFILL, 4, 100), PoolCapacity(PoolRole.DECODE, 2, 16)]
    assert requests_held(pools) == 32
    assert requests_held([PoolCapacity(PoolRole.AGGREGATED, 3, 8)]) == 24


@pytest.mark.parametrize("pool", [
    PoolCapacity(PoolRole.DECODE, None, 16), PoolCapacity(PoolRole.DECODE, 2, None)])
def test_a_pool_that_nobody_knows_makes_a_deployment_unknown(pool: PoolCapacity) -> None:
    assert requests_held([PoolCapacity(PoolRole.AGGREGATED, 1, 8), pool]) is None


def test_headroom_is_what_is_left_over_1_2_times_the_peak() -> None:
    total = headrooms([holding("eu-1", 100), holding("us-1", 100)], {GLM: 120}, [])[GLM].total
    assert (total.ready, total.required, total.headroom, total.is_short) == (200, 144, 56, False)


def test_reservations_count_when_they_are_larger_than_the_peak() -> None:
    total = headrooms([holding("eu-1", 100)], {GLM: 10}, [reserved(60), reserved(30)])[GLM].total
    assert (total.reserved, total.required, total.is_short) == (90, 108, True)


def test_a_datacenter_that_left_holds_nothing() -> None:
    places = [holding("eu-1", 100), holding("us-1", 100)]
    assert headrooms(without(places, "eu-1"), {GLM: 90}, [])[GLM].total.headroom == -8
    assert headrooms(places, {GLM: 90}, [])[GLM].total.headroom == 92


def test_what_does_not_serve_does_not_count_and_needs_not_be_known() -> None:
    places = [holding("eu-1", 100), holding("us-1", None, serves=False)]
    assert headrooms(places, {}, [])[GLM].total.ready == 100


def test_capacity_is_unknown_when_a_serving_deployment_is() -> None:
    total = headrooms([holding("eu-1", 100), holding("us-1", None)], {GLM: 500}, [])[GLM].total
    assert (total.ready, total.headroom, total.is_short) == (None, None, False)


def test_a_model_without_samples_has_no_peak_and_not_a_peak_of_0() -> None:
    assert headrooms([holding("eu-1", 100)], {}, [])[GLM].total.peak is None


def test_a_regional_reservation_must_fit_into_its_regions() -> None:
    found = headrooms([holding("eu-1", 50), holding("us-1", 500)], {GLM: 100}, [reserved(60, "eu")])[GLM]
    assert not found.total.is_short
    assert found.tightest == Need(frozenset({"eu"}), 50, None, 60)
    assert found.tightest.headroom == -22


def test_reservations_that_each_fit_may_still_not_fit_together() -> None:
    places = [holding("eu-1", 120), holding("us-1", 120), holding("ap-1", 1_000)]
    found = headrooms(places, {}, [reserved(90, "eu"), reserved(90, "us"), reserved(90, "eu", "us")])[GLM]
    assert {tuple(sorted(need.regions)): need.headroom for need in found.needs if need.regions} == {
        ("eu",): 12, ("us",): 12, ("eu", "us"): -84}


def test_unions_of_named_sets_are_needs_too() -> None:
    found = headrooms([holding("eu-1", 1)], {}, [reserved(1, "eu"), reserved(1, "us"), reserved(1, "ap")])[GLM]
    assert len({need.regions for need in found.needs}) == len(found.needs) == 8


def test_models_do_not_share_capacity() -> None:
    found = headrooms([holding("eu-1", 10), holding("eu-1", 20, model="m")], {GLM: 1, "m": 5}, [])
    assert {model: one.total.headroom for model, one in found.items()} == {GLM: 8, "m": 14}


def test_a_reservation_of_a_model_that_nothing_serves_is_short() -> None:
    assert headrooms([], {}, [reserved(1)])[GLM].total.is_short


@given(st.lists(st.integers(0, 1_000), max_size=6), st.integers(0, 3_000), st.integers(0, 3_000))
def test_headroom_is_ready_minus_1_2_times_the_larger_of_peak_and_reserved(
        held: list[int], peak: int, sold: int) -> None:
    places = [holding(f"r-{number}", requests) for number, requests in enumerate(held)]
    total = headrooms(places, {GLM: peak}, [reserved(sold)])[GLM].total
    assert total.regions == EVERYWHERE
    assert total.headroom == sum(held) - math.ceil(max(peak, sold) * 12 / 10)

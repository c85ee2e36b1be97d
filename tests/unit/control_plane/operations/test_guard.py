"""Conditions that end a shift: how they are read, and when they are true."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from control_plane.contracts.evidence import ITL_BOUNDS_S, TTFT_BOUNDS_S
from control_plane.operations.facts import QualityCounts
from control_plane.operations.guard import METRICS, MIN_REQUESTS, Readings, Unreadable, judge, parse


def counted(bounds: tuple[float, ...], up_to_s: float, count: int) -> tuple[int, ...]:
    """All of `count` requests in the bucket that ends at `up_to_s`."""
    return tuple(count if bound == up_to_s else 0 for bound in (*bounds, 0.0))


def readings(succeeded: int = 0, failed: int = 0, ttft: tuple[int, ...] = (), itl: tuple[int, ...] = (),
             queue: int | None = None, headroom: int | None = None) -> Readings:
    return Readings(QualityCounts(succeeded, failed, ttft, itl), queue, headroom)


def is_true(text: str, seen: Readings) -> bool:
    return bool(judge(parse(text), seen).true)


class TestReading:
    @pytest.mark.parametrize(("text", "limit"), [
        ("ttft_p90>2s", 2.0), ("ttft_p50 > 350ms", 0.35), ("itl_p99>=50ms", 0.05), ("error_rate>1%", 1.0),
        ("error_rate > 0.5 %", 0.5), ("queue>100", 100.0), ("headroom<20", 20.0), ("headroom<-5", -5.0)])
    def test_a_condition_is_read_in_its_unit(self, text: str, limit: float) -> None:
        (condition,) = parse(text)
        assert condition.limit == pytest.approx(limit)

    def test_several_are_joined_by_or(self) -> None:
        assert [one.metric for one in parse("ttft_p90>2s or error_rate>1% or queue>9")] == [
            "ttft_p90", "error_rate", "queue"]

    @pytest.mark.parametrize(("text", "place", "words"), [
        ("", "character 1 (its end)", "METRIC>VALUE"),
        ("fast>1s", "character 1 ('fast>1s')", "there is no metric fast"),
        ("ttft_p90=2s", "character 9 ('=2s')", "compare with > or <"),
        ("ttft_p90>2", "character 10 ('2')", "a time"),
        ("error_rate>1", "character 12 ('1')", "a percentage"),
        ("queue>1s", "character 7 ('1s')", "a number of requests"),
        ("ttft_p90>2s and queue>1", "character 13 ('and queue>1')", "join conditions with `or`"),
        ("ttft_p90>2s or ", "character 16 (its end)", "METRIC>VALUE"),
        ("queue>-1", "character 7 ('-1')", "never below 0"),
        ("ttft_p90>500s", "character 10 ('500s')", "above 120s"),
    ])
    def test_a_fault_is_told_with_its_place(self, text: str, place: str, words: str) -> None:
        with pytest.raises(Unreadable) as caught:
            parse(text)
        assert place in str(caught.value)
        assert words in str(caught.value)

    @given(st.text(max_size=40))
    def test_any_text_is_read_or_refused(self, text: str) -> None:
        with contextlib.suppress(Unreadable):
            assert parse(text)


class TestJudging:
    @pytest.mark.parametrize(("metric", "bounds"), [("ttft", TTFT_BOUNDS_S), ("itl", ITL_BOUNDS_S)])
    def test_a_time_is_judged_by_its_percentile(self, metric: str, bounds: tuple[float, ...]) -> None:
        slow = readings(**{metric: counted(bounds, 1.0, 100)})  # type: ignore[arg-type]
        assert is_true(f"{metric}_p90>600ms", slow)
        assert not is_true(f"{metric}_p90>1s", slow)

    def test_errors_are_judged_by_their_rate(self) -> None:
        assert is_true("error_rate>1%", readings(90, 10))
        assert not is_true("error_rate>10%", readings(90, 10))

    @pytest.mark.parametrize(("text", "is_met"), [
        ("queue>3", False), ("queue>=3", True), ("queue<3", False), ("queue<=3", True), ("queue>2", True)])
    def test_signs_mean_what_they_say(self, text: str, is_met: bool) -> None:
        assert is_true(text, readings(queue=3)) is is_met

    def test_the_first_that_is_true_is_told_with_its_value(self) -> None:
        found = judge(parse("queue>5 or headroom<10"), readings(queue=1, headroom=4))
        assert found.true == "headroom<10: it is 4"

    @pytest.mark.parametrize("metric", METRICS)
    def test_what_nobody_measured_is_unknown_and_never_true(self, metric: str) -> None:
        value = {"t": "0s", "i": "0s", "e": "0%"}.get(metric[0], "0")
        for sign in "<>":
            found = judge(parse(f"{metric}{sign}{value}"), readings())
            assert (found.true, found.unknown) == ("", (f"{metric}{sign}{value}",))

    @pytest.mark.parametrize("text", ["error_rate>1%", "ttft_p90>1ms", "itl_p90>1ms"])
    def test_a_few_requests_are_no_data(self, text: str) -> None:
        def seen(count: int) -> Readings:
            return readings(0, count, counted(TTFT_BOUNDS_S, 5.0, count), counted(ITL_BOUNDS_S, 1.0, count))

        assert not is_true(text, seen(MIN_REQUESTS - 1))
        assert is_true(text, seen(MIN_REQUESTS))

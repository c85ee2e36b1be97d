"""What probes say together: one refusal or two failures in a row are a loss, two good answers end it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_api.routing.watch import Change, Result, Watch

GOOD, FAILED, REFUSED, UNFAIR = Result.GOOD, Result.FAILED, Result.REFUSED, Result.UNFAIR
results = st.lists(st.sampled_from(Result), max_size=60)


def changes(*told: Result) -> list[Change | None]:
    """The changes of results that come in the order of their probes."""
    watch = Watch()
    return [watch.take(float(at), result) for at, result in enumerate(told)]


def test_good_answers_change_nothing() -> None:
    assert changes(GOOD, GOOD, GOOD) == [None, None, None]


@pytest.mark.parametrize("told", [[REFUSED], [FAILED, FAILED], [GOOD, REFUSED], [FAILED, GOOD, FAILED, FAILED],
                                  [FAILED, UNFAIR, FAILED]])
def test_one_refusal_or_two_failures_in_a_row_are_a_loss(told: list[Result]) -> None:
    assert changes(*told) == [None] * (len(told) - 1) + [Change.LOST]


@pytest.mark.parametrize("told", [[FAILED], [FAILED, GOOD, FAILED, GOOD, FAILED], [UNFAIR] * 10,
                                  [FAILED, UNFAIR, UNFAIR]])
def test_less_is_none(told: list[Result]) -> None:
    assert set(changes(*told)) == {None}


def test_a_loss_is_told_once() -> None:
    assert changes(REFUSED, REFUSED, FAILED, FAILED)[1:] == [None, None, None]


def test_two_good_answers_end_a_loss() -> None:
    assert changes(REFUSED, GOOD, GOOD) == [Change.LOST, None, Change.RECOVERED]


def test_the_good_answers_must_be_in_a_row() -> None:
    assert changes(REFUSED, GOOD, FAILED, GOOD, GOOD) == [Change.LOST, None, None, None, Change.RECOVERED]


def test_one_failure_after_a_recovery_is_no_loss() -> None:
    assert changes(REFUSED, GOOD, GOOD, FAILED) == [Change.LOST, None, Change.RECOVERED, None]


def test_a_failure_of_before_the_newest_good_answer_proves_nothing() -> None:
    watch = Watch()
    assert watch.take(2.0, GOOD) is None
    assert [watch.take(at_s, FAILED) for at_s in (0.5, 1.0, 1.5)] == [None] * 3
    assert not watch.is_lost


def test_a_good_answer_of_before_the_newest_one_does_not_count_twice() -> None:
    watch = Watch()
    watch.take(0.0, REFUSED)
    assert [watch.take(3.0, GOOD), watch.take(2.0, GOOD), watch.take(3.5, GOOD)] == [None, None, Change.RECOVERED]


class TestWitnesses:
    def lost_at(self, *sent_s: float) -> Watch:
        """A frontend whose probes failed that were sent at these times."""
        watch = Watch()
        for at_s in sent_s:
            watch.take(at_s, FAILED)
        return watch

    def good_at(self, sent_s: float) -> Watch:
        watch = Watch()
        watch.take(sent_s, GOOD)
        return watch

    def test_whoever_was_heard_since_is_one(self) -> None:
        assert self.good_at(10.1).is_witness_for(self.lost_at(10.0, 10.5))

    @pytest.mark.parametrize("sent_s", [9.9, 10.0])
    def test_whoever_was_heard_before_is_none(self, sent_s: float) -> None:
        assert not self.good_at(sent_s).is_witness_for(self.lost_at(10.0, 10.5))

    def test_whoever_was_never_heard_is_none(self) -> None:
        assert not Watch().is_witness_for(self.lost_at(10.0, 10.5))

    def test_nobody_is_his_own(self) -> None:
        watch = self.good_at(9.0)
        watch.take(10.0, FAILED)
        assert not watch.is_witness_for(watch)

    def test_whoever_refuses_says_so_himself(self) -> None:
        watch = Watch()
        watch.take(1.0, REFUSED)
        assert watch.was_refused
        watch.take(2.0, GOOD)
        assert not watch.was_refused


@given(results)
def test_losses_and_recoveries_take_turns(told: list[Result]) -> None:
    seen = [change for change in changes(*told) if change is not None]
    assert seen == [(Change.LOST, Change.RECOVERED)[at % 2] for at in range(len(seen))]


@given(results)
def test_a_frontend_whose_last_two_probes_were_good_is_not_lost(told: list[Result]) -> None:
    watch = Watch()
    for at, result in enumerate([*told, GOOD, GOOD]):
        watch.take(float(at), result)
    assert not watch.is_lost


@given(results)
def test_what_is_unfair_changes_nothing(told: list[Result]) -> None:
    fair = [result for result in told if result is not UNFAIR]
    seen = [change for result, change in zip(told, changes(*told), strict=True) if result is not UNFAIR]
    assert seen == changes(*fair)

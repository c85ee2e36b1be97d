"""Votes: only what an edge can swear to, and nothing from one that is cut off, stood still or was just woken."""

import asyncio
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from control_plane.contracts.clock import ManualClock
from control_plane.contracts.evidence import Vote, VoteVerdict
from edge_api.metrics import Metrics
from edge_api.quality.evidence import Evidence
from edge_api.quality.minutes import Minutes
from edge_api.routing.choose import Chooser
from edge_api.routing.health import FIRST_FALTER_S, MIN_ERRORS, WINDOW_S, Health
from edge_api.routing.probes import Prober
from edge_api.routing.votes import BREAKS, REFUSES, SILENT, Sight, cast_votes
from edge_api.routing.watch import Result, Watch
from edge_api.snapshot.holder import TableHolder
from tests.unit.edge_api.builders import MODEL, snapshot
from tests.unit.edge_api.routing.frontends import frontend
from tests.unit.edge_api.routing.test_probes import probing, until

GOOD, FAILED, REFUSED = Result.GOOD, Result.FAILED, Result.REFUSED
FRESH_S = 5.0


def watched(*results: tuple[float, Result]) -> Watch:
    """A watch after probes that were sent at these times."""
    watch = Watch()
    for sent_s, result in results:
        watch.take(sent_s, result)
    return watch


def votes(now_s: float, faltering: dict[str, float] | None = None, /, **places: Watch | list[Watch]) -> list[Vote]:
    sights = [Sight(name, watch) for name, watches in places.items()
              for watch in (watches if isinstance(watches, list) else [watches])]
    return cast_votes(sights, faltering or {}, now_s, FRESH_S)


def lost_to(now_s: float, **places: Watch | list[Watch]) -> list[str]:
    return [vote.datacenter_id for vote in votes(now_s, None, **places) if vote.verdict is VoteVerdict.LOST]


FINE = watched((11.0, GOOD))


def test_a_datacenter_that_serves_has_no_vote_against_it() -> None:
    assert votes(12.0, us=FINE, eu=FINE) == []


def test_one_that_refuses_is_lost_and_the_vote_says_so() -> None:
    assert votes(12.0, us=watched((10.0, REFUSED)), eu=FINE) == [
        Vote(datacenter_id="us", verdict=VoteVerdict.LOST, held_s=2.0, evidence=REFUSES)]


def test_one_that_is_silent_is_lost_since_its_second_failure() -> None:
    assert votes(12.0, us=watched((9.5, FAILED), (10.0, FAILED)), eu=FINE) == [
        Vote(datacenter_id="us", verdict=VoteVerdict.LOST, held_s=2.0, evidence=SILENT)]


def test_it_is_not_lost_while_one_of_its_frontends_is_there() -> None:
    assert lost_to(12.0, us=[watched((10.0, REFUSED)), FINE], eu=FINE) == []
    assert lost_to(12.0, us=[watched((10.0, REFUSED)), watched((10.5, REFUSED))], eu=FINE) == ["us"]


def test_an_edge_that_reaches_nobody_says_nothing() -> None:
    assert lost_to(12.0, us=watched((10.0, REFUSED)), eu=watched((10.0, REFUSED))) == []


def test_an_edge_with_one_datacenter_says_nothing() -> None:
    assert lost_to(12.0, us=watched((10.0, REFUSED))) == []


def test_a_frontend_of_the_same_datacenter_is_no_witness() -> None:
    assert lost_to(12.0, us=[watched((10.0, REFUSED)), watched((9.0, GOOD), (11.0, REFUSED))]) == []


def test_a_witness_must_have_answered_after_the_other_fell_silent() -> None:
    assert lost_to(12.0, us=watched((10.0, REFUSED)), eu=watched((9.9, GOOD))) == []


def test_what_was_seen_before_a_standstill_says_nothing_after_it() -> None:
    us, eu = watched((10.0, REFUSED)), watched((11.0, GOOD))
    assert lost_to(10.0 + FRESH_S, us=us, eu=eu) == ["us"]
    assert lost_to(10.1 + FRESH_S, us=us, eu=eu) == []


def test_an_old_witness_is_none() -> None:
    us = watched((10.0, REFUSED), (20.0, REFUSED))
    assert lost_to(20.0, us=us, eu=watched((11.0, GOOD))) == []


def test_requests_that_break_make_a_datacenter_falter() -> None:
    assert votes(12.0, {"us": 7.0}, us=FINE, eu=FINE) == [
        Vote(datacenter_id="us", verdict=VoteVerdict.FALTERING, held_s=5.0, evidence=BREAKS)]


def test_lost_outweighs_faltering() -> None:
    assert [vote.verdict for vote in votes(12.0, {"us": 7.0}, us=watched((10.0, REFUSED)), eu=FINE)] == [
        VoteVerdict.LOST]


@given(st.dictionaries(st.sampled_from(["us", "eu", "ap"]), st.lists(st.tuples(
    st.floats(0, 20), st.sampled_from(Result)), max_size=20)))
def test_who_is_called_lost_never_leaves_an_edge_without_a_witness(told: dict[str, list[tuple[float, Result]]]) -> None:
    places = {name: watched(*sorted(results, key=lambda one: one[0])) for name, results in told.items()}
    lost = lost_to(20.0, **places)
    assert len(lost) < max(len(places), 1)
    assert all(places[name].is_lost for name in lost)


class TestOfAnEdge:
    async def test_a_frontend_that_goes_away_is_voted_against_and_its_return_ends_that(self) -> None:
        async with frontend() as west, frontend() as east, probing(us=west.port, eu=east.port) as world:
            evidence = told(world.prober, world.health, world.holder)
            await until(lambda: west.asked and east.asked)
            assert evidence.votes() == []
            await west.stop()
            assert await until(evidence.votes) < 2.0
            (vote,) = evidence.votes()
            assert (vote.datacenter_id, vote.verdict, vote.evidence) == ("us", VoteVerdict.LOST, REFUSES)
            await west.start()
            await until(lambda: not evidence.votes())

    async def test_an_edge_that_stood_still_says_nothing_until_it_has_looked_again(self) -> None:
        async with frontend() as east, probing(us=1, eu=east.port) as world:
            evidence = told(world.prober, world.health, world.holder)
            await until(evidence.votes)
            time.sleep(world.prober.fresh_s + 0.5)  # noqa: ASYNC251 - nothing of this process runs, as after SIGSTOP
            assert evidence.votes() == []
            await asyncio.sleep(0)
            await until(evidence.votes)


def told(prober: Prober, health: Health, holder: TableHolder) -> Evidence:
    return Evidence(health.clock, holder, health, prober, Minutes(health.clock), dict, dict)


def test_an_edge_votes_by_its_requests_for_as_long_as_they_break() -> None:
    clock = ManualClock()
    health, holder = Health(clock), TableHolder()
    holder.take(snapshot(weights={"us": 100, "eu": 100}))
    evidence = told(Prober(holder, health, Metrics(), lambda _: None), health, holder)
    assert holder.current is not None
    for _ in range(MIN_ERRORS):
        Chooser(health, Metrics()).erred(holder.current.models[MODEL].routes[0])
    clock.advance(3.0)
    (vote,) = evidence.votes()
    assert (vote.datacenter_id, vote.verdict) == ("us", VoteVerdict.FALTERING)
    assert vote.held_s == pytest.approx(3.0)
    clock.advance(FIRST_FALTER_S + WINDOW_S)
    assert evidence.votes() == []

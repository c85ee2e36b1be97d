"""When votes make a failover: never a minority, never one region of several, never while it must stand still."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from control_plane.evidence.quorum import Finding, Place, Rules, Voter, decide

NOW_S = 1_000_000.0
RULES = Rules()
PLACES = [Place("us", True), Place("eu", True), Place("ap", True)]


def voter(name: str, region: str = "america", held_s: float | None = 31.0, silent_s: float = 1.0,
          against: str = "us") -> Voter:
    return Voter(name, region, NOW_S - silent_s, {} if held_s is None else {against: NOW_S - held_s})


def verdict(voters: list[Voter], places: list[Place] | None = None, standstill: str = "",
            rules: Rules = RULES) -> Finding:
    (finding,) = decide(voters, places or PLACES, NOW_S, rules, standstill)
    return finding


def failed_over(voters: list[Voter], **asked: object) -> list[str]:
    return [one.datacenter_id for one in decide(voters, PLACES, NOW_S, RULES, **asked) if not one.blocked]  # type: ignore[arg-type]


def two_regions(held_s: float = 31.0) -> list[Voter]:
    return [voter("a", "america", held_s), voter("b", "europe", held_s), voter("c", "europe", None)]


def test_two_thirds_of_the_edges_in_two_regions_for_long_enough_make_a_failover() -> None:
    assert verdict(two_regions()) == Finding("us", 2, 3, 2, 2, 31.0, True, "")


def test_nobody_finds_anything_where_nobody_votes() -> None:
    assert decide([voter("a", held_s=None)], PLACES, NOW_S, RULES) == []


def test_the_only_edge_decides_alone() -> None:
    assert verdict([voter("a")]).blocked == ""


def test_less_than_two_thirds_do_not() -> None:
    voters = [voter("a", "america"), voter("b", "europe"), voter("c", "europe", None), voter("d", "america", None)]
    assert verdict(voters).blocked == "3 of 4 edges have to say so"


def test_the_votes_must_have_held_for_long_enough() -> None:
    assert verdict(two_regions(held_s=29.9)).blocked == "they have to say so for 30 s"


def test_the_youngest_vote_that_is_needed_counts() -> None:
    voters = [voter("a", "america", 900.0), voter("b", "europe", 12.0), voter("c", "europe", None)]
    assert (verdict(voters).held_s, verdict(voters).blocked) == (12.0, "they have to say so for 30 s")


def test_a_vote_more_than_is_needed_may_be_young() -> None:
    voters = [voter("a", "america", 60.0), voter("b", "europe", 40.0), voter("c", "europe", 1.0)]
    assert (verdict(voters).held_s, verdict(voters).blocked) == (40.0, "")


def test_one_region_of_two_does_not() -> None:
    voters = [voter("a"), voter("b"), voter("c"), voter("d", "europe", None)]
    assert "edges in 2 regions" in verdict(voters).blocked


def test_a_second_region_must_have_said_so_for_as_long() -> None:
    voters = [voter("a"), voter("b"), voter("c", "europe", 1.0)]
    assert "edges in 2 regions" in verdict(voters).blocked


def test_a_region_that_is_cut_off_is_still_a_region() -> None:
    voters = [*(voter(f"a{n}") for n in range(9)), voter("b", "europe", None, silent_s=3_600.0)]
    assert "edges in 2 regions" in verdict(voters).blocked


def test_an_edge_that_fell_silent_does_not_count() -> None:
    voters = [voter("a", "america"), voter("b", "europe", silent_s=15.1), voter("c", "europe", None)]
    assert (verdict(voters).edges, verdict(voters).of) == (1, 2)


def test_too_many_silent_edges_and_nothing_is_decided() -> None:
    voters = [voter("a", "america"), voter("b", "europe"), voter("c", "europe", None, silent_s=60.0)]
    assert verdict(voters).blocked == "only 2 of 3 edges are heard from"


def test_edges_that_are_gone_for_good_are_not_missed() -> None:
    voters = [voter("a", "america"), voter("b", "europe"), voter("c", "europe", None, silent_s=901.0)]
    assert verdict(voters).blocked == ""


def test_what_takes_no_requests_is_left_as_it_is() -> None:
    assert verdict(two_regions(), [Place("us", False)]).blocked == "it takes no requests anyway"


def test_an_operation_that_has_the_datacenter_goes_on_undisturbed() -> None:
    assert verdict(two_regions(), [Place("us", True, under_way="drain op_1")]).blocked == "drain op_1 is under way"


@pytest.mark.parametrize(("ended_s", "again"), [(599.0, False), (601.0, True)])
def test_a_datacenter_that_was_just_brought_back_is_not_taken_again(ended_s: float, again: bool) -> None:
    finding = verdict(two_regions(), [Place("us", True, moved_at_s=NOW_S - ended_s)])
    assert (finding.blocked == "") is again


def test_nothing_begins_while_automation_stands_still() -> None:
    assert verdict(two_regions(), standstill="automation is frozen").blocked == "automation is frozen"


@pytest.mark.parametrize(("voters", "place", "standstill", "wanted"), [
    (two_regions(), Place("us", True), "automation is frozen", True),
    (two_regions(), Place("us", True, moved_at_s=NOW_S - 5), "", True),
    (two_regions(29.0), Place("us", True), "", False),
    ([voter("a"), voter("b", held_s=None)], Place("us", True), "", False),
    (two_regions(), Place("us", False), "", False),
    (two_regions(), Place("us", True, under_way="failover op_1"), "", False),
])
def test_a_failover_that_is_wanted_and_kept_from_happening_is_told_from_one_that_nobody_wants(
        voters: list[Voter], place: Place, standstill: str, wanted: bool) -> None:
    finding = verdict(voters, [place], standstill)
    assert (finding.wanted, bool(finding.blocked)) == (wanted, True)


def test_one_datacenter_at_a_time_and_the_longest_lost_first() -> None:
    voters = [Voter(name, region, NOW_S, {"us": NOW_S - 40, "eu": NOW_S - 50})
              for name, region in (("a", "america"), ("b", "europe"))]
    assert [(one.datacenter_id, one.blocked) for one in decide(voters, PLACES, NOW_S, RULES)] == [
        ("us", "one failover at a time: eu goes first"), ("eu", "")]


voters_any = st.lists(st.builds(
    Voter, id=st.uuids().map(str), region=st.sampled_from(["america", "europe", "asia"]),
    seen_at_s=st.floats(NOW_S - 2_000, NOW_S),
    lost=st.dictionaries(st.sampled_from(["us", "eu", "ap"]), st.floats(NOW_S - 100, NOW_S))), max_size=12)


def live(voters: list[Voter]) -> list[Voter]:
    return [one for one in voters if NOW_S - one.seen_at_s <= RULES.silent_after_s]


def sure(voters: list[Voter], place: str) -> list[Voter]:
    """Live edges that have said it for long enough."""
    return [one for one in live(voters) if NOW_S - one.lost.get(place, NOW_S) >= RULES.after_s]


@given(voters_any)
def test_a_minority_never_makes_a_failover(voters: list[Voter]) -> None:
    for place in failed_over(voters):
        assert 3 * len(sure(voters, place)) >= 2 * len(live(voters)) > 0


@given(voters_any)
def test_one_region_of_several_never_makes_a_failover(voters: list[Voter]) -> None:
    regions = {one.region for one in voters}
    for place in failed_over(voters):
        assert len({one.region for one in sure(voters, place)}) >= min(2, len(regions))


@given(voters_any)
def test_never_two_at_once_and_never_any_while_it_must_stand_still(voters: list[Voter]) -> None:
    assert len(failed_over(voters)) <= 1
    assert failed_over(voters, standstill="automation is frozen") == []


@given(voters_any, st.integers(0, 11))
def test_an_edge_that_restarts_never_makes_one_happen(voters: list[Voter], at: int) -> None:
    """Its votes begin anew; it may only keep a failover from happening."""
    if at >= len(voters):
        return
    again = [*voters[:at], replace(voters[at], seen_at_s=NOW_S, lost={}), *voters[at + 1:]]
    was_live = voters[at] in live(voters)
    if was_live:
        assert set(failed_over(again)) <= {one.datacenter_id for one in decide(voters, PLACES, NOW_S, RULES)
                                           if not one.blocked or "first" in one.blocked}


@given(voters_any, st.lists(st.integers(0, 11), max_size=6))
def test_edges_whose_votes_flap_never_make_one_happen(voters: list[Voter], flapping: list[int]) -> None:
    """A vote that came back counts from then on only."""
    young = [replace(one, lost=dict.fromkeys(one.lost, NOW_S - 5)) if at in flapping else one
             for at, one in enumerate(voters)]
    for place in failed_over(young):
        steady = [one for at, one in enumerate(young) if at not in flapping and one in sure(young, place)]
        assert 3 * len(steady) >= 2 * len(live(young))

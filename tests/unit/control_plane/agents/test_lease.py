"""The rules of a fleet's lease."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from control_plane.agents.lease import Claim, Lease, LeaseRefusal, decide

HELD = Lease("agent-1", "boot-1", epoch=3, previous_boot_id="boot-0", live=True)
LAPSED = replace(HELD, live=False)


def granted(held: Lease | None, claim: Claim) -> Lease:
    after = decide(held, claim)
    assert isinstance(after, Lease)
    return after


def test_a_free_lease_is_granted_at_epoch_one() -> None:
    assert granted(None, Claim("agent-1", "boot-1", None)) == Lease("agent-1", "boot-1", 1, None, live=True)


def test_the_holder_renews_at_its_epoch() -> None:
    assert granted(HELD, Claim("agent-1", "boot-1", 3)) == HELD


def test_the_holder_that_lost_the_answer_gets_the_same_epoch() -> None:
    assert granted(HELD, Claim("agent-1", "boot-1", None)).epoch == 3


def test_the_holder_renews_after_a_lapse_that_nobody_used() -> None:
    assert granted(LAPSED, Claim("agent-1", "boot-1", 3)) == HELD


def test_the_same_agent_with_a_new_boot_takes_over_at_once() -> None:
    after = granted(HELD, Claim("agent-1", "boot-2", None))
    assert (after.boot_id, after.epoch, after.previous_boot_id) == ("boot-2", 4, "boot-1")


def test_the_boot_that_was_replaced_does_not_come_back() -> None:
    assert decide(HELD, Claim("agent-1", "boot-0", None)) is LeaseRefusal.SUPERSEDED


def test_the_boot_that_was_replaced_is_superseded_with_its_old_epoch_too() -> None:
    assert decide(HELD, Claim("agent-1", "boot-0", 2)) is LeaseRefusal.SUPERSEDED


def test_another_agent_waits_while_the_lease_lives() -> None:
    assert decide(HELD, Claim("agent-2", "boot-9", None)) is LeaseRefusal.SUPERSEDED


def test_another_agent_takes_a_lapsed_lease_with_the_next_epoch() -> None:
    assert granted(LAPSED, Claim("agent-2", "boot-9", None)).epoch == 4


def test_who_returns_to_a_lapsed_lease_with_an_old_epoch_must_ask_anew() -> None:
    assert decide(LAPSED, Claim("agent-2", "boot-9", 2)) is LeaseRefusal.STALE_EPOCH


@pytest.mark.parametrize("epoch", [0, 2, 4, 99])
def test_the_holder_with_another_epoch_is_stale(epoch: int) -> None:
    assert decide(HELD, Claim("agent-1", "boot-1", epoch)) is LeaseRefusal.STALE_EPOCH


def test_an_epoch_for_a_lease_that_never_was_is_stale() -> None:
    assert decide(None, Claim("agent-1", "boot-1", 7)) is LeaseRefusal.STALE_EPOCH


claims = st.builds(
    Claim, st.sampled_from(["agent-1", "agent-2"]), st.sampled_from(["a", "b", "c"]), st.none() | st.integers(0, 5))


@given(st.lists(st.tuples(claims, st.booleans()), max_size=40))
def test_whatever_is_claimed_the_epoch_never_falls_and_names_one_boot(steps: list[tuple[Claim, bool]]) -> None:
    held: Lease | None = None
    holder_of: dict[int, tuple[str, str]] = {}
    for claim, lapses in steps:
        if held is not None and lapses:
            held = replace(held, live=False)
        after = decide(held, claim)
        if isinstance(after, LeaseRefusal):
            continue
        assert after.epoch >= (held.epoch if held else 0)
        assert after.live
        assert holder_of.setdefault(after.epoch, (after.identity, after.boot_id)) == (claim.identity, claim.boot_id)
        held = after

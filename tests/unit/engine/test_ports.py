"""Worker ports: disjoint, stable, and taken from former workers only when nothing else is left."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.ports import WORKER_PORTS, OutOfPorts, assign

NAMES = st.lists(st.sampled_from([f"w-{at}" for at in range(120)]), unique=True, max_size=WORKER_PORTS)


def test_ports_start_after_the_shared_ones() -> None:
    assert assign(["a", "b"], {}, 9000) == {"a": 9010, "b": 9011}


def test_a_worker_keeps_its_port_when_another_comes_before_it() -> None:
    known = assign(["m"], {}, 9000)
    assert assign(["a", "m", "z"], known, 9000)["m"] == known["m"]


def test_a_worker_that_comes_back_gets_its_old_port() -> None:
    known = assign(["a", "b", "c"], {}, 9000)
    without = assign(["a"], known, 9000)
    assert assign(["a", "b", "c"], without, 9000) == known


def test_a_former_workers_port_is_free_for_others_last() -> None:
    known = assign(["old"], {}, 9000)
    assert assign(["new"], known, 9000)["new"] == 9011


def test_the_longest_unused_port_is_given_away_first() -> None:
    known = assign([f"old-{at}" for at in range(WORKER_PORTS)], {}, 9000)
    assigned = assign(["new"], known, 9000)
    assert assigned["new"] == known["old-0"]
    assert "old-0" not in assigned


def test_a_block_above_what_a_worker_can_listen_on_is_refused() -> None:
    assert assign(["a"], {}, 32_668) == {"a": 32_678}
    with pytest.raises(OutOfPorts, match="32669"):
        assign(["a"], {}, 32_669)
    assert assign([], {}, 32_669) == {}


def test_ports_of_another_block_are_forgotten() -> None:
    assert assign(["a"], {"a": 8010, "b": 8011}, 9000) == {"a": 9010}


def test_more_workers_than_ports_are_refused() -> None:
    with pytest.raises(OutOfPorts, match="91 workers and ports for 90"):
        assign([f"w-{at}" for at in range(WORKER_PORTS + 1)], {}, 9000)


@given(rounds=st.lists(NAMES, min_size=1, max_size=8))
def test_no_two_workers_ever_share_a_port(rounds: list[list[str]]) -> None:
    known: dict[str, int] = {}
    for names in rounds:
        assigned = assign(names, known, 9000)
        assert len(set(assigned.values())) == len(assigned)
        assert set(names) <= set(assigned)
        assert all(9010 <= port < 9100 for port in assigned.values())
        assert all(assigned[name] == known[name] for name in names if name in known)
        known = assigned

"""What the store keeps, and what it refuses."""

import contextlib
import sqlite3
import stat
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from control_plane.contracts.agent_sync import CommandState
from fleet_agent.core import AgentState, Standing, TrackedCommand
from fleet_agent.store import SCHEMA, Accepted, Fenced, ProcessRow, Store, WrongStore
from tests.unit.fleet_agent import examples

STATE = AgentState(
    epoch=3, generation=5, desired=examples.desired(5), last_seq=7,
    commands=(TrackedCommand(examples.drain(7, 3), 1_060.5, CommandState.SUCCEEDED, "idle"),
              TrackedCommand(examples.drain(6, 3), 1_000.0, CommandState.ACCEPTED)))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store(tmp_path / "agent.sqlite")
    yield store
    store.close()


def reopened(store: Store, tmp_path: Path) -> Store:
    store.close()
    return Store(tmp_path / "agent.sqlite")


def test_a_new_store_knows_nothing(store: Store) -> None:
    assert store.load() == AgentState()
    assert (store.accepted(), store.retired(), store.was_ready(), store.processes()) == (None, [], set(), [])


def test_only_this_user_may_read_the_file(store: Store, tmp_path: Path) -> None:
    assert stat.S_IMODE((tmp_path / "agent.sqlite").stat().st_mode) & 0o077 == 0


def test_the_state_survives_a_restart_but_for_the_standing(store: Store, tmp_path: Path) -> None:
    store.save(replace(STATE, standing=Standing.LEADING))
    with_restart = reopened(store, tmp_path)
    assert with_restart.load() == STATE
    with_restart.close()


def test_a_write_is_there_for_another_process_at_once(store: Store, tmp_path: Path) -> None:
    store.save(STATE)
    with sqlite3.connect(tmp_path / "agent.sqlite") as other:
        assert other.execute("SELECT epoch, generation, last_seq FROM fence").fetchone() == (3, 5, 7)
    other.close()


@pytest.mark.parametrize("lower", [{"epoch": 2}, {"generation": 4}, {"last_seq": 6}])
def test_a_lower_number_is_refused_and_nothing_of_the_write_stays(store: Store, lower: dict[str, int]) -> None:
    store.save(STATE)
    with pytest.raises(Fenced):
        store.save(replace(STATE, **{"epoch": 9, "generation": 9, "last_seq": 9, "commands": ()} | lower))  # type: ignore[arg-type]
    assert store.load() == STATE


def test_the_same_numbers_may_be_saved_again(store: Store) -> None:
    store.save(STATE)
    store.save(replace(STATE, commands=()))
    assert store.load().commands == ()


def test_the_accepted_plan_survives_a_restart(store: Store, tmp_path: Path) -> None:
    accepted = Accepted(examples.desired(5), examples.plan(examples.process("nats")))
    store.accept(accepted)
    again = reopened(store, tmp_path)
    assert again.accepted() == accepted
    again.close()


def test_a_plan_of_an_older_generation_is_refused(store: Store) -> None:
    store.accept(Accepted(examples.desired(5), examples.plan()))
    with pytest.raises(Fenced):
        store.accept(Accepted(examples.desired(4), examples.plan()))
    accepted = store.accepted()
    assert accepted is not None
    assert accepted.desired.generation == 5


def accept(store: Store, generation: int, *names: str) -> None:
    deployments = [examples.deployment(name) for name in names]
    state = examples.DesiredState(generation=generation, deployments=deployments)
    store.accept(Accepted(state, examples.plan()))


def test_a_removed_deployment_is_remembered_as_retired(store: Store) -> None:
    accept(store, 1, "a", "b")
    accept(store, 2, "b")
    assert store.retired() == ["a"]


def test_a_plan_that_removes_nothing_keeps_the_retired(store: Store) -> None:
    accept(store, 1, "a", "b")
    accept(store, 2, "b")
    accept(store, 3, "b", "c")
    assert store.retired() == ["a"]


def test_only_the_last_removal_is_remembered(store: Store) -> None:
    accept(store, 1, "a", "b")
    accept(store, 2, "b")
    accept(store, 3)
    assert store.retired() == ["b"]


def test_a_deployment_that_comes_back_is_not_retired(store: Store) -> None:
    accept(store, 1, "a")
    accept(store, 2)
    accept(store, 3, "a")
    assert store.retired() == []


def test_a_deployment_that_was_ready_is_remembered_until_it_is_removed(store: Store) -> None:
    accept(store, 1, "a", "b")
    store.remember_ready(["a", "b"])
    store.remember_ready(["a"])
    accept(store, 2, "b")
    assert store.was_ready() == {"b"}


def test_readiness_is_forgotten_on_purpose(store: Store) -> None:
    store.remember_ready(["a"])
    store.forget_ready()
    assert store.was_ready() == set()


def test_a_process_is_known_before_and_after_it_has_a_pid(store: Store, tmp_path: Path) -> None:
    about_to_start = ProcessRow(examples.process("nats"), "token-1")
    store.put_process(about_to_start)
    assert store.processes() == [about_to_start]
    store.put_process(replace(about_to_start, pid=4_711, started="boot:99"))
    again = reopened(store, tmp_path)
    assert again.processes() == [replace(about_to_start, pid=4_711, started="boot:99")]
    again.close()


def test_a_deleted_process_is_forgotten(store: Store) -> None:
    store.put_process(ProcessRow(examples.process("nats"), "token-1"))
    store.put_process(ProcessRow(examples.process("frontend"), "token-2"))
    store.delete_process("nats")
    assert [row.spec.name for row in store.processes()] == ["frontend"]


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "agent.sqlite").write_bytes(b"this is no database, and it is longer than a header" * 100)
    with pytest.raises(WrongStore, match=r"agent\.sqlite cannot be read"):
        Store(tmp_path / "agent.sqlite")


def test_a_file_of_a_newer_release_is_refused(store: Store, tmp_path: Path) -> None:
    store.close()
    with sqlite3.connect(tmp_path / "agent.sqlite") as other:
        other.execute("PRAGMA user_version = 99")
    other.close()
    with pytest.raises(WrongStore, match="has format 99"):
        Store(tmp_path / "agent.sqlite")


def test_a_higher_lineage_may_lower_every_other_number(store: Store, tmp_path: Path) -> None:
    store.save(AgentState(lineage=1, epoch=7, generation=9, last_seq=4))
    store.save(AgentState(lineage=2, epoch=1, generation=0, last_seq=0))
    assert reopened(store, tmp_path).load().lineage == 2


def test_a_lower_lineage_is_refused_whatever_its_numbers(store: Store) -> None:
    store.save(AgentState(lineage=2, epoch=1))
    with pytest.raises(Fenced):
        store.save(AgentState(lineage=1, epoch=99, generation=99, last_seq=99))


def test_in_a_new_lineage_a_plan_of_a_lower_generation_is_accepted(store: Store) -> None:
    store.save(AgentState(lineage=1, epoch=1, generation=9))
    store.accept(Accepted(examples.desired(9), examples.plan(examples.process("frontend"))))
    store.save(AgentState(lineage=2, epoch=1, generation=2))
    store.accept(Accepted(examples.desired(2), examples.plan(examples.process("frontend"))))
    accepted = store.accepted()
    assert accepted is not None
    assert accepted.desired.generation == 2


def test_a_file_of_the_first_format_is_brought_up_to_date(tmp_path: Path) -> None:
    path = tmp_path / "old.sqlite"
    first = SCHEMA.replace("    desired TEXT,\n    lineage INTEGER NOT NULL DEFAULT 1\n", "    desired TEXT\n")
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.executescript(f"{first} UPDATE fence SET epoch = 5; PRAGMA user_version = 1;")  # noqa: S608
    store = Store(path)
    try:
        assert (store.load().lineage, store.load().epoch) == (1, 5)
        store.save(AgentState(lineage=2, epoch=1))
    finally:
        store.close()

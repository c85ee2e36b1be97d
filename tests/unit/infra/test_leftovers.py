"""Which processes of a table belong to a stack."""

import json
import os
import stat
from pathlib import Path

import psutil

from infra.local.leftovers import ProcessFacts, Record, leftovers, process_table

STATE = Path("/srv/state")


def facts(pid: int, *marks: str, started_s: float = 100.0) -> ProcessFacts:
    return ProcessFacts(pid, started_s, marks)


def test_recorded_processes_that_still_run_come_in_reverse_order_of_their_start() -> None:
    table = [facts(1), facts(2), facts(3)]
    assert leftovers(table, [facts(1), facts(2), facts(3)], STATE) == [3, 2, 1]


def test_a_number_that_was_used_again_is_nobodys() -> None:
    assert leftovers([facts(7, started_s=200.0)], [facts(7, started_s=100.0)], STATE) == []


def test_a_recorded_process_that_ended_is_not_looked_for() -> None:
    assert leftovers([facts(1)], [facts(2)], STATE) == []


def test_a_process_with_a_directory_inside_the_state_is_found_without_a_record() -> None:
    table = [facts(5, "/srv/state/datacenters/us-east-1/engine"), facts(6, "/srv/state")]
    assert leftovers(table, [], STATE) == [5, 6]


def test_the_neighbour_whose_path_begins_alike_is_left_alone() -> None:
    assert leftovers([facts(5, "/srv/state-2/edges/edge-0"), facts(6, "/srv"), facts(7)], [], STATE) == []


def test_nobody_is_named_twice() -> None:
    assert leftovers([facts(5, "/srv/state/x")], [facts(5)], STATE) == [5]


def test_the_record_survives_us_and_is_private(tmp_path: Path) -> None:
    path = tmp_path / "processes.json"
    Record(path).add("edge-0", os.getpid())
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert Record(path).previous() == [facts(os.getpid(), started_s=psutil.Process().create_time())]


def test_a_process_that_ended_is_forgotten(tmp_path: Path) -> None:
    record = Record(tmp_path / "processes.json")
    record.add("edge-0", os.getpid())
    record.remove("edge-0")
    assert record.previous() == []


def test_a_damaged_record_says_nothing(tmp_path: Path) -> None:
    path = tmp_path / "processes.json"
    for content in ("", "[1]", '{"a": 1}', json.dumps([{"pid": "x", "started_s": 1}])):
        path.write_text(content)
        assert Record(path).previous() == []


def test_we_and_those_who_started_us_are_never_in_the_table() -> None:
    pids = {row.pid for row in process_table()}
    assert os.getpid() not in pids
    assert os.getppid() not in pids

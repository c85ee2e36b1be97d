"""A history outlives whoever wrote it, and is read as far as it was written."""

from pathlib import Path

from tests.chaos import history
from tests.chaos.history import Fault, Held, Journal, Moved
from tests.chaos.test_checker import one_try


def test_what_was_written_is_read_in_order_and_by_kind(tmp_path: Path) -> None:
    entries = [one_try(1), Held(2, 1.0), Fault("kill", "edge 1", 2.0), Moved("drain", "us", 1.0, 2.0, "succeeded"),
               one_try(3)]
    with Journal(tmp_path / "a") as journal:
        for entry in entries:
            journal.write(entry)
    found = history.read([tmp_path / "a"])
    assert found.tries == [one_try(1), one_try(3)]
    assert (found.held, found.faults, found.moves) == ([entries[1]], [entries[2]], [entries[3]])


def test_several_files_are_one_history_and_a_missing_one_says_nothing(tmp_path: Path) -> None:
    for name, number in (("a", 1), ("b", 2)):
        with Journal(tmp_path / name) as journal:
            journal.write(one_try(number))
    found = history.read([tmp_path / "a", tmp_path / "missing", tmp_path / "b"])
    assert [one.number for one in found.tries] == [1, 2]


def test_a_line_that_was_cut_off_is_no_line(tmp_path: Path) -> None:
    with Journal(tmp_path / "a") as journal:
        journal.write(one_try(1))
    with (tmp_path / "a").open("ab") as file:
        file.write(b'{"type":"try","numb')
    assert [one.number for one in history.read([tmp_path / "a"]).tries] == [1]


def test_a_journal_goes_on_where_an_earlier_one_ended(tmp_path: Path) -> None:
    for number in (1, 2):
        with Journal(tmp_path / "a") as journal:
            journal.write(one_try(number))
    assert len(history.read([tmp_path / "a"]).tries) == 2


def test_the_rate_is_that_of_the_last_load(tmp_path: Path) -> None:
    with Journal(tmp_path / "a") as journal:
        for number in range(3):
            journal.write(one_try(number, began_s=10.0 * number))
        for number in range(11):
            journal.write(one_try(number, load=1, began_s=100 + number / 10))
    assert round(history.read([tmp_path / "a"]).rate_per_s(), 3) == 10.0
    assert history.read([]).rate_per_s() == 0.0

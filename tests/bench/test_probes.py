"""The parts of the bench `probes`: the program is run as it is, its verdicts are read and put side by side."""

from pathlib import Path

import pytest

from tests.bench.edge_relays import EDGE, Relay
from tests.bench.harness import benches
from tests.bench.probes import figures, probed, table

PROGRAM = '''
import json, sys
asked = dict(zip(sys.argv[1::2], sys.argv[2::2]))
with open(asked["--out"], "w") as out:
    rows = {"a": ["PASS", asked["--url"]], "b": ["NOTE", asked["--key"]]}
    out.write(json.dumps({"name": asked["--name"], "rows": rows}))
'''
GOOD = {"a": ("PASS", "fine"), "b": ("NOTE", "so")}
BAD = {"a": ("FAIL", "broke"), "b": ("PASS", "so")}


def test_it_is_a_bench_with_an_option() -> None:
    assert [bench.options for bench in benches() if bench.name == "probes"] == [("--all",)]


def test_the_program_gets_address_and_key_and_its_verdicts_are_read(tmp_path: Path) -> None:
    (tmp_path / "probe.py").write_text(PROGRAM)
    rows = probed(Relay(EDGE, 1, 7, "secret"), tmp_path, 9, tmp_path / "out.jsonl")
    assert rows == {"a": ("PASS", "http://127.0.0.1:7/v1"), "b": ("NOTE", "secret")}


def test_a_program_that_fails_is_told_with_its_words(tmp_path: Path) -> None:
    (tmp_path / "probe.py").write_text("import sys; sys.exit('no such thing')")
    with pytest.raises(RuntimeError, match="no such thing"):
        probed(Relay(EDGE, 1, 7, ""), tmp_path, 9, tmp_path / "out.jsonl")


def test_a_table_has_a_line_for_each_probe_and_a_column_for_each_relay() -> None:
    head, first, second = table({"edge": GOOD, "nginx": BAD}).splitlines()
    assert head.split()[:3] == ["probe", "edge", "nginx"]
    assert first.split() == ["a", "PASS", "FAIL", "fine"]
    assert second.split() == ["b", "NOTE", "PASS", "so"]


def test_what_one_relay_was_not_asked_is_a_dash() -> None:
    assert table({"edge": GOOD, "nginx": {}}).splitlines()[1].split() == ["a", "PASS", "-", "fine"]


def test_figures_count_verdicts_and_name_what_failed() -> None:
    assert figures(GOOD) == {"passed": 1, "failed": 0, "noted": 1, "which_failed": "", "within": True}
    assert figures(BAD) == {"passed": 1, "failed": 1, "noted": 0, "which_failed": "a", "within": False}

"""Logs of children, and programs that do not exist."""

from pathlib import Path

import pytest

from infra.local import child
from infra.local.child import ProcessSpec, log_tail, rotate
from infra.local.errors import StackRefused


def test_the_last_line_of_a_log_is_told_with_its_place(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_text("first\nValueError: no\n\n")
    assert log_tail(log) == f"ValueError: no (its log: {log})"


def test_only_the_end_of_a_large_log_is_read(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_bytes(b"x" * 100_000 + b"\nlast\xff")
    assert log_tail(log).startswith("last")


def test_a_log_that_does_not_exist_says_so(tmp_path: Path) -> None:
    assert log_tail(tmp_path / "none").startswith("nothing was logged")


def test_a_small_log_goes_on(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_text("kept")
    rotate(log)
    assert log.read_text() == "kept"


def test_a_large_log_is_put_aside_and_one_older_file_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child, "LOG_BYTES_MAX", 3)
    log = tmp_path / "a.log"
    for content in ("older", "newer"):
        log.write_text(content)
        rotate(log)
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("a.log.1", "newer")]


def test_a_program_that_does_not_exist_is_one_line(tmp_path: Path) -> None:
    spec = ProcessSpec(name="edge-0", argv=(str(tmp_path / "none"),), env={}, log_path=tmp_path / "log")
    with pytest.raises(StackRefused, match="edge-0 cannot be started: No such file"):
        child.start(spec)

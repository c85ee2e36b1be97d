"""What a process logs: one JSON object a line, whoever says it, and never a secret."""

import json
import subprocess
import sys
from typing import Any

import pytest

from control_plane.contracts.ids import new_secret

PREPARE = """
import logging, threading, warnings, structlog
from control_plane.contracts import logs
logs.configure("x")
"""


def logged(code: str) -> list[dict[str, Any]]:
    """What a process of its own writes that runs `code` after `configure`."""
    done = subprocess.run([sys.executable, "-c", PREPARE + code], capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stderr.splitlines()]


def test_our_own_lines_name_event_process_level_and_time() -> None:
    (line,) = logged("structlog.get_logger().info('something', count=3)")
    assert (line["event"], line["process"], line["level"], line["count"]) == ("something", "x", "info", 3)
    assert line["timestamp"].endswith("Z")


def test_a_librarys_lines_are_structured_too() -> None:
    (line,) = logged("logging.getLogger('celery.worker').error('cannot reach %s', 'it')")
    assert (line["event"], line["process"], line["level"], line["logger"]) == (
        "cannot reach it", "x", "error", "celery.worker")


def test_a_librarys_failure_is_one_line_with_its_traceback() -> None:
    (line,) = logged("try:\n    1 / 0\nexcept ZeroDivisionError:\n    logging.getLogger('a').exception('failed')")
    assert line["event"] == "failed"
    assert "ZeroDivisionError" in line["exception"]


def test_a_warning_is_a_line_like_any_other() -> None:
    (line,) = logged("warnings.warn('old')")
    assert (line["level"], line["logger"]) == ("warning", "py.warnings")


def test_other_threads_name_the_process_too() -> None:
    (line,) = logged(
        "thread = threading.Thread(target=lambda: structlog.get_logger().info('here')); thread.start(); thread.join()")
    assert line["process"] == "x"


@pytest.mark.parametrize("kind", ["sk_meridian_local", "oper_meridian_local", "enrol_meridian_local"])
@pytest.mark.parametrize("say", [
    "structlog.get_logger().error('refused', value={!r})", "logging.getLogger('lib').error('refused %s', {!r})"])
def test_a_secret_is_cut_out_of_whatever_is_said(kind: str, say: str) -> None:
    secret = new_secret(kind)
    (line,) = logged(say.format(secret))
    assert secret not in json.dumps(line)
    assert "_meridian_[redacted]" in json.dumps(line)

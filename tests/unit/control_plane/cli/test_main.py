"""The command as a process: exit codes, pipes, terminals, and what each process command carries."""

import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.unit.control_plane.cli.conftest import Meridian
from tests.unit.control_plane.cli.servers import OperatorServer

MAIN = [sys.executable, "-W", "error", "-c", "from control_plane.cli.main import main; main()"]


def environment(state: Path, **more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("MERIDIAN_")}
    return {**kept, "MERIDIAN_STATE": str(state), "COLUMNS": "80", **more}


def ran(state: Path, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*MAIN, *arguments], env=environment(state, **more), capture_output=True, text=True,
                          timeout=30, check=False, stdin=subprocess.DEVNULL)


def on_a_terminal(state: Path, typed: bytes, *arguments: str) -> tuple[int, str]:
    """Runs a command on a pseudo-terminal, types into it, and returns its exit code and all that was shown."""
    master, slave = pty.openpty()
    process = subprocess.Popen([*MAIN, *arguments], env=environment(state, TERM="xterm-256color"), stdin=slave,
                               stdout=slave, stderr=slave)
    os.close(slave)
    os.write(master, typed)
    shown = b""
    while True:
        try:
            piece = os.read(master, 4_096)
        except OSError:  # the terminal's other end is closed: the process has ended
            break
        shown += piece
    os.close(master)
    return process.wait(timeout=30), shown.decode()


def test_the_exit_code_reaches_the_shell(tmp_path: Path) -> None:
    assert ran(tmp_path, "status").returncode == 1
    assert ran(tmp_path, "statsu").returncode == 2
    assert ran(tmp_path, "--help").returncode == 0


def test_no_error_is_a_traceback(tmp_path: Path) -> None:
    for arguments in (["status"], ["status", "--wrong"], ["drain"], ["topology", "apply", "-f", "x"], ["chat", "x"]):
        assert "Traceback" not in ran(tmp_path, *arguments).stderr


def test_a_pipe_gets_no_colour(meridian: Meridian) -> None:
    assert "\x1b" not in ran(meridian.state, "status").stdout


def test_no_color_is_respected_on_a_terminal(meridian: Meridian, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    _, shown = on_a_terminal(meridian.state, b"", "status")
    assert "\x1b[3" not in shown


def test_a_reader_that_hangs_up_is_no_error(meridian: Meridian) -> None:
    process = subprocess.Popen([*MAIN, "--help"], env=environment(meridian.state), stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.close()
    _, err = process.communicate(timeout=30)
    assert err == b""


def test_a_person_is_asked_and_no_means_no(meridian: Meridian, api: OperatorServer) -> None:
    code, shown = on_a_terminal(meridian.state, b"n\n", "drain", "us-east-1", "--reason", "test")
    assert "Drain us-east-1? [y/N]" in shown
    assert "nothing was done" in shown
    assert (code, api.operations) == (1, {})


def test_a_person_is_asked_and_yes_means_yes(meridian: Meridian, api: OperatorServer) -> None:
    code, _ = on_a_terminal(meridian.state, b"y\n", "drain", "us-east-1", "--reason", "test")
    assert (code, list(api.operations)) == (0, ["op_1"])


def test_a_person_who_said_yes_before_is_not_asked(meridian: Meridian, api: OperatorServer) -> None:
    code, shown = on_a_terminal(meridian.state, b"", "drain", "us-east-1", "--reason", "test", "-y", "--wait")
    assert "[y/N]" not in shown
    assert "✓" in shown
    assert (code, list(api.operations)) == (0, ["op_1"])


def test_where_nobody_sits_nobody_is_asked(meridian: Meridian, api: OperatorServer) -> None:
    assert ran(meridian.state, "drain", "us-east-1", "--reason", "test").returncode == 0
    assert list(api.operations) == ["op_1"]


def test_ctrl_c_while_waiting_says_that_the_operation_goes_on(meridian: Meridian, api: OperatorServer) -> None:
    api.stuck = True
    process = subprocess.Popen([*MAIN, "drain", "us-east-1", "--reason", "test", "--wait"], stderr=subprocess.PIPE,
                               env=environment(meridian.state), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    ends = time.monotonic() + 30
    while not any(call.method == "GET" for call in api.calls) and time.monotonic() < ends:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert err.decode() == "\nop_1 goes on; follow it with: meridian operations watch op_1\n"


@pytest.mark.parametrize("process", ["control-plane", "worker"])
def test_a_process_without_its_settings_names_them(tmp_path: Path, process: str) -> None:
    outcome = ran(tmp_path, process)
    assert outcome.returncode == 2
    assert outcome.stderr.startswith("error: MERIDIAN_DATABASE_URL: ")
    assert "Traceback" not in outcome.stderr


def test_a_settings_fault_does_not_repeat_the_value(tmp_path: Path) -> None:
    outcome = ran(tmp_path, "control-plane", MERIDIAN_DATABASE_URL="mysql://user:hunter2@host/db")
    assert outcome.returncode == 2
    assert "MERIDIAN_DATABASE_URL: String should match pattern" in outcome.stderr
    assert "hunter2" not in outcome.stderr


def test_bootstrap_without_settings_names_them(tmp_path: Path) -> None:
    outcome = ran(tmp_path, "bootstrap")
    assert outcome.returncode == 2
    assert outcome.stderr.startswith("error: MERIDIAN_DATABASE_URL: Field required")


def test_bootstrap_without_a_database_is_one_line(tmp_path: Path) -> None:
    outcome = ran(tmp_path, "bootstrap", MERIDIAN_DATABASE_URL="postgresql+asyncpg://a:hunter2@127.0.0.1:9/x",
                  MERIDIAN_SIGNING_KEY_FILE=str(tmp_path / "key"))
    assert outcome.returncode == 1
    assert len(outcome.stderr.splitlines()) == 1
    assert "hunter2" not in outcome.stderr

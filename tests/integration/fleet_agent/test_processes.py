"""Real processes: identity, environment, groups and orphans."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from fleet_agent.drivers import processes
from fleet_agent.drivers.processes import ProcessIdentity

Spawn = Callable[..., ProcessIdentity]


@pytest.fixture
def spawn(tmp_path: Path) -> Iterator[Spawn]:
    started: list[ProcessIdentity] = []

    def start(code: str, **env: str) -> ProcessIdentity:
        argv = [sys.executable, "-I", "-S", "-c", code]
        started.append(processes.spawn(argv, env, tmp_path / "logs" / "out.log", "needle"))
        return started[-1]

    yield start
    for process in started:
        processes.signal_group(process, signal.SIGKILL)
        ends(process)
        processes.kill_orphans(process)


def ends(process: ProcessIdentity, within_s: float = 5.0) -> bool:
    give_up_s = time.monotonic() + within_s
    while processes.is_alive(process):
        if time.monotonic() > give_up_s:
            return False
        time.sleep(0.01)
    return True


def output(tmp_path: Path) -> str:
    return (tmp_path / "logs" / "out.log").read_text()


SLEEP = "import time; time.sleep(60)"
LEAVE_A_CHILD = ("import subprocess, sys; c = subprocess.Popen([sys.executable, '-I', '-S', '-c', "
                 "'import time; time.sleep(60)']); print(c.pid, flush=True)")


def test_a_process_lives_until_it_ends(spawn: Spawn) -> None:
    process = spawn(SLEEP)
    assert processes.is_alive(process)
    processes.signal_group(process, signal.SIGTERM)
    assert ends(process)


def test_a_dead_child_is_reaped(spawn: Spawn) -> None:
    process = spawn("")
    assert ends(process)
    assert not Path(f"/proc/{process.pid}").exists()


def test_a_process_leads_a_session_of_its_own(spawn: Spawn) -> None:
    process = spawn(SLEEP)
    assert os.getsid(process.pid) == os.getpgid(process.pid) == process.pid


def test_both_outputs_go_to_the_log_file_for_this_user_only(spawn: Spawn, tmp_path: Path) -> None:
    assert ends(spawn("import os; os.write(1, b'out '); os.write(2, b'err')"))
    assert output(tmp_path) == "out err"
    assert (tmp_path / "logs" / "out.log").stat().st_mode & 0o077 == 0


def test_a_second_process_appends_to_the_log(spawn: Spawn, tmp_path: Path) -> None:
    assert ends(spawn("print('first')"))
    assert ends(spawn("print('second')"))
    assert output(tmp_path) == "first\nsecond\n"


def test_a_log_that_grew_too_long_is_put_aside_at_the_next_start(spawn: Spawn, tmp_path: Path) -> None:
    log = tmp_path / "logs" / "out.log"
    log.parent.mkdir()
    with log.open("wb") as file:
        file.truncate(processes.MAX_LOG_BYTES + 1)
    assert ends(spawn("print('fresh')"))
    assert output(tmp_path) == "fresh\n"
    assert log.with_name("out.log.1").stat().st_size == processes.MAX_LOG_BYTES + 1


def test_only_the_minimum_of_the_environment_is_inherited(
    spawn: Spawn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MERIDIAN_ENROLMENT_TOKEN_FILE", "/secret")
    assert ends(spawn("import os; print(sorted(os.environ))", PLANNED="yes"))
    names = set(eval(output(tmp_path)))  # noqa: S307 - printed by the line above
    assert {"PLANNED", "PATH", processes.TOKEN_VARIABLE} <= names
    assert names <= {*processes.INHERITED, "PLANNED", processes.TOKEN_VARIABLE, "LC_CTYPE"}


def test_the_plans_environment_wins(spawn: Spawn, tmp_path: Path) -> None:
    assert ends(spawn("import os; print(os.environ['HOME'])", HOME="/planned"))
    assert output(tmp_path) == "/planned\n"


def test_no_open_file_of_the_agent_is_inherited(spawn: Spawn, tmp_path: Path) -> None:
    with (tmp_path / "lock").open("w") as lock:
        os.set_inheritable(lock.fileno(), True)
        assert ends(spawn("import os; print(len(os.listdir('/proc/self/fd')))"))
    assert output(tmp_path) == "4\n"  # three, and the one that lists


def test_a_missing_program_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        processes.spawn(["/no/such/program"], {}, tmp_path / "out.log", "token")


def test_a_stranger_with_the_same_pid_is_not_our_process(spawn: Spawn) -> None:
    stranger = spawn(SLEEP)
    ours = replace(stranger, started="another boot:1")
    assert not processes.is_alive(ours)


def test_a_stranger_with_the_same_pid_is_never_signalled(spawn: Spawn) -> None:
    stranger = spawn(SLEEP)
    ours = replace(stranger, started="another boot:1")
    processes.signal_group(ours, signal.SIGKILL)
    assert processes.kill_orphans(ours) == 0
    time.sleep(0.05)
    assert processes.is_alive(stranger)


def test_a_signal_reaches_the_whole_group(spawn: Spawn, tmp_path: Path) -> None:
    process = spawn(LEAVE_A_CHILD + "; c.wait()")
    wait_for_line(tmp_path)
    child = int(output(tmp_path))
    processes.signal_group(process, signal.SIGKILL)
    assert ends(process)
    assert gone(child)


def test_what_a_dead_process_left_behind_is_killed(spawn: Spawn, tmp_path: Path) -> None:
    process = spawn(LEAVE_A_CHILD)
    assert ends(process)
    child = int(output(tmp_path))
    assert processes.kill_orphans(process) == 1
    assert gone(child)


def test_the_children_of_a_living_process_are_no_orphans(spawn: Spawn, tmp_path: Path) -> None:
    process = spawn(LEAVE_A_CHILD + "; c.wait()")
    wait_for_line(tmp_path)
    assert processes.kill_orphans(process) == 0


def test_a_process_is_found_by_its_token(spawn: Spawn) -> None:
    process = spawn(SLEEP)
    assert processes.find_by_token("needle") == process


def test_a_child_with_the_same_token_is_not_taken_for_the_leader(spawn: Spawn, tmp_path: Path) -> None:
    process = spawn(LEAVE_A_CHILD)
    assert ends(process)
    assert processes.find_by_token("needle") is None


def test_a_token_that_nobody_has_finds_nothing() -> None:
    assert processes.find_by_token("nobody") is None


def test_a_dead_process_of_somebody_else_counts_as_dead() -> None:
    child = subprocess.Popen([sys.executable, "-I", "-S", "-c", SLEEP], start_new_session=True)
    identity = processes.ProcessIdentity(child.pid, processes._started(child.pid) or "")
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # dead and not reaped: a zombie
    assert not processes.is_alive(identity)
    child.wait()


def wait_for_line(tmp_path: Path) -> None:
    give_up_s = time.monotonic() + 5
    while not (tmp_path / "logs" / "out.log").exists() or "\n" not in output(tmp_path):
        assert time.monotonic() < give_up_s
        time.sleep(0.01)


def gone(pid: int) -> bool:
    """Whether the process is dead; one that init has not reaped yet is."""
    give_up_s = time.monotonic() + 5
    while time.monotonic() < give_up_s:
        stat = Path(f"/proc/{pid}/stat")
        try:
            if stat.read_text().rsplit(")", 1)[1].split()[0] in "ZX":
                return True
        except (FileNotFoundError, ProcessLookupError):
            return True
        time.sleep(0.01)
    return False

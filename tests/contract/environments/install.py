"""Environments of clients that cannot live in ours: each from its own hashed lock, made when a test first needs it.

To renew a lock: `uv pip compile --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate
--no-header -o NAME.lock NAME.in`, in this folder.
"""

import fcntl
import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

NAMES = ("litellm", "prime", *(("agentx",) if sys.version_info < (3, 14) else ()))  # that one has no newer release
HERE = Path(__file__).parent
PLACE = HERE.parents[2] / ".venv-contract"
INSTALL_DEADLINE_S = 540.0


def environment(name: str) -> Path:
    """The directory of the programs of that client's environment.

    Raises:
        AssertionError: it cannot be installed; the message says why.
    """
    lock, directory = HERE / f"{name}.lock", PLACE / name
    wanted = hashlib.sha256(lock.read_bytes() + sys.version.encode()).hexdigest()
    PLACE.mkdir(exist_ok=True)
    (PLACE / ".gitignore").write_text("*\n")
    with (PLACE / f"{name}.held").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)  # two test runs may want it at once
        stamp = directory / ".installed"
        if not stamp.is_file() or stamp.read_text() != wanted:
            shutil.rmtree(directory, ignore_errors=True)
            _run(sys.executable, "-m", "venv", "--without-pip", str(directory))
            _run(_uv(), "pip", "sync", "--quiet", "--require-hashes", "--python", str(directory / "bin" / "python"),
                 str(lock))
            stamp.write_text(wanted)
    return directory / "bin"


def _uv() -> str:
    for found in (shutil.which("uv"), Path(sys.prefix) / "bin" / "uv", Path(sys.prefix) / ".uv"):
        if found and Path(found).is_file():
            return str(found)
    raise AssertionError("uv was not found; ./dev install puts it into the environment")


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_DEADLINE_S, check=False)
    assert done.returncode == 0, f"the client's environment cannot be installed: {' '.join(command)}\n{done.stderr}"

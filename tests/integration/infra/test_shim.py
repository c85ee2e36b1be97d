"""The shim that gives up rights before it becomes another program, as the kernel sees it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from infra.local import shim
from infra.local.account import unprivileged_account
from infra.local.child import interpreter

SHIM = [interpreter(), "-I", "-S", str(Path(shim.__file__))]
TELL = "read name < /proc/self/comm; echo $name $(id -u):$(id -g) $(id -G)"
root_only = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")


def run(*arguments: str) -> str:
    return subprocess.run([*SHIM, *arguments], capture_output=True, text=True, check=True, cwd="/").stdout.strip()


def test_without_options_it_becomes_the_program_with_its_arguments() -> None:
    assert run("--", "/bin/sh", "-c", "echo $0 $1", "a b", "--") == "a b --"


def test_it_keeps_its_process_id() -> None:
    process = subprocess.Popen([*SHIM, "--", "/bin/sh", "-c", "echo $$"], stdout=subprocess.PIPE, text=True)
    assert process.communicate()[0].strip() == str(process.pid)


@root_only
def test_it_becomes_the_account_without_any_other_group() -> None:
    lent = unprivileged_account()
    assert lent is not None
    told = run("--account", f"{lent.uid}:{lent.gid}", "--", "/bin/sh", "-c", TELL)
    assert told == f"sh {lent.uid}:{lent.gid} {lent.gid}"


@root_only
def test_the_account_cannot_become_root_again() -> None:
    code = "import os, sys\ntry:\n    os.setuid(0)\nexcept PermissionError:\n    print('refused')"
    assert run("--account", "65534:65534", "--", "/usr/bin/env", "python3", "-c", code) == "refused"


@root_only
def test_in_a_user_namespace_root_is_nobody_special_and_keeps_its_files(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.write_text("ours")
    kept.chmod(0o600)
    assert run("--user-namespace", "--", "/bin/sh", "-c", f"id -u; cat {kept}").split() == ["1000", "ours"]


def test_an_unknown_program_is_an_error_not_silence() -> None:
    done = subprocess.run([*SHIM, "--", "/nowhere/program"], capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "No such file" in done.stderr


def test_it_imports_nothing_of_ours() -> None:
    code = (f"import sys, json, runpy; runpy.run_path({str(Path(shim.__file__))!r}); "
            "print(json.dumps(sorted(sys.modules)))")
    loaded = json.loads(subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True,
                                       check=True).stdout)
    assert not [name for name in loaded if name.split(".")[0] in ("infra", "control_plane", "psutil")]

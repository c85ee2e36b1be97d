"""How long `meridian up` takes from installed to ready, and how much memory the whole stack then holds."""

import re
import tempfile
from pathlib import Path

import psutil

from tests.bench.harness import Figures, pss_mib, rss_mib, tree, verdict
from tests.e2e.stack import LocalStack

NAME = "start"
SUMMARY = "meridian up in a fresh state directory: seconds to ready, memory by process (yardsticks 30 s, 2.0 GB)"

LIMIT_S = 30.0
LIMIT_MIB = 2.0e9 / 1024**2
STEP = re.compile(r"^(?P<name>.+): ready after (?P<seconds>[0-9.]+) s$", re.MULTILINE)
# What a command line holds that names its process, the first that fits.
KINDS = (
    ("postgres", "postgres"), ("valkey", "valkey"), ("nats-server", "nats"), ("dynamo.frontend", "dynamo frontend"),
    ("dynamo.", "dynamo worker"), ("meridian up", "meridian up"), ("meridian control-plane", "control plane"),
    ("meridian worker", "worker"), ("meridian edge", "edge"), ("meridian agent", "agent"), ("engine", "engine"),
)


def main() -> Figures:
    """Starts a stack of two datacenters, looks, and stops it."""
    with tempfile.TemporaryDirectory(prefix="meridian-bench-") as place:
        stack = LocalStack(Path(place) / "state", datacenters=2, edges=1, replicas=1)
        try:
            cold_s = stack.start()
            steps = {found["name"]: float(found["seconds"]) for found in STEP.finditer(stack.output.read_text())}
            memory = by_kind(processes_of(stack))
        finally:
            stack.stop()
        warm_s = stack.start()
        stack.stop()
        left = len(stack.processes())
    for name, seconds in steps.items():
        print(f"{name:<28} {seconds:6.1f} s")
    print(f"{'ready, fresh state':<28} {cold_s:6.1f} s  {verdict(cold_s, LIMIT_S)} s")
    print(f"{'ready, state found again':<28} {warm_s:6.1f} s\n")
    for kind, (number, rss, pss) in sorted(memory.items(), key=lambda item: -item[1][1]):
        print(f"{number:>3} {kind:<24} {rss:7.0f} MiB RSS {pss:7.0f} MiB PSS")
    rss, pss = (sum(row[column] for row in memory.values()) for column in (1, 2))
    print(f"    {'all':<24} {rss:7.0f} MiB RSS {pss:7.0f} MiB PSS  {verdict(rss, round(LIMIT_MIB))} MiB")
    return {
        "ready_s": round(cold_s, 1), "ready_again_s": round(warm_s, 1), "rss_mib": round(rss), "pss_mib": round(pss),
        "processes": sum(row[0] for row in memory.values()), "left_behind": left,
        "within": cold_s <= LIMIT_S and rss <= LIMIT_MIB,
        **{re.sub(r"\W+", "_", name).lower() + "_s": seconds for name, seconds in steps.items()}}


def processes_of(stack: LocalStack) -> list[psutil.Process]:
    """Every process of a running stack: what `meridian up` started, and what outlived its parent."""
    found = {process.pid: process for process in (*tree(stack.facts["pids"]["up"]), *stack.processes())}
    return list(found.values())


def by_kind(processes: list[psutil.Process]) -> dict[str, tuple[int, float, float]]:
    """How many processes of each kind there are, and their RSS and PSS in MiB."""
    groups: dict[str, list[psutil.Process]] = {}
    for process in processes:
        groups.setdefault(kind_of(process), []).append(process)
    return {kind: (len(members), rss_mib(members), pss_mib(members)) for kind, members in groups.items()}


def kind_of(process: psutil.Process) -> str:
    """What a process is, in words."""
    try:
        line = " ".join(process.cmdline())
    except psutil.Error:
        return "ended"
    return next((kind for mark, kind in KINDS if mark in line), Path(line.split(" ")[0]).name)

"""What benches measure with: CPU and memory of a process tree, medians, and ratios of figures taken side by side.

CPU comes from the scheduler's own count (`/proc/PID/task/*/schedstat`, nanoseconds), which does not round to ticks.
"""

import importlib
import pkgutil
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles

import psutil

import tests.bench
from control_plane.contracts.clock import SystemClock, utc

Figure = float | int | str | bool
Figures = dict[str, Figure]

CLOCK = SystemClock()
NANOSECONDS = 1e9
MEBIBYTE = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Bench:
    """A module of this package with `NAME`, `SUMMARY` and `main`; `OPTIONS`, if it has any, are flags that `main` takes
    by name."""

    name: str
    summary: str
    main: Callable[..., Figures]
    options: tuple[str, ...] = ()


def benches() -> list[Bench]:
    """Every bench, by name. What is no bench in this package has no `NAME`."""
    modules = [importlib.import_module(f"{tests.bench.__name__}.{info.name}")
               for info in pkgutil.iter_modules(tests.bench.__path__) if not info.name.startswith(("_", "test_"))]
    found = [Bench(module.NAME, module.SUMMARY, module.main, getattr(module, "OPTIONS", ()))
             for module in modules if hasattr(module, "NAME")]
    return sorted(found, key=lambda bench: bench.name)


def tree(pid: int) -> list[psutil.Process]:
    """A process and all that it started and that still runs."""
    try:
        root = psutil.Process(pid)
        return [root, *root.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def cpu_s(pids: Iterable[int]) -> float:
    """CPU seconds that these processes have used since they began, every thread counted."""
    total_ns = 0
    for pid in pids:
        for stat in Path(f"/proc/{pid}/task").glob("*/schedstat"):
            try:
                total_ns += int(stat.read_text().split()[0])
            except (OSError, ValueError):
                continue  # the thread ended while we looked
    return total_ns / NANOSECONDS


def tree_cpu_s(pid: int) -> float:
    """CPU seconds of a process and all that it started."""
    return cpu_s(process.pid for process in tree(pid))


def rss_mib(processes: Iterable[psutil.Process]) -> float:
    """Resident memory of processes; what they share is counted for each."""
    return sum(_memory(process, "rss") for process in processes) / MEBIBYTE


def pss_mib(processes: Iterable[psutil.Process]) -> float:
    """Memory of processes, what several share divided among them: what ending them all would give back."""
    return sum(_memory(process, "pss") for process in processes) / MEBIBYTE


def paired_ratio(pairs: Sequence[tuple[float, float]]) -> float:
    """The median of ours ÷ theirs, each pair taken in the same moment, so that a busy machine weighs on both."""
    return median(ours / theirs for ours, theirs in pairs)


def percentile(values: Sequence[float], percent: int) -> float:
    """The value below which `percent` of 100 lie."""
    return values[0] if len(values) == 1 else quantiles(values, n=100, method="inclusive")[percent - 1]


def verdict(value: float, limit: float, at_least: bool = False) -> str:
    """How a figure stands to its yardstick, in words; `at_least`: less is worse."""
    if at_least:
        return f"{'within' if value >= limit else 'BELOW'} the yardstick of {limit:g}"
    return f"{'within' if value <= limit else 'ABOVE'} the yardstick of {limit:g}"


def machine() -> str:
    """The day and what this ran on: figures mean little without them."""
    kind = next((line.partition(":")[2].strip() for line in Path("/proc/cpuinfo").read_text().splitlines()
                 if line.startswith("model name")), "unknown CPU")
    python = ".".join(map(str, sys.version_info[:3]))
    return f"{utc(CLOCK.time_s()):%Y-%m-%d}, {psutil.cpu_count()} cores of {kind}, Python {python}"


def _memory(process: psutil.Process, kind: str) -> int:
    try:
        return int(getattr(process.memory_full_info() if kind == "pss" else process.memory_info(), kind))
    except psutil.Error:
        return 0

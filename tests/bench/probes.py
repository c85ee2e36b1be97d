"""What the edge does when its upstream misbehaves: the probes that lie beside the checkout, each from a public fault
report of some gateway, against one edge by itself before the mock upstream.

`--all` asks nginx and the bare relays as well, for a table of who does what.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

from tests.bench.edge_relays import EDGE, Relay, edge, relays
from tests.bench.harness import Figures, machine
from tests.bench.shared_bench import PLACE, mock_upstream, shared_bench

NAME = "probes"
SUMMARY = "fault probes from public reports against one edge alone: PASS, FAIL or NOTE (--all: other relays, too)"
OPTIONS = ("--all",)

DEADLINE_S = 300.0

Rows = Mapping[str, tuple[str, str]]
"""Verdict and remark of each probe."""


def main(all: bool = False) -> Figures:
    """Starts the mock and the edge, probes it, and prints the table; figures are the edge's alone."""
    place = shared_bench(PLACE).place
    with tempfile.TemporaryDirectory(prefix="meridian-bench-") as name, ExitStack() as stack:
        upstream_port = stack.enter_context(mock_upstream(place))
        running = (stack.enter_context(relays(Path(name), upstream_port, place)) if all
                   else [stack.enter_context(edge(Path(name) / "edge", upstream_port))])
        verdicts = {relay.name: probed(relay, place, upstream_port, Path(name) / f"{relay.name}.jsonl")
                    for relay in running}
    print(table(verdicts))
    print(machine())
    return figures(verdicts[EDGE])


def probed(relay: Relay, place: Path, upstream_port: int, out: Path) -> Rows:
    """Runs every probe against one relay.

    Raises:
        RuntimeError: the program itself failed; what it said is in the message.
    """
    ran = subprocess.run(
        [sys.executable, str(place / "probe.py"), "--name", relay.name, "--url", relay.url, "--key", relay.key,
         "--mock", f"http://127.0.0.1:{upstream_port}", "--out", str(out)],
        capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    if ran.returncode or not out.is_file():
        raise RuntimeError(f"the probes of {relay.name} did not run: {ran.stdout}{ran.stderr}")
    rows = json.loads(out.read_text().splitlines()[-1])["rows"]
    return {probe: (verdict, remark) for probe, (verdict, remark) in rows.items()}


def table(verdicts: Mapping[str, Rows]) -> str:
    """A line for each probe, a column for each relay; the remarks are the edge's."""
    names = list(verdicts)
    probes = list(verdicts[names[0]])
    width = max(map(len, ["probe", *probes]))
    columns = "  ".join(f"{name:<{max(4, len(name))}}" for name in names)
    lines = [f"{'probe':<{width}}  {columns}  the edge's remark"]
    for probe in probes:
        cells = "  ".join(f"{verdicts[name].get(probe, ('-', ''))[0]:<{max(4, len(name))}}" for name in names)
        lines.append(f"{probe:<{width}}  {cells}  {verdicts[names[0]][probe][1]}")
    return "\n".join(lines)


def figures(rows: Rows) -> Figures:
    """How many of each verdict; `within`: none failed."""
    counts = {verdict: sum(said == verdict for said, _ in rows.values()) for verdict in ("PASS", "FAIL", "NOTE")}
    failed = ", ".join(probe for probe, (verdict, _) in rows.items() if verdict == "FAIL")
    return {"passed": counts["PASS"], "failed": counts["FAIL"], "noted": counts["NOTE"], "which_failed": failed,
            "within": not failed}

"""Whether clients notice that a datacenter broke their streams: streams of every class, cut after every event."""

import asyncio
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from control_plane.contracts.usage import UsageRecord
from tests.bench.harness import Figures, percentile
from tests.engine.cluster import cluster, scripted
from tests.engine.cutting import Heard
from tests.engine.resuming import SCHEMA, THINKING, TOOLS, Reader, asked, call, reading
from tests.engine.scripted import CHAT, COMPLETIONS
from tests.ports import claim_ports

NAME = "resume"
SUMMARY = "cut >= 200 streams of all classes after every event: byte-equal (100 %), gap p50 (<= 1 s), billed twice (0)"

AT_ONCE = 6
DEADLINE_S = 900.0
GAP_P50_S = 1.0
WORDS = ("the", "sea", "is", "calm", "now", "and", "we", "row", "on")
MARKS = ("日本", "🎉", "é", "漢字", "👩‍👩‍👧", "ñ", "Ω≈ç")
SHOWN = 5


@dataclass(frozen=True, slots=True)
class Reference:
    """A stream to be cut."""

    kind: str
    path: str
    answer: str
    fields: dict[str, Any]

    @property
    def body(self) -> dict[str, Any]:
        return asked(self.path, self.answer, self.fields)


@dataclass
class Seen:
    """What became of the cuts."""

    streams: Counter[str] = field(default_factory=Counter)
    cuts: Counter[str] = field(default_factory=Counter)
    equal: Counter[str] = field(default_factory=Counter)
    gaps_s: list[float] = field(default_factory=list)
    odd: list[str] = field(default_factory=list)
    tokens: int = 0


def main() -> Figures:
    """Starts two clusters and an edge before them, cuts, compares, looks at what was metered."""
    with tempfile.TemporaryDirectory(prefix="meridian-bench-") as place:
        base, root = claim_ports(2), Path(place)
        (root / "a").mkdir()
        (root / "b").mkdir()
        with cluster(scripted(root / "a", base)) as first, cluster(scripted(root / "b", base + 100)) as second:
            [facts] = first.plan.facts.values()
            return asyncio.run(cut_all((first, second), root, list(references(facts.grammar_url is not None))))


def references(has_grammar: bool) -> Iterator[Reference]:
    """More than 200 streams. Constrained ones only where a grammar service can go on with them."""
    for at in range(50):
        yield Reference("text", CHAT, _words(at, 4), {})
    for at in range(35):
        yield Reference("emoji and CJK", CHAT, f"{_words(at, 1)} {MARKS[at % len(MARKS)]}{MARKS[at % 3]} ok{at}", {})
    for at in range(25):
        yield Reference("completions", COMPLETIONS, f"{_words(at, 2)} {MARKS[at % len(MARKS)]} {at}", {})
    for at in range(35):
        yield Reference("reasoning", CHAT, f"{_words(at, 2)}</think>so {MARKS[at % len(MARKS)]} {at}", THINKING)
    for at in range(25):
        yield Reference("tools", CHAT, f"{_words(at, 1)} {call(at)}\n{call(at + 1)} ok", {"tools": TOOLS})
    for at in range(10):
        yield Reference("a call that must come", CHAT, f"{call(at)} {_words(at, 2)}",
                        {"tools": TOOLS, "tool_choice": "required"})
    for at in range(15):
        yield Reference("reasoning, then tools", CHAT, f"{_words(at, 1)}</think>a {call(at)} b",
                        {"tools": TOOLS, **THINKING})
    for at in range(15):
        yield Reference("stop strings", CHAT, f"{_words(at, 3)} STOP on", {"stop": ["STOP", " cal", "e i"]})
    for at in range(20 if has_grammar else 0):
        text = f'{{"x": {at}, "name": "{MARKS[at % len(MARKS)]} z"}}'
        yield Reference("json_schema", CHAT, text, SCHEMA)
        yield Reference("reasoning, then json_schema", CHAT, f"hm{at}</think>{text}", {**SCHEMA, **THINKING})
        if at % 2:
            yield Reference("sampled, with stop strings", CHAT, f"{_words(at, 3)} STOP on",
                            {"stop": ["STOP", " cal", "e i"], "temperature": 0.7})


async def cut_all(clusters: Any, root: Path, wanted: list[Reference]) -> Figures:
    """Reads each stream whole, then once for each of its events, cut there."""
    seen, todo = Seen(), iter(wanted)
    async with asyncio.timeout(DEADLINE_S), reading(clusters, root / "edge") as reader:

        async def work() -> None:
            for one in todo:
                await cut_everywhere(reader, one, seen)

        async with asyncio.TaskGroup() as group:
            for _ in range(AT_ONCE):
                group.create_task(work())
        records = reader.records()
    return report(seen, records)


async def cut_everywhere(reader: Reader, one: Reference, seen: Seen) -> None:
    """One stream, whole and cut."""
    whole = await reader.hear(one.path, one.body)
    if not whole.is_done:
        seen.odd.append(f"{one.kind}: the whole stream did not end: {whole.answer}")
    seen.streams[one.kind] += 1
    seen.tokens += (len(whole.events) + 1) * (whole.answer["completion_tokens"] or 0)
    for cut in range(1, len(whole.events) + 1):
        note(seen, one, cut, whole, await reader.hear(one.path, one.body, cut))


def note(seen: Seen, one: Reference, cut: int, whole: Heard, heard: Heard) -> None:
    """Compares a cut stream with the whole one."""
    seen.cuts[one.kind] += 1
    seen.gaps_s.append(heard.longest_gap_s)
    if heard.answer == whole.answer:
        seen.equal[one.kind] += 1
    else:
        differs = {name: (value, heard.answer[name]) for name, value in whole.answer.items()
                   if heard.answer[name] != value}
        seen.odd.append(f"{one.kind} {one.answer!r} cut after {cut}: {differs}")


def report(seen: Seen, records: list[UsageRecord]) -> Figures:
    """Prints what was seen, and returns it as figures."""
    cuts, equal = seen.cuts.total(), seen.equal.total()
    billed_twice = sum(record.completion_tokens for record in records) - seen.tokens
    p50_s, p90_s = percentile(seen.gaps_s, 50), percentile(seen.gaps_s, 90)
    print(f"{'class':<28} {'streams':>7} {'cuts':>6} {'byte-equal':>10}")
    for kind, times in seen.cuts.items():
        print(f"{kind:<28} {seen.streams[kind]:>7} {times:>6} {seen.equal[kind] / times:>10.2%}")
    print(f"{'all':<28} {seen.streams.total():>7} {cuts:>6} {equal / cuts:>10.2%}")
    print(f"gap at the seam      p50 {p50_s * 1000:.0f} ms, p90 {p90_s * 1000:.0f} ms, "
          f"max {max(seen.gaps_s) * 1000:.0f} ms")
    print(f"usage records        {len(records)} of {cuts + seen.streams.total()}, resumed {resumed(records)}")
    print(f"tokens billed twice  {billed_twice}")
    for line in seen.odd[:SHOWN]:
        print(f"  {line}")
    return {
        "streams": seen.streams.total(), "cuts": cuts, "byte_equal_pct": round(100 * equal / cuts, 3),
        "gap_p50_ms": round(p50_s * 1000), "gap_p90_ms": round(p90_s * 1000), "billed_twice": billed_twice,
        "records": len(records), "resumed": resumed(records),
        "within": equal == cuts and p50_s <= GAP_P50_S and not billed_twice and seen.streams.total() >= 200}


def resumed(records: list[UsageRecord]) -> int:
    """How many requests went on in another datacenter."""
    return sum(record.resumes > 0 for record in records)


def _words(at: int, count: int) -> str:
    return " ".join(WORDS[(at * 3 + n * (1 + at % 4)) % len(WORDS)] for n in range(count)) + f" {at}"

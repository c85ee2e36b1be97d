"""Proves a run's properties from what its clients saw and what the control plane stored. Pure.

Clients count words; the control plane says what it would bill. Where both know a request they must agree exactly;
what only one of them knows must have a reason that the history names.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal

from tests.chaos.evidence import Evidence, Record
from tests.chaos.history import Fault, History, Try, Verdict

BACK = "back"
EDGE = "edge "
CLOSED = {"succeeded", "failed", "refused", "cancelled", "rolled_back"}
EXAMPLES = 5
LIFETIME = "lifetime"
COMPLETED = "completed"
OK = 200
# A fault is felt a little longer than it lasts: what was accepted before a stop is answered after it.
SLACK_S = 1.0
NEVER_S = float("inf")


@dataclass(frozen=True)
class Property:
    """A figure, what it may be, and whether it is; `examples` say where it is not. Without a bound it only informs."""

    name: str
    figure: str
    bound: str = ""
    holds: bool = True
    examples: tuple[str, ...] = ()


@dataclass(frozen=True)
class Window:
    """When an edge was killed, starting or stopped."""

    edge: int
    from_s: float
    until_s: float


def none_of(name: str, found: Sequence[str]) -> Property:
    """A count that must be 0, with the first of what was found."""
    return Property(name, f"{len(found):,}", "0", not found, tuple(found[:EXAMPLES]))


def traffic(history: History, at_least_per_s: float = 0.0) -> list[Property]:
    """How much there was."""
    final, rate = history.final(), history.rate_per_s()
    streams = sum("stream" in one.way for one in final)
    bound = f"≥ {at_least_per_s:g}" if at_least_per_s else ""
    delivered = sum(one.tokens for one in history.tries)
    found = [Property("requests", f"{len(final):,} ({streams:,} streams)"),
             Property("requests a second", f"{rate:.1f}", bound, rate >= at_least_per_s),
             Property("tokens delivered", f"{delivered:,}")]
    if history.held:
        found.append(Property("requests not begun, the load was full", f"{len(history.held):,}"))
    return found


def clients(history: History, windows: Sequence[Window], strict: bool = True) -> list[Property]:
    """What clients saw. An edge that lives breaks nothing; `strict`: nor does it turn anybody away for a moment, which
    it may while what it needs is away: every datacenter, or a control plane that lends money."""
    failed = [one for one in history.tries if one.verdict is not Verdict.FINISHED]
    final = [one for one in history.final() if one.verdict is not Verdict.FINISHED]
    at_living = [one for one in failed if not is_excused(one, windows)]
    turned_away = [told(one) for one in at_living if is_turned_away(one)]
    words = "requests turned away for a moment by an edge that lived"
    return [
        none_of("errors that no client may retry", [told(one) for one in failed if not one.retry]),
        none_of("requests given up after every retry", [told(one) for one in final if one.retry]),
        none_of("requests broken by an edge that lived", [told(one) for one in at_living if not is_turned_away(one)]),
        none_of(words, turned_away) if strict else
        Property(words, f"{len(turned_away):,}", examples=tuple(summed(turned_away))),
        Property("requests that needed a retry", f"{sum(one.attempt > 1 for one in history.final()):,}")]


def usage(history: History, evidence: Evidence, windows: Sequence[Window]) -> list[Property]:
    """Every token once: records lost, doubled, wrong, unasked for; sums that do not add up."""
    records = by_id(evidence.records)
    tries = {one.request_id: one for one in history.tries if one.request_id}
    finished = [one for one in tries.values() if one.verdict is Verdict.FINISHED]
    unmatched = [one.request_id for one in evidence.records if one.request_id not in tries]
    headless = sum(not one.request_id and one.verdict is not Verdict.UNREACHED for one in history.tries)
    return [
        none_of("usage records lost (finished, no record)",
                [told(one) for one in finished if not is_completed(records.get(one.request_id, ()))]),
        none_of("usage records doubled", [f"{id} {len(copies)} times" for id, copies in records.items()
                                          if len(copies) > 1]),
        none_of("answers begun and never accounted for",
                [told(one) for one in tries.values() if one.status == OK and one.request_id not in records]),
        none_of("finished, and billed otherwise than delivered",
                [f"{told(one)}: billed {billed(records, one)} of {one.tokens}" for one in finished
                 if one.request_id in records and billed(records, one) != one.tokens]),
        none_of("broken off by no fault, and billed more than delivered",
                [f"{told(one)}: billed {billed(records, one)} of {one.tokens}" for one in tries.values()
                 if one.verdict is not Verdict.FINISHED and not is_excused(one, windows)
                 and billed(records, one) > one.tokens]),
        Property("records of requests that clients do not know", f"{len(unmatched):,}",
                 f"≤ {headless:,}", len(unmatched) <= headless, tuple(unmatched[:EXAMPLES])),
        none_of("openings nobody settled", ["an opening"] * evidence.open_requests),
        none_of("frames in quarantine", evidence.quarantine),
        Property("tokens delivered by edges that died, not billed",
                 f"{sum(max(0, one.tokens - billed(records, one)) for one in tries.values()):,}"),
        *sums(evidence),
    ]


def sums(evidence: Evidence) -> list[Property]:
    """What was booked for a team is what its records cost, to the last digit."""
    cost: defaultdict[str, Decimal] = defaultdict(Decimal)
    for record in evidence.records:
        cost[record.team] += record.cost_usd
    booked = {one.scope_id: one.usd for one in evidence.spent if one.scope == "team" and one.interval == LIFETIME}
    wrong = [f"{team}: records {cost[team]} USD, booked {booked.get(team, Decimal(0))} USD"
             for team in sorted(cost.keys() | booked.keys()) if cost[team] != booked.get(team, Decimal(0))]
    count = len(evidence.records)
    return [none_of("teams whose booked spend differs from their records", wrong),
            Property("requests in hourly sums", f"{evidence.rollup_requests:,}", f"≤ {count:,}",
                     evidence.rollup_requests <= count)]


def operations(evidence: Evidence) -> list[Property]:
    """Operations end, and the audit log has each of them, in order."""
    states = Counter(f"{one.kind} {one.state}" for one in evidence.operations)
    told_of = {event.operation for event in evidence.audit}
    found = [
        Property("operations", ", ".join(f"{count} {name}" for name, count in sorted(states.items())) or "none"),
        none_of("operations stuck", [f"{one.kind} {one.id} is {one.state}" for one in evidence.operations
                                     if one.state not in CLOSED]),
        none_of("operations without an audit event", [one.id for one in evidence.operations if one.id not in told_of]),
        none_of("audit events with one id", [id for id, times in Counter(
            event.id for event in evidence.audit).items() if times > 1])]
    if evidence.audit_verified is not None:
        found.append(Property("the audit log's chain", "whole" if evidence.audit_verified else "BROKEN", "whole",
                              evidence.audit_verified))
    return found


def rest(evidence: Evidence) -> list[Property]:
    """After the last fault everything comes to rest."""
    return [Property("edges at the head, agents as desired", evidence.unconverged or
                     f"after {evidence.converged_s:.0f} s", "yes", not evidence.unconverged)]


def windows_of(faults: Iterable[Fault], ports: Sequence[int]) -> list[Window]:
    """When each edge was not itself. A killed one is back when it says so; `ports` are the edges' in order."""
    faults = sorted((one for one in faults if one.victim.startswith(EDGE)), key=lambda one: one.at_s)
    found = []
    for at, fault in enumerate(faults):
        if fault.kind == BACK:
            continue
        until_s = fault.until_s or next((one.at_s for one in faults[at:] if one.kind == BACK
                                         and one.victim == fault.victim), NEVER_S)
        found.append(Window(ports.index(int(fault.victim.removeprefix(EDGE))), fault.at_s, until_s + SLACK_S))
    return found


def is_excused(one: Try, windows: Sequence[Window]) -> bool:
    """Whether the try's edge was killed, starting or stopped while the try went on."""
    return any(one.edge == window.edge and one.began_s <= window.until_s and one.ended_s >= window.from_s
               for window in windows)


def is_turned_away(one: Try) -> bool:
    """Whether the edge said that it cannot now, and that a retry can help: an honest error, at once or, where a stream
    had begun and no datacenter is left to go on with it, as its last event."""
    return one.verdict is Verdict.REFUSED and one.retry


def by_id(records: Iterable[Record]) -> dict[str, list[Record]]:
    """Every copy of each record."""
    found: defaultdict[str, list[Record]] = defaultdict(list)
    for record in records:
        found[record.request_id].append(record)
    return dict(found)


def is_completed(copies: Sequence[Record]) -> bool:
    return any(record.outcome == COMPLETED for record in copies)


def billed(records: dict[str, list[Record]], one: Try) -> int:
    """Completion tokens that are billed for a try, all copies together."""
    return sum(record.tokens for record in records.get(one.request_id, ()))


def told(one: Try) -> str:
    """A try in a few words, for whoever looks it up."""
    return (f"{one.way} {one.request_id or 'without an id'} at edge {one.edge}, try {one.attempt}: {one.verdict}"
            f"{f' {one.status}' if one.status else ''} {one.fault} after {one.ended_s - one.began_s:.1f} s".strip())


def summed(found: Sequence[str], key: Callable[[str], str] = lambda text: text.partition(": ")[2].rpartition(
        " after ")[0]) -> list[str]:
    """What is alike, counted, the most frequent first."""
    return [f"{times} x {name}" for name, times in Counter(map(key, found)).most_common(EXAMPLES)]


def failures(properties: Iterable[Property]) -> list[Property]:
    """Those that do not hold."""
    return [one for one in properties if not one.holds]
